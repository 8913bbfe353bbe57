// VAE and TAESD: sizes, refusals, independence of batch and half. Parity with Diffusers is tested by
// tests/integration_tests/test_models.py.
#include "models/vae.hpp"

#include <gtest/gtest.h>

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
