// GELU as the kernels compute it for results of 16 bits: within the errors that its head states.
#include "composable_kernels/fused/epilogue.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "composable_kernels/arch/scalar.hpp"

namespace rocm_sd {
namespace {

double exact(double v) { return 0.5 * v * std::erfc(-v / std::numbers::sqrt2); }

template <class T>
double relative_error(float v) {
  return std::abs(gelu<Scalar, T>(v) / exact(v) - 1);
}

TEST(ShortGelu, IsWithinItsError) {
  constexpr int kSteps = 100'000;
  for (int i = 1; i <= kSteps; ++i) {
    const float v = 30.0f * static_cast<float>(i) / kSteps;
    ASSERT_LT(relative_error<Half>(v), 4e-6) << v;
    if (v <= 6) ASSERT_LT(relative_error<Bf16>(-v), v <= 4 ? 6e-6 : 1.1e-4) << -v;
    ASSERT_LT(std::abs(gelu<Scalar, Half>(-v) - exact(-v)), 4e-6 * v) << -v;
  }
  EXPECT_EQ((gelu<Scalar, Half>(0.0f)), 0.0f);
}

TEST(ShortGelu, FarFromZeroIsTheValueOrNothing) {
  for (const float v : {50.0f, 1e4f, 1e20f, std::numeric_limits<float>::max()}) {
    EXPECT_EQ((gelu<Scalar, Half>(v)), v);
    EXPECT_EQ(std::abs(gelu<Scalar, Half>(-v)), 0.0f) << -v;
  }
  for (const float v : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    EXPECT_FALSE(std::isfinite(gelu<Scalar, Half>(v)))
        << "what is not finite has to stay so: the engine looks for it";
}

TEST(ShortGelu, FloatsKeepTheirPrecision) {
  for (float v = -5; v <= 5; v += 0.01f)
    if (v != 0) ASSERT_LT(relative_error<float>(v), 2e-6) << v;
}

}  // namespace
}  // namespace rocm_sd
