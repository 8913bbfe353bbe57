// VAE and TAESD: sizes, refusals, independence of batch and half. Parity with Diffusers is tested by
// tests/integration_tests/test_models.py.
#include "models/vae.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.hpp"
#include "models/taesd.hpp"
#include "support/random_source.hpp"
#include "support/tensor_testing.hpp"

namespace rocm_sd {
namespace {

using testing_support::random_tensor;
using testing_support::RandomSource;
using testing_support::to_doubles;

const VaeConfig kSmall = {.channels = {8, 16}, .resnets = 1, .norm_groups = 4};

TEST(Vae, DecodesToTwiceTheSizePerLevel) {
  const RandomSource source;
  const VaeDecoder decoder = VaeDecoder::load(host_device(), kSmall, source, DType::kF32);
  testing_support::TestExec test;
  const Tensor latents = random_tensor({2, 3, 5, 4}, DType::kF32, 1);
  const Tensor picture = decoder(test.ex, latents);
  EXPECT_EQ(picture.shape(), (Shape{2, 6, 10, 3}));
  const auto both = to_doubles(picture);
  testing_support::expect_tensor_near(decoder(test.ex, latents.narrow(0, 1, 1)),
                                      {both.begin() + 180, both.end()}, 1e-4);
  EXPECT_THROW(decoder(test.ex, random_tensor({1, 3, 5, 3}, DType::kF32, 1)), ShapeError);
}

// Bands see their neighbours' rows and the whole picture's statistics: only the order of sums may differ.
TEST(Vae, DecodesInBandsToTheSamePicture) {
  const VaeConfig config = {.channels = {8, 16, 16}, .resnets = 2, .norm_groups = 4};
  const RandomSource source;
  const VaeDecoder decoder = VaeDecoder::load(host_device(), config, source, DType::kF32);
  const Tensor latents = random_tensor({1, 11, 6, 4}, DType::kF32, 1);
  testing_support::TestExec test;
  const auto want = to_doubles(decoder(test.ex, latents));
  for (const int64_t bands : {1, 2, 3, 11, 50}) {
    std::vector<double> got;
    int64_t next = 0, count = 0;
    decoder.decode_in_bands(test.ex, latents, bands, [&](const Tensor& band, int64_t row) {
      EXPECT_EQ(row, next);
      EXPECT_EQ(band.shape(), (Shape{1, band.dim(1), 24, 3}));
      next += band.dim(1);
      ++count;
      const auto values = to_doubles(band);
      got.insert(got.end(), values.begin(), values.end());
    });
    EXPECT_EQ(next, 44);
    EXPECT_EQ(count, std::min<int64_t>(bands, 11));
    testing_support::expect_near(got, want, 2e-5, concat(bands, " bands"));
  }
  EXPECT_THROW(decoder.decode_in_bands(test.ex, random_tensor({2, 4, 4, 4}, DType::kF32, 1), 2, nullptr),
               ShapeError);
}

TEST(Vae, EncodesInBandsToTheSameLatents) {
  const VaeConfig config = {.channels = {8, 16, 16}, .resnets = 2, .norm_groups = 4};
  const RandomSource source;
  const VaeEncoder encoder = VaeEncoder::load(host_device(), config, source, DType::kF32);
  const Tensor picture = random_tensor({1, 28, 20, 3}, DType::kF32, 1);
  testing_support::TestExec test;
  const auto want = to_doubles(encoder(test.ex, picture));
  for (const int64_t bands : {1, 2, 3, 7, 50})
    testing_support::expect_near(to_doubles(encoder.encode_in_bands(test.ex, picture, bands)), want, 2e-5,
                                 concat(bands, " bands"));
  EXPECT_THROW(encoder.encode_in_bands(test.ex, random_tensor({1, 6, 4, 3}, DType::kF32, 1), 2), ShapeError);
}

// Decoded and encoded by weights in 8 bits against f32, half as wide as SD's VAE. A row of normal values
// whose largest is some 4 deviations is off by 0.9 % in int8 and 2.6 % in e4m3, 41 and 32 dB; ten and more
// such layers follow each other.
TEST(Vae, WeightsInEightBitsAreNear) {
  const VaeConfig config = {.channels = {64, 128, 256, 256}, .resnets = 1, .norm_groups = 32};
  const RandomSource source;
  const Tensor latents = random_tensor({1, 4, 3, 4}, DType::kF32, 1);
  const Tensor picture = random_tensor({1, 16, 16, 3}, DType::kF32, 2);
  testing_support::TestExec test;
  const auto decoded_by = [&](const WeightFormat& weights, DType compute) {
    const VaeDecoder decoder = VaeDecoder::load(host_device(), config, source, compute, weights);
    return to_doubles(decoder(test.ex, latents));
  };
  const auto encoded_by = [&](const WeightFormat& weights) {
    const VaeEncoder encoder = VaeEncoder::load(host_device(), config, source, DType::kF32, weights);
    return to_doubles(encoder(test.ex, picture));
  };
  const auto decibels = [](const std::vector<double>& got, const std::vector<double>& want) {
    double signal = 0, error = 0;
    for (size_t i = 0; i < want.size(); ++i)
      signal += want[i] * want[i], error += (got[i] - want[i]) * (got[i] - want[i]);
    return 10 * std::log10(signal / error);
  };
  const auto decoded = decoded_by({}, DType::kF32), encoded = encoded_by({});
  for (const auto& [type, floor] : {std::pair{DType::kI8, 28.0}, {DType::kF8E4M3, 19.0}}) {
    const WeightFormat weights{.eight_bit = type};
    const double decoder = decibels(decoded_by(weights, DType::kF32), decoded),
                 encoder = decibels(encoded_by(weights), encoded);
    EXPECT_GT(decoder, floor) << weights.name();
    EXPECT_GT(encoder, floor) << weights.name();
    EXPECT_LT(decoder, 70) << "these are not weights in 8 bits";
    EXPECT_GT(decibels(decoded_by(weights, DType::kBF16), decoded), floor - 3) << weights.name();
    RecordProperty(concat("decoder_", weights.name()), std::to_string(decoder));
    RecordProperty(concat("encoder_", weights.name()), std::to_string(encoder));
  }
}

TEST(Vae, WeightsInEightBitsTakeAQuarterOfF32) {
  const VaeConfig config = {.channels = {32, 64, 64}, .resnets = 2, .norm_groups = 8};
  const RandomSource source;
  const auto bytes = [&](const WeightFormat& weights) {
    VaeDecoder decoder = VaeDecoder::load(host_device(), config, source, DType::kF32, weights);
    return resident_bytes([&](Visitor& v) { decoder.visit(v); });
  };
  const uint64_t whole = bytes({}), eight = bytes({.eight_bit = DType::kI8});
  EXPECT_LT(eight, whole * 3 / 10);
  EXPECT_GT(eight, whole / 4);
}

// The finest level at half size: the same in bands, in a third of the whole decoder's memory here.
TEST(Vae, HalfSizeFinestLevel) {
  VaeConfig config = {.channels = {16, 32, 64}, .resnets = 2, .norm_groups = 8};
  const RandomSource source;
  const VaeDecoder full = VaeDecoder::load(host_device(), config, source, DType::kF32);
  config.half_size_finest = true;
  const VaeDecoder fast = VaeDecoder::load(host_device(), config, source, DType::kF32);
  const Tensor latents = random_tensor({1, 9, 14, 4}, DType::kF32, 1);
  testing_support::TestExec test;
  const Tensor picture = fast(test.ex, latents);
  EXPECT_EQ(picture.shape(), (Shape{1, 36, 56, 3}));
  for (const int64_t bands : {2, 9}) {
    int calls = 0;
    fast.decode_in_bands(test.ex, latents, bands, [&](const Tensor& whole, int64_t row) {
      EXPECT_EQ(row, 0);
      testing_support::expect_near(to_doubles(whole), to_doubles(picture), 2e-5, concat(bands, " bands"));
      ++calls;
    });
    EXPECT_EQ(calls, 1);
  }
  Arena arena(host_device());
  Program whole("whole", arena, [&](Exec& ex) { full(ex, latents); });
  Program less("less", arena, [&](Exec& ex) { fast(ex, latents); });
  whole.plan();
  less.plan();
  EXPECT_LT(less.arena_bytes(), whole.arena_bytes() * 2 / 3);
}

TEST(Vae, BandsTakeLessMemory) {
  const VaeConfig config = {.channels = {16, 32, 64, 64}, .resnets = 2, .norm_groups = 8};
  const RandomSource source;
  const VaeDecoder decoder = VaeDecoder::load(host_device(), config, source, DType::kF32);
  const Tensor latents = random_tensor({1, 32, 32, 4}, DType::kF32, 1);
  Arena arena(host_device());
  Program whole("whole", arena, [&](Exec& ex) { decoder(ex, latents); });
  Program bands("bands", arena,
                [&](Exec& ex) { decoder.decode_in_bands(ex, latents, 8, [](const Tensor&, int64_t) {}); });
  whole.plan();
  bands.plan();
  EXPECT_LT(bands.arena_bytes(), whole.arena_bytes() * 3 / 4);
}

TEST(Vae, EncodesMultiplesOfItsStepOnly) {
  const RandomSource source;
  const VaeEncoder encoder = VaeEncoder::load(host_device(), kSmall, source, DType::kF32);
  testing_support::TestExec test;
  const Tensor picture = random_tensor({1, 6, 4, 3}, DType::kF32, 1);
  const Tensor zero = make_tensor(host_device(), {1, 3, 2, 4}, DType::kF32);
  upload(host_device(), zero, std::vector<float>(24).data(), 24);
  EXPECT_EQ(encoder.moments(test.ex, picture).shape(), (Shape{1, 3, 2, 8}));
  EXPECT_EQ(to_doubles(encoder(test.ex, picture)), to_doubles(encoder(test.ex, picture, &zero)));
  EXPECT_THROW(encoder(test.ex, random_tensor({1, 5, 4, 3}, DType::kF32, 1)), ShapeError);
  EXPECT_THROW(encoder(test.ex, random_tensor({1, 6, 4, 4}, DType::kF32, 1)), ShapeError);
}

TEST(Taesd, DecodesToEightTimesTheSize) {
  const TaesdConfig config = {.encoder_channels = {8, 8, 8, 8}, .decoder_channels = {8, 8, 8, 8}};
  const RandomSource source;
  const TaesdDecoder decoder = TaesdDecoder::load(host_device(), config, source, DType::kBF16);
  const TaesdEncoder encoder = TaesdEncoder::load(host_device(), config, source, DType::kBF16);
  testing_support::TestExec test;
  const Tensor picture = decoder(test.ex, random_tensor({1, 1, 2, 4}, DType::kF32, 1));
  EXPECT_EQ(picture.shape(), (Shape{1, 8, 16, 3}));
  EXPECT_EQ(picture.dtype(), DType::kBF16);
  const Tensor latents = encoder(test.ex, picture);
  EXPECT_EQ(latents.shape(), (Shape{1, 1, 2, 4}));
  EXPECT_EQ(latents.dtype(), DType::kF32);
  EXPECT_THROW(encoder(test.ex, random_tensor({1, 12, 16, 3}, DType::kF32, 1)), ShapeError);
}

}  // namespace
}  // namespace rocm_sd
