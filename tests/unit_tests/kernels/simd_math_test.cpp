// The vector functions of simd_math.hpp against double, compiled here for the baseline instruction set.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#define ROCM_SD_ISA isa_of_simd_math_test
#include "kernels/simd_math.hpp"

namespace rocm_sd::ROCM_SD_ISA {
namespace {

// Floats of both signs from 2^-40 to `largest`, and neighbours of whole numbers and halves.
std::vector<float> arguments(double largest) {
  std::vector<float> out;
  for (double x = std::ldexp(1, -40); x < largest; x *= 1.0007) out.push_back(static_cast<float>(x));
  for (double x = 0; x < std::min(largest, 130.0); x += 0.5)
    for (const double near : {-1e-6, 0.0, 1e-6}) out.push_back(static_cast<float>(x + near));
  const size_t count = out.size();
  for (size_t i = 0; i < count; ++i) out.push_back(-out[i]);
  while (out.size() % kLanes) out.push_back(0);
  return out;
}

using Bound = std::function<double(double x, double want)>;

void expect_near(Vec (*function)(Vec), double (*exact)(double), const std::vector<float>& xs,
                 const Bound& bound) {
  for (size_t i = 0; i < xs.size(); i += kLanes) {
    float got[kLanes];
    store(got, function(load(xs.data() + i)));
    for (int j = 0; j < kLanes; ++j) {
      const double x = xs[i + j], want = exact(x);
      if (std::isinf(static_cast<float>(want)))
        ASSERT_EQ(got[j], static_cast<float>(want)) << x;
      else
        ASSERT_NEAR(got[j], want, bound(x, want)) << x;
    }
  }
}

// Units in the last place of a result, as a distance; a step of the subnormal numbers at least.
Bound units(double count) {
  return [count](double, double want) {
    const double unit = std::ldexp(1, std::max(std::ilogb(want == 0 ? 1e-300 : want), -126) - 23);
    return count * unit;
  };
}
double exact_gelu(double x) { return x / 2 * std::erfc(-x * std::sqrt(0.5)); }

TEST(SimdMath, IsAsNearAsItsCommentsSay) {
  const std::vector<float> xs = arguments(200);
  std::vector<float> negative;
  for (const float x : xs) negative.push_back(-std::fabs(x));
  expect_near(exp, [](double x) { return std::exp(x); }, xs, units(2));
  expect_near(tanh, [](double x) { return std::tanh(x); }, xs, units(3));
  const auto exp2_bound = [](double relative) {
    return [relative](double, double want) { return relative * want + std::ldexp(1, -126); };
  };
  const auto exact_exp2 = [](double x) { return x <= -127 ? 0 : std::exp2(x); };
  expect_near(exp2_nonpositive, exact_exp2, negative, exp2_bound(2e-7));
  expect_near(exp2_nonpositive_coarse, exact_exp2, negative, exp2_bound(1.2e-4));
  expect_near(
      silu_coarse, [](double x) { return x / (1 + std::exp(-x)); }, xs,
      [](double, double want) { return 2e-4 * std::fabs(want) + 1e-35; });
  expect_near(gelu, exact_gelu, xs, [](double x, double) { return 3e-7 * (std::fabs(x) + 1); });
}

TEST(SimdMath, KeepsWhatIsNoNumber) {
  const Vec nan = splat(std::numeric_limits<float>::quiet_NaN());
  for (const auto function : {exp, tanh, gelu, silu, silu_coarse}) EXPECT_TRUE(std::isnan(function(nan)[0]));
}

}  // namespace
}  // namespace rocm_sd::ROCM_SD_ISA
