// Noise generators against values that PyTorch 2.13 and A1111's Philox give; batches, variations.
#include "schedulers/noise.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "base/error.hpp"
#include "schedulers/names.hpp"

namespace rocm_sd {
namespace {

std::vector<float> draw(NoiseSource& source, size_t count) {
  std::vector<float> out(count);
  source.fill(out);
  return out;
}

// FNV-1a over the bytes, for long sequences.
uint64_t fingerprint(const std::vector<float>& values) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const float value : values) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    for (int byte = 0; byte < 4; ++byte) hash = (hash ^ ((bits >> (8 * byte)) & 0xff)) * 0x100000001b3;
  }
  return hash;
}

TEST(TorchCpuNoise, EqualsTorchRandn) {
  const struct {
    uint64_t seed, print;
    float first, last;
  } kWant[] = {{0, 0xdf763936577cac18, -0x1.20370ap+0f, -0x1.14057p+0f},
               {42, 0xa6f589a085841b88, 0x1.ed4a52p+0f, -0x1.2c72a6p-2f},
               {4294967303, 0xac0323b283b0c3d2, -0x1.a3e8acp-1f, -0x1.018bbep-2f}};
  for (const auto& want : kWant) {
    const auto got = draw(*make_noise_source(NoiseKind::kTorchCpu, want.seed), 16384);
    EXPECT_EQ(got.front(), want.first);
    EXPECT_EQ(got.back(), want.last);
    EXPECT_EQ(fingerprint(got), want.print);
  }
}

TEST(TorchCpuNoise, ShortCallsComeInPairs) {
  const auto source = make_noise_source(NoiseKind::kTorchCpu, 7);
  EXPECT_EQ(draw(*source, 3), (std::vector<float>{-0x1.2ca2e8p-3f, 0x1.92811cp-1f, 0x1.e4c5cep-1f}));
  EXPECT_EQ(draw(*source, 2), (std::vector<float>{-0x1.1d45a6p+0f, 0x1.b0d7ap+0f}));
  EXPECT_EQ(draw(*source, 1), (std::vector<float>{-0x1.ca26e2p-1f}));
  EXPECT_TRUE(draw(*source, 0).empty());
}

TEST(TorchCpuNoise, TheSpareOutlivesALongCall) {
  const auto source = make_noise_source(NoiseKind::kTorchCpu, 7);
  std::vector<float> all = draw(*source, 3);
  for (const size_t count : {size_t{17}, size_t{2}}) {
    const auto more = draw(*source, count);
    all.insert(all.end(), more.begin(), more.end());
  }
  EXPECT_EQ(fingerprint(all), 0x6c219167b7754aadu);
}

TEST(PhiloxNoise, EqualsTheKnownSequence) {
  const struct {
    uint64_t seed;
    float first[3], second_call[2];
  } kWant[] = {
      {0, {-0x1.d96d5ap-1f, -0x1.b38d5ep-2f, -0x1.52698ap+1f}, {0x1.7254d8p-3f, -0x1.1ac22ep-1f}},
      {42, {0x1.8d59c4p-3f, 0x1.14a7e6p+1f, -0x1.605c4p-3f}, {0x1.1cf41ep-3f, -0x1.bb40dep-4f}},
      {1099511627779, {-0x1.61eba2p+0f, 0x1.0951bap-1f, 0x1.2b6b38p+0f}, {-0x1.ac167ap+0f, -0x1.c5ff7ap+0f}}};
  for (const auto& want : kWant) {
    const auto source = make_noise_source(NoiseKind::kPhilox, want.seed);
    const auto first = draw(*source, 16384), second = draw(*source, 16384);
    for (int i = 0; i < 3; ++i) EXPECT_FLOAT_EQ(first[i], want.first[i]);
    for (int i = 0; i < 2; ++i) EXPECT_FLOAT_EQ(second[i], want.second_call[i]);
  }
}

TEST(PhiloxNoise, HoldsThePublishedTestVector) {
  // Random123's known answer for counter 0 and key 0: 6627e8d5 e169c58d ...
  const double u = (0x6627e8d5 + 0.5) * 0x1p-32, v = (0xe169c58d + 0.5) * 0x1p-32 * 2 * std::acos(-1.0);
  const auto got = draw(*make_noise_source(NoiseKind::kPhilox, 0), 1);
  EXPECT_NEAR(got[0], std::sqrt(-2 * std::log(u)) * std::sin(v), 1e-6);
}

TEST(PhiloxNoise, AnElementDoesNotDependOnHowManyThereAre) {
  const auto few = draw(*make_noise_source(NoiseKind::kPhilox, 5), 10);
  const auto many = draw(*make_noise_source(NoiseKind::kPhilox, 5), 1000);
  EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()));
}

class EveryKind : public testing::TestWithParam<NoiseKind> {};
INSTANTIATE_TEST_SUITE_P(Noise, EveryKind, testing::Values(NoiseKind::kPhilox, NoiseKind::kTorchCpu));

TEST_P(EveryKind, IsStandardNormal) {
  const auto values = draw(*make_noise_source(GetParam(), 99), 1 << 20);
  double moments[5] = {};
  for (const double v : values)
    for (int k = 1; k <= 4; ++k) moments[k] += std::pow(v, k) / static_cast<double>(values.size());
  // Standard errors of the moments of 2^20 values: sqrt(1, 2, 15, 96) / 1024; five of them.
  EXPECT_NEAR(moments[1], 0, 0.005);
  EXPECT_NEAR(moments[2], 1, 0.007);
  EXPECT_NEAR(moments[3], 0, 0.019);
  EXPECT_NEAR(moments[4], 3, 0.048);
}

