// WMMA and MFMA on the emulated GPU: single tiles exactly on integers, then a GEMM and attention.
#include <cmath>

#include "base/dtype.hpp"
#include "unit_tests/emulator/kernel_test.hpp"

namespace rocm_sd::emu {
namespace {

class MatrixKernels : public KernelTest {
 protected:
  // Small integers, which every format holds exactly.
  template <class T, class Convert>
  std::vector<T> small(size_t count, uint32_t seed, Convert convert) {
    std::mt19937 engine(seed);
    std::vector<T> out(count);
    for (T& v : out) v = convert(static_cast<float>(static_cast<int>(engine() % 15) - 7));
    return out;
  }
  uint32_t wave() const { return is_cdna() ? 64 : 32; }
};
INSTANTIATE_TEST_SUITE_P(Builds, MatrixKernels, testing::ValuesIn(builds()), build_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MatrixKernels);  // builds without AMD targets

// sum over k of a[m][k] b[k][n], by a function that reads an element.
template <class A, class B>
double dot(const A& a, const B& b, size_t m, size_t n, size_t depth, size_t cols) {
  double sum = 0;
  for (size_t k = 0; k < depth; ++k) sum += a(m * depth + k) * b(k * cols + n);
  return sum;
}

TEST_P(MatrixKernels, TileOfF16) {
  const auto a = small<uint16_t>(256, 1, float_to_f16), b = small<uint16_t>(256, 2, float_to_f16);
  const auto c = small<float>(256, 3, [](float v) { return v; });
  struct {
    const uint16_t *a, *b;
    const float* c;
    float* d;
  } p{upload(a), upload(b), upload(c), poisoned<float>(256)};
  launch(load("matrix"), "tile_f16", {{1, 1, 1}, {wave(), 1, 1}}, p);
  for (size_t m = 0; m < 16; ++m)
    for (size_t n = 0; n < 16; ++n)
      ASSERT_EQ(p.d[m * 16 + n],
                c[m * 16 + n] + dot([&](size_t i) { return f16_to_float(a[i]); },
                                    [&](size_t i) { return f16_to_float(b[i]); }, m, n, 16, 16))
          << m << " " << n;
}

TEST_P(MatrixKernels, TileOfBf16WithConstantZero) {
  const auto a = small<uint16_t>(256, 4, float_to_bf16), b = small<uint16_t>(256, 5, float_to_bf16);
  struct {
    const uint16_t *a, *b;
    float* d;
  } p{upload(a), upload(b), poisoned<float>(256)};
  launch(load("matrix"), "tile_bf16", {{1, 1, 1}, {wave(), 1, 1}}, p);
  for (size_t m = 0; m < 16; ++m)
    for (size_t n = 0; n < 16; ++n)
      ASSERT_EQ(p.d[m * 16 + n], dot([&](size_t i) { return bf16_to_float(a[i]); },
                                     [&](size_t i) { return bf16_to_float(b[i]); }, m, n, 16, 16))
          << m << " " << n;
}

TEST_P(MatrixKernels, TileOfI8) {
  const size_t depth = GetParam().target == "gfx942" ? 32 : 16;
  const auto a = random_integers<int8_t>(16 * depth, 6), b = random_integers<int8_t>(16 * depth, 7);
  struct {
    const int8_t *a, *b;
    int32_t* d;
  } p{upload(a), upload(b), poisoned<int32_t>(256)};
  launch(load("matrix"), "tile_i8", {{1, 1, 1}, {wave(), 1, 1}}, p);
  for (size_t m = 0; m < 16; ++m)
    for (size_t n = 0; n < 16; ++n)
      ASSERT_EQ(p.d[m * 16 + n],
                dot([&](size_t i) { return a[i]; }, [&](size_t i) { return b[i]; }, m, n, depth, 16))
          << m << " " << n;
}

TEST_P(MatrixKernels, LargeTilesOfCdna) {
  if (!is_cdna()) GTEST_SKIP() << "32 x 32 tiles are CDNA's";
  const auto a = small<uint16_t>(256, 8, float_to_f16), b = small<uint16_t>(256, 9, float_to_f16);
  const auto fa = small<float>(64, 10, [](float v) { return v * 0.75f; }),
             fb = small<float>(64, 11, [](float v) { return v + 0.5f; });
  const auto da = small<double>(64, 12, [](float v) { return v * 1.25; }),
             db = small<double>(64, 13, [](float v) { return v - 0.125; });
  struct {
    const uint16_t *a, *b;
    const float *fa, *fb;
    const double *da, *db;
    float *d, *f;
    double* e;
  } p{upload(a),
      upload(b),
      upload(fa),
      upload(fb),
      upload(da),
      upload(db),
      poisoned<float>(1024),
      poisoned<float>(1024),
      poisoned<double>(256)};
  launch(load("matrix"), "tile_large", {{1, 1, 1}, {64, 1, 1}}, p);
  for (size_t m = 0; m < 32; ++m)
    for (size_t n = 0; n < 32; ++n) {
      ASSERT_EQ(p.d[m * 32 + n], dot([&](size_t i) { return f16_to_float(a[i]); },
                                     [&](size_t i) { return f16_to_float(b[i]); }, m, n, 8, 32));
      ASSERT_EQ(p.f[m * 32 + n],
                dot([&](size_t i) { return fa[i]; }, [&](size_t i) { return fb[i]; }, m, n, 2, 32));
      if (m < 16 && n < 16) {
        ASSERT_EQ(p.e[m * 16 + n],
                  dot([&](size_t i) { return da[i]; }, [&](size_t i) { return db[i]; }, m, n, 4, 16));
      }
    }
}

TEST_P(MatrixKernels, GemmThroughLds) {
  const size_t m = 128, n = 64, k = 96;
  std::vector<uint16_t> a, b;
  for (const float v : random_floats(m * k, -1, 1, 14)) a.push_back(float_to_f16(v));
  for (const float v : random_floats(k * n, -1, 1, 15)) b.push_back(float_to_f16(v));
  struct {
    const uint16_t *a, *b;
    float* c;
    int m, n, k;
  } p{upload(a),           upload(b),           poisoned<float>(m * n),
      static_cast<int>(m), static_cast<int>(n), static_cast<int>(k)};
  launch(load("matrix"), "gemm", {{n / 64, m / 64, 1}, {128, 1, 1}}, p);
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j) {
      const double want = dot([&](size_t e) { return f16_to_float(a[e]); },
                              [&](size_t e) { return f16_to_float(b[e]); }, i, j, k, n);
      // Products are exact; k sums of at most k in float.
      ASSERT_NEAR(p.c[i * n + j], want, static_cast<double>(k * k) * 0x1p-24) << i << " " << j;
    }
}

TEST_P(MatrixKernels, Attention) {
  const size_t heads = 2, tokens = 48, dim = 64;
  std::vector<uint16_t> x[3];
  for (uint32_t i = 0; i < 3; ++i)
    for (const float v : random_floats(heads * tokens * dim, -2, 2, 16 + i)) x[i].push_back(float_to_f16(v));
  struct {
    const uint16_t *q, *k, *v;
    float* o;
    int tokens;
    float scale;
  } p{upload(x[0]), upload(x[1]), upload(x[2]), poisoned<float>(x[0].size()), static_cast<int>(tokens),
      0.125f};
  launch(load("matrix"), "attention", {{tokens / 16, heads, 1}, {wave(), 1, 1}}, p);
  const auto at = [&](int i, size_t h, size_t t, size_t d) {
    return static_cast<double>(f16_to_float(x[i][(h * tokens + t) * dim + d]));
  };
  for (size_t h = 0; h < heads; ++h)
    for (size_t q = 0; q < tokens; ++q) {
      std::vector<double> weight(tokens);
      double total = 0;
      for (size_t k = 0; k < tokens; ++k) {
        double s = 0;
        for (size_t d = 0; d < dim; ++d) s += at(0, h, q, d) * at(1, h, k, d);
        total += weight[k] = std::exp(s * 0.125);
      }
      for (size_t d = 0; d < dim; ++d) {
        double want = 0;
        for (size_t k = 0; k < tokens; ++k) want += weight[k] / total * at(2, h, k, d);
        // Weights are rounded to f16: relative 2^-11 of a mean of values within 2.
        ASSERT_NEAR(p.o[(h * tokens + q) * dim + d], want, 2 * 0x1p-11 + 1e-4) << h << " " << q << " " << d;
      }
    }
}

}  // namespace
}  // namespace rocm_sd::emu
