// The Brownian path: torchsde's values, additivity, refinement, independence of the order of questions.
#include "schedulers/brownian.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

BrownianNoise make_path(uint64_t seed = 3, NoiseKind kind = NoiseKind::kTorchCpu) {
  return BrownianNoise(kind, {seed}, {1, 4, 4, 1}, 0.5, 14.5);
}

// W(b) - W(a), undoing the normalisation.
std::vector<double> increment(BrownianNoise& path, double a, double b) {
  std::vector<double> out;
  for (const float v : path.between(a, b)) out.push_back(v * std::sqrt(std::fabs(a - b)));
  return out;
}

TEST(Brownian, EqualsTorchsde) {
  const struct {
    double a, b;
    float want[3];
  } kWant[] = {{14.5, 7.5, {0x1.c228ecp-2f, 0x1.8bf1ccp+1f, -0x1.04e704p-1f}},
               {7.5, 2.25, {-0x1.7d2bfap-1f, -0x1.d59a94p-3f, 0x1.36512cp+0f}},
               {2.25, 0.5, {-0x1.fb3462p-1f, -0x1.df07eap-3f, 0x1.f87666p-1f}}};
  auto path = make_path();
  for (const auto& want : kWant) {
    const auto got = path.between(want.a, want.b);
    for (int i = 0; i < 3; ++i) EXPECT_FLOAT_EQ(got[i], want.want[i]);
  }
}

TEST(Brownian, IncrementsAddUpWhateverTheSteps) {
  for (const NoiseKind kind : {NoiseKind::kTorchCpu, NoiseKind::kPhilox}) {
    auto path = make_path(8, kind);
    const auto whole = increment(path, 14.5, 0.5);
    for (const int steps : {2, 3, 7, 50}) {
      std::vector<double> sum(whole.size(), 0.0);
      for (int i = 0; i < steps; ++i) {
        const auto part = increment(path, 14.5 - 14.0 * i / steps, 14.5 - 14.0 * (i + 1) / steps);
        for (size_t k = 0; k < sum.size(); ++k) sum[k] += part[k];
      }
      // Ends are rounded to six places: the path moves sqrt(1e-6) between neighbouring ones, at each joint.
      for (size_t k = 0; k < sum.size(); ++k) EXPECT_NEAR(sum[k], whole[k], 5e-3);
    }
  }
}

TEST(Brownian, DoesNotDependOnWhatWasAskedBefore) {
  auto fresh = make_path(), used = make_path();
  std::mt19937 random(1);
  std::uniform_real_distribution<double> sigma(0.5, 14.5);
  for (int i = 0; i < 100; ++i) {
    const double a = sigma(random), b = sigma(random);
    const auto later = used.between(a, b);
    EXPECT_EQ(make_path().between(a, b), later);
  }
  EXPECT_EQ(fresh.between(3, 2), used.between(3, 2));
}

TEST(Brownian, IsNormalAndChangesSignWithDirection) {
  BrownianNoise path(NoiseKind::kPhilox, {1, 2}, {2, 64, 64, 4}, 0.03, 14.6);
  for (const auto& [a, b] : {std::pair(14.6, 0.03), {5.0, 4.9}, {0.05, 0.03}}) {
    const auto values = path.between(a, b), reversed = path.between(b, a);
    double mean = 0, square = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(values[i], -reversed[i]);
      mean += values[i] / static_cast<double>(values.size());
      square += values[i] * values[i] / static_cast<double>(values.size());
    }
    EXPECT_NEAR(mean, 0, 0.03);    // 32,768 values: five standard errors
    EXPECT_NEAR(square, 1, 0.04);  // likewise
  }
}

TEST(Brownian, EveryImageHasAPathOfItsOwn) {
  BrownianNoise both(NoiseKind::kTorchCpu, {3, 4}, {2, 4, 4, 1}, 0.5, 14.5);
  auto first = make_path(3), second = make_path(4);
  const auto all = both.between(9, 2);
  const auto a = first.between(9, 2), b = second.between(9, 2);
  EXPECT_TRUE(std::equal(a.begin(), a.end(), all.begin()));
  EXPECT_TRUE(std::equal(b.begin(), b.end(), all.begin() + 16));
}

TEST(Brownian, RefusesBadRanges) {
  for (const auto& [low, high] : {std::pair(1.0, 1.0), {2.0, 1.0}, {-1.0, 1.0}, {0.0, INFINITY}, {NAN, 1.0}})
    EXPECT_THROW(BrownianNoise(NoiseKind::kPhilox, {1}, {1, 2, 2, 1}, low, high), UsageError);
  EXPECT_THROW(BrownianNoise(NoiseKind::kPhilox, {1, 2}, {1, 2, 2, 1}, 0, 1), ShapeError);
}

}  // namespace
}  // namespace rocm_sd