TEST_P(EveryKind, AnImageDoesNotDependOnItsBatch) {
  BatchNoise batch(GetParam(), batch_seeds({.seed = 11}, 3), 4, 6, 5);
  EXPECT_EQ(batch.shape(), (Shape{3, 6, 5, 4}));
  for (int call = 0; call < 3; ++call) {
    const auto all = batch.next();
    BatchNoise alone(GetParam(), {{.seed = 12}}, 4, 6, 5);
    std::vector<float> one;
    for (int k = 0; k <= call; ++k) one = alone.next();
    EXPECT_TRUE(std::equal(one.begin(), one.end(), all.begin() + 120));
  }
}

TEST_P(EveryKind, DrawsInTheOrderOfChannelsFirst) {
  const auto flat = draw(*make_noise_source(GetParam(), 3), 2 * 4 * 5);
  const auto image = BatchNoise(GetParam(), {{.seed = 3}}, 2, 4, 5).next();
  for (int c = 0; c < 2; ++c)
    for (int i = 0; i < 20; ++i) EXPECT_EQ(image[i * 2 + c], flat[c * 20 + i]);
}

TEST_P(EveryKind, VariationsGoFromSeedToSeed) {
  const auto first = [&](const ImageSeed& seed) { return BatchNoise(GetParam(), {seed}, 4, 8, 8).next(); };
  const auto a = first({.seed = 1}), b = first({.seed = 2});
  const auto near = [](const std::vector<float>& x, const std::vector<float>& y) {
    for (size_t i = 0; i < x.size(); ++i)
      if (std::fabs(x[i] - y[i]) > 1e-5) return false;
    return true;
  };
  EXPECT_EQ(first({1, 2, 0}), a);
  EXPECT_TRUE(near(first({1, 2, 1}), b));
  const auto half = first({1, 2, 0.5});
  double square = 0;
  for (const double v : half) square += v * v / static_cast<double>(half.size());
  EXPECT_NEAR(square, 1, 0.3);  // on the great circle, not a mean (which would have 0.5)
  // Later noise comes from the seed alone.
  BatchNoise varied(GetParam(), {{1, 2, 0.5}}, 4, 8, 8), plain(GetParam(), {{.seed = 1}}, 4, 8, 8);
  varied.next();
  plain.next();
  EXPECT_EQ(varied.next(), plain.next());
}

TEST(Slerp, EqualsA1111) {
  const auto a = draw(*make_noise_source(NoiseKind::kTorchCpu, 1), 24);
  const auto b = draw(*make_noise_source(NoiseKind::kTorchCpu, 2), 24);
  const auto got = slerp_noise(0.3, a, b, 2, 4, 3);
  EXPECT_NEAR(got[0], -1.3858856, 2e-6);
  EXPECT_NEAR(got[1], -0.23968983, 2e-6);
  EXPECT_NEAR(got[7], -1.922535, 2e-6);
  EXPECT_NEAR(got[23], 2.4116716, 2e-6);
  const auto same = slerp_noise(0.3, a, a, 2, 4, 3);  // parallel: mixed linearly, no 0 / 0
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(same[i], a[i], 1e-6);
  EXPECT_THROW(slerp_noise(0.3, a, b, 2, 4, 4), ShapeError);
}

TEST(BatchSeeds, CountUpOneOfTheTwo) {
  const auto plain = batch_seeds({.seed = ~uint64_t{0}}, 2);
  EXPECT_EQ(plain[1].seed, 0u);  // wraps
  const auto varied = batch_seeds({5, 8, 0.1}, 3);
  EXPECT_EQ(varied[2].seed, 5u);
  EXPECT_EQ(varied[2].variation_seed, 10u);
}

TEST(BatchNoise, RefusesBadInput) {
  EXPECT_THROW(BatchNoise(NoiseKind::kPhilox, {}, 4, 8, 8), UsageError);
  EXPECT_THROW(BatchNoise(NoiseKind::kPhilox, {{1}}, 4, 0, 8), UsageError);
  for (const double bad : {-0.1, 1.1, std::nan("")})
    EXPECT_THROW(BatchNoise(NoiseKind::kPhilox, {{1, 2, bad}}, 4, 8, 8), UsageError);
}

TEST(NoiseKindNames, AreThoseOfA1111AndSdCpp) {
  for (const char* name : {"GPU", "NV", "cuda", "philox"})
    EXPECT_EQ(parse_noise_kind(name), NoiseKind::kPhilox);
  for (const char* name : {"CPU", "cpu", "torch"}) EXPECT_EQ(parse_noise_kind(name), NoiseKind::kTorchCpu);
  EXPECT_THROW(parse_noise_kind("dice"), UsageError);
  EXPECT_EQ(parse_noise_kind(to_string(NoiseKind::kPhilox)), NoiseKind::kPhilox);
  EXPECT_EQ(parse_noise_kind(to_string(NoiseKind::kTorchCpu)), NoiseKind::kTorchCpu);
}

TEST(Names, AreComparedLoosely) {
  EXPECT_EQ(normalized_name("DPM++ 2M_SDE-Heun"), "dpm++2msdeheun");
  const std::vector<std::string> known = {"euler", "heun"};
  try {
    throw_unknown_name("thing", "h\x1b[eun" + std::string(1000, 'x'), known);
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_EQ(std::string(e.what()).find('\x1b'), std::string::npos);
    EXPECT_LT(std::string(e.what()).size(), 200u);
  }
}

}  // namespace
}  // namespace rocm_sd
