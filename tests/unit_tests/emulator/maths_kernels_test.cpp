// Functions of ROCm's device library and half precision on the emulated GPU, against the host in double.
#include <cmath>

#include "base/dtype.hpp"
#include "unit_tests/emulator/kernel_test.hpp"

namespace rocm_sd::emu {
namespace {

class MathsKernels : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Builds, MathsKernels, testing::ValuesIn(builds()), build_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MathsKernels);  // builds without AMD targets

// OpenCL's bounds for the functions, in units of the last place, and four times that for doubles of the
// library.
TEST_P(MathsKernels, DeviceLibrary) {
  const size_t n = 512;
  const auto a = random_floats(n, -12, 12, 1), b = random_floats(n, 0.001f, 60, 2);
  struct {
    const float *a, *b;
    float* out;
    double* wide;
    int n;
  } p{upload(a), upload(b), poisoned<float>(12 * n), poisoned<double>(4 * n), static_cast<int>(n)};
  launch(load("maths"), "functions", {{n / 64, 1, 1}, {64, 1, 1}}, p);
  const char* names[12] = {"sin", "cos",  "tan", "exp",  "exp2",  "log",
                           "pow", "tanh", "erf", "cbrt", "atan2", "rsqrt"};
  const double ulps[12] = {4, 4, 5, 3, 3, 3, 16, 5, 16, 2, 6, 2};
  for (size_t i = 0; i < n; ++i) {
    const double x = a[i], y = b[i];
    const double want[12] = {std::sin(x),      std::cos(static_cast<double>(a[i] * 1000.0f)),
                             std::tan(x),      std::exp(x),
                             std::exp2(x),     std::log(y),
                             std::pow(y, x),   std::tanh(x),
                             std::erf(x),      std::cbrt(x),
                             std::atan2(x, y), 1 / std::sqrt(y)};
    for (size_t k = 0; k < 12; ++k) {
      const double got = p.out[k * n + i];
      const double ulp = std::ldexp(1.0, std::max(std::ilogb(want[k]), -126) - 23);
      ASSERT_NEAR(got, want[k], ulps[k] * ulp) << names[k] << " of " << x << ", " << y;
    }
    const double wide[4] = {std::exp(x), std::log(y), std::sin(x * 100.0), std::erf(x)};
    for (size_t k = 0; k < 4; ++k)
      ASSERT_NEAR(p.wide[k * n + i], wide[k], 16 * std::ldexp(1.0, std::ilogb(wide[k]) - 52))
          << k << " of " << x << ", " << y;
  }
}

// Each operation rounds once to f16; the compiler may contract a product and a sum.
TEST_P(MathsKernels, HalfPrecision) {
  std::vector<uint16_t> a, b, c;
  const auto fa = random_floats(512, -40, 40, 3), fb = random_floats(512, -3, 3, 4),
             fc = random_floats(512, -900, 900, 5);
  for (size_t i = 0; i < fa.size(); ++i) {
    a.push_back(float_to_f16(fa[i])), b.push_back(float_to_f16(fb[i])), c.push_back(float_to_f16(fc[i]));
    if (i % 16 == 3) a.back() = static_cast<uint16_t>(i), b.back() = 0x3c00;  // denormals stay
  }
  const size_t n = a.size();
  struct {
    const uint16_t *a, *b, *c;
    uint16_t* out;
    float* sums;
    int n;
  } p{upload(a), upload(b), upload(c), poisoned<uint16_t>(8 * n), poisoned<float>(n), static_cast<int>(n)};
  launch(load("maths"), "halves", {{static_cast<uint32_t>(n / 128), 1, 1}, {64, 1, 1}}, p);
  const auto exact = [](double v) { return f16_to_float(float_to_f16(static_cast<float>(v))); };
  for (size_t i = 0; i < n; i += 2)
    for (size_t j = 0; j < 2; ++j) {
      const double x = f16_to_float(a[i + j]), y = f16_to_float(b[i + j]), z = f16_to_float(c[i + j]);
      const double x0 = f16_to_float(a[i]), x1 = f16_to_float(a[i + 1]), y0 = f16_to_float(b[i]),
                   y1 = f16_to_float(b[i + 1]);
      const auto got = [&](size_t k) { return f16_to_float(p.out[k * n + i + j]); };
      ASSERT_EQ(got(0), exact(x + y)) << x << " + " << y;
      ASSERT_EQ(got(1), exact(x * y)) << x << " * " << y;
      ASSERT_NEAR(got(2), x * y + z, std::ldexp(1.0, std::max(std::ilogb(x * y + z), -14) - 11))
          << x << " " << y << " " << z;
      ASSERT_EQ(got(3), std::max(x, std::min(y, z)));
      ASSERT_EQ(got(4), j == 0 ? exact(x * 0.5) : exact(y + 1));
      ASSERT_EQ(got(5), j == 0 ? exact(x0 - y1) : exact(-x1 * y0));
      const double want6 = j == 0 ? std::fabs(x) : x1 / (y1 * y1 + 1);
      ASSERT_NEAR(got(6), want6, std::fabs(want6) * 0x1p-8 + 0x1p-12) << x << " " << y1;
      ASSERT_EQ(got(7), j == 0 ? std::trunc(x) : static_cast<double>(i & 1023));
      ASSERT_NEAR(p.sums[i + j], j == 0 ? x * y + z : x * y - z,
                  std::fabs(x * y) * 0x1p-22 + std::fabs(z) * 0x1p-22);
    }
}

}  // namespace
}  // namespace rocm_sd::emu
