// Plain kernels on the emulated GPU against the host: arithmetic, ids, atomics, scratch, jump tables.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "unit_tests/emulator/kernel_test.hpp"

namespace rocm_sd::emu {
namespace {

class BasicKernels : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Builds, BasicKernels, testing::ValuesIn(builds()), build_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BasicKernels);  // builds without AMD targets

Dim3 groups_of(size_t n, uint32_t block) { return {static_cast<uint32_t>((n + block - 1) / block), 1, 1}; }

TEST_P(BasicKernels, VectorAdd) {
  const size_t n = 1003;  // the last wave is partial
  const auto a = random_floats(n, -5, 5, 1), b = random_floats(n, -5, 5, 2);
  struct {
    const float *a, *b;
    float* c;
    int n;
  } p{upload(a), upload(b), poisoned<float>(n), static_cast<int>(n)};
  const Counters counters = launch(load("basic"), "vector_add", {groups_of(n, 256), {256, 1, 1}}, p);
  for (size_t i = 0; i < n; ++i) ASSERT_EQ(p.c[i], a[i] + b[i]) << i;
  EXPECT_EQ(counters.waves, 4 * 256 / (is_cdna() ? 64 : 32));
}

TEST_P(BasicKernels, LaunchIdsInThreeDimensions) {
  const Dim3 grid{3, 4, 5}, block{7, 3, 2};
  const uint32_t groups = 60, threads = 42;
  struct {
    uint32_t* out;
    uint32_t gx, gy, bx, by, bz;
  } p{poisoned<uint32_t>(groups * threads * 6), grid.x, grid.y, block.x, block.y, block.z};
  launch(load("basic"), "launch_ids", {grid, block}, p);
  for (uint32_t g = 0; g < groups; ++g)
    for (uint32_t t = 0; t < threads; ++t) {
      const uint32_t* got = p.out + (g * threads + t) * 6;
      const uint32_t want[6] = {t % 7, t / 7 % 3, t / 21, g % 3, g / 3 % 4, g / 12};
      for (int i = 0; i < 6; ++i)
        ASSERT_EQ(got[i], want[i]) << "group " << g << " thread " << t << " id " << i;
    }
}

TEST_P(BasicKernels, IntegerDivision) {
  auto a = random_integers<int64_t>(500, 3), b = random_integers<int64_t>(500, 4);
  const int64_t edges[] = {1,
                           -1,
                           2,
                           -2,
                           3,
                           10,
                           std::numeric_limits<int64_t>::max(),
                           std::numeric_limits<int64_t>::min() + 1,
                           4294967296,
                           -4294967296,
                           4294967295,
                           65536};
  for (const int64_t x : edges)
    for (const int64_t y : edges) a.push_back(x), b.push_back(y);
  for (int64_t& y : b)
    if (y == 0) y = 7;
  const size_t n = a.size();
  struct {
    const int64_t *a, *b;
    int64_t *quotient, *remainder;
    uint64_t *uquotient, *uremainder;
    int32_t *q32, *r32;
    uint32_t *uq32, *ur32;
    int n;
  } p{upload(a),
      upload(b),
      poisoned<int64_t>(n),
      poisoned<int64_t>(n),
      poisoned<uint64_t>(n),
      poisoned<uint64_t>(n),
      poisoned<int32_t>(n),
      poisoned<int32_t>(n),
      poisoned<uint32_t>(n),
      poisoned<uint32_t>(n),
      static_cast<int>(n)};
  launch(load("basic"), "division", {groups_of(n, 64), {64, 1, 1}}, p);
  for (size_t i = 0; i < n; ++i) {
    ASSERT_EQ(p.quotient[i], a[i] / b[i]) << a[i] << " / " << b[i];
    ASSERT_EQ(p.remainder[i], a[i] % b[i]) << a[i] << " % " << b[i];
    const auto ua = static_cast<uint64_t>(a[i]), ub = static_cast<uint64_t>(b[i]);
    ASSERT_EQ(p.uquotient[i], ua / ub) << ua << " / " << ub;
    ASSERT_EQ(p.uremainder[i], ua % ub) << ua << " % " << ub;
    const auto a32 = static_cast<int32_t>(a[i]),
               b32 = static_cast<int32_t>(b[i]) ? static_cast<int32_t>(b[i]) : 1;
    if (a32 != std::numeric_limits<int32_t>::min() || b32 != -1) {
      ASSERT_EQ(p.q32[i], a32 / b32) << a32 << " / " << b32;
      ASSERT_EQ(p.r32[i], a32 % b32) << a32 << " % " << b32;
    }
    ASSERT_EQ(p.uq32[i], static_cast<uint32_t>(a32) / static_cast<uint32_t>(b32));
    ASSERT_EQ(p.ur32[i], static_cast<uint32_t>(a32) % static_cast<uint32_t>(b32));
  }
}

// Division, square root and fma are correctly rounded; the rest is exact as well.
TEST_P(BasicKernels, Float64) {
  const auto fa = random_floats(300, -1000, 1000, 5), fb = random_floats(300, -50, 50, 6);
  std::vector<double> a(fa.begin(), fa.end()), b(fb.begin(), fb.end());
  for (size_t i = 0; i < a.size(); ++i) a[i] *= 1.000000123, b[i] /= 3;
  const size_t n = a.size();
  struct {
    const double *a, *b;
    double* out;
    int n;
  } p{upload(a), upload(b), poisoned<double>(8 * n), static_cast<int>(n)};
  launch(load("basic"), "float64", {groups_of(n, 64), {64, 1, 1}}, p);
  for (size_t i = 0; i < n; ++i) {
    const double x = a[i], y = b[i];
    const double want[8] = {x / y,
                            std::sqrt(std::fabs(x)),
                            std::fma(x, y, -x),
                            std::fma(std::rint(y), 0.25, std::floor(x)),  // clang contracts for GPUs
                            std::fma(std::fmin(x, y), 3.0, -std::fmax(x, y)),
                            static_cast<double>(static_cast<int>(x * 100.0)) +
                                static_cast<uint32_t>(std::fabs(y)) +
                                static_cast<double>(static_cast<float>(x)),
                            static_cast<double>(static_cast<int64_t>(x * 1e12)),
                            std::ldexp(x, static_cast<int>(i % 40) - 20) + 0x1.23456789abcdep+3};
    for (size_t k = 0; k < 8; ++k) {
      ASSERT_EQ(p.out[k * n + i], want[k]) << "result " << k << " of " << x << ", " << y;
    }
  }
}

TEST_P(BasicKernels, Float32WithEdges) {
  auto a = random_floats(300, -1000, 1000, 7), b = random_floats(300, -50, 50, 8);
  const float inf = std::numeric_limits<float>::infinity();
  const float edges[] = {0.0f,   -0.0f,   1.0f,  -1.5f,  inf,   -inf,   NAN,
                         1e-40f, -1e-45f, 3e38f, 1e-38f, 1e30f, 2e-30f, 0x1.fffffep127f};
  for (const float x : edges)
    for (const float y : edges) a.push_back(x), b.push_back(y);
  const size_t n = a.size();
  struct {
    const float *a, *b;
    float* out;
    int n;
  } p{upload(a), upload(b), poisoned<float>(8 * n), static_cast<int>(n)};
  launch(load("basic"), "float32", {groups_of(n, 64), {64, 1, 1}}, p);
  for (size_t i = 0; i < n; ++i) {
    const float x = a[i], y = b[i];
    const bool convertible = std::fabs(x) < 1e15f && std::fabs(y) < 1e18f;
    const double want[8] = {x / y,
                            std::sqrt(std::fabs(x)),
                            std::fma(x, y, -x),
                            std::fma(std::rint(y), 0.25f, std::floor(x)),  // clang contracts for GPUs
                            std::fma(std::fmin(x, y), 3.0f, -std::fmax(x, y)),
                            convertible ? static_cast<float>(static_cast<int64_t>(x * 1e3f)) +
                                              static_cast<float>(static_cast<uint64_t>(std::fabs(y)))
                                        : 0.0f,
                            std::ldexp(x, static_cast<int>(i % 40) - 20),
                            (x > y ? x : -y) - std::trunc(x) + std::ceil(y)};
    for (size_t k = 0; k < 8; ++k) {
      if (k == 5 && !convertible) continue;
      const double got = p.out[k * n + i];
      if (std::isnan(want[k]) || std::isinf(want[k])) {
        ASSERT_TRUE(std::isnan(want[k]) ? std::isnan(got) : got == want[k])
            << k << " of " << x << ", " << y << " gave " << got;
        continue;
      }
      ASSERT_EQ(got, want[k]) << k << " of " << x << ", " << y;
    }
  }
}

TEST_P(BasicKernels, Bits) {
  auto a = random_integers<uint32_t>(300, 9);
  for (const uint32_t edge : {0u, 1u, 0x80000000u, 0xffffffffu, 0u, 31u, 32u, 63u, 64u, 0x7fffffffu})
    a.push_back(edge);
  const size_t n = a.size();
  struct {
    const uint32_t* a;
    uint32_t* out;
    uint64_t* out64;
    int n;
  } p{upload(a), poisoned<uint32_t>(10 * n), poisoned<uint64_t>(4 * n), static_cast<int>(n)};
  launch(load("basic"), "bits", {groups_of(n, 64), {64, 1, 1}}, p);
  const auto reversed = [](uint32_t x) {
    uint32_t r = 0;
    for (int i = 0; i < 32; ++i) r |= (x >> i & 1) << (31 - i);
    return r;
  };
  for (size_t i = 0; i < n; ++i) {
    const uint32_t x = a[i], y = a[(i + 1) % n], s = y % 32;
    const uint64_t wide = static_cast<uint64_t>(x) << 32 | y;
    const auto sx = static_cast<int32_t>(x), sy = static_cast<int32_t>(y);
    const uint32_t want[10] = {static_cast<uint32_t>(std::popcount(x)) + 7,
                               static_cast<uint32_t>(std::countl_zero(x)),
                               static_cast<uint32_t>(std::countr_zero(x)),
                               reversed(x),
                               (x << s) ^ (y >> (x % 32)) ^ static_cast<uint32_t>(sx >> s),
                               std::rotl(x, static_cast<int>(s)),
                               __builtin_bswap32(x) + (x & 0xff00ff) * 3,
                               static_cast<uint32_t>((static_cast<uint64_t>(x) * y) >> 32) ^
                                   static_cast<uint32_t>((static_cast<int64_t>(sx) * sy) >> 32),
                               (x & y) | (~x & 0x0ff00ff0),
                               static_cast<uint32_t>(static_cast<int32_t>(x << 7) >> 20) + (x >> 5 & 0x1ff) +
                                   static_cast<uint16_t>(x * y) +
                                   static_cast<uint32_t>(static_cast<int8_t>(y))};
    const uint64_t want64[4] = {wide << (x % 64), wide >> (x % 64),
                                static_cast<uint64_t>(static_cast<int64_t>(wide) >> (y % 64)),
                                wide * 0x9e3779b97f4a7c15ull + static_cast<uint64_t>(std::popcount(wide)) +
                                    static_cast<uint64_t>(std::countl_zero(wide))};
    for (size_t k = 0; k < 10; ++k) ASSERT_EQ(p.out[k * n + i], want[k]) << k << " of " << x << ", " << y;
    for (size_t k = 0; k < 4; ++k) ASSERT_EQ(p.out64[k * n + i], want64[k]) << k << " of " << x << ", " << y;
  }
}

TEST_P(BasicKernels, HistogramByAtomics) {
  const auto values = random_integers<uint32_t>(5000, 10);
  struct {
    const uint32_t* values;
    uint32_t *counts, *extremes;
    float* sum;
    uint64_t* sum64;
    int n;
  } p{upload(values),
      upload(std::vector<uint32_t>(64, 0)),
      upload(std::vector<uint32_t>{0xffffffff, 0, 0, 0}),
      upload(std::vector<float>{0}),
      upload(std::vector<uint64_t>{0}),
      5000};
  launch(load("basic"), "histogram", {{4, 1, 1}, {256, 1, 1}}, p);
  uint32_t counts[64] = {}, least = 0xffffffff, most = 0, any = 0, parity = 0;
  uint64_t sum64 = 0;
  float sum = 0;
  for (const uint32_t v : values) {
    ++counts[v % 64];
    least = std::min(least, v), most = std::max(most, v), any |= v, parity ^= v;
    sum += static_cast<float>(v % 16), sum64 += static_cast<uint64_t>(v) << 20;
  }
  for (int i = 0; i < 64; ++i) EXPECT_EQ(p.counts[i], counts[i]) << i;
  EXPECT_EQ(p.extremes[0], least);
  EXPECT_EQ(p.extremes[1], most);
  EXPECT_EQ(p.extremes[2], any);
  EXPECT_EQ(p.extremes[3], parity);
  EXPECT_EQ(*p.sum, sum);  // integers below 2^24
  EXPECT_EQ(*p.sum64, sum64);
}

TEST_P(BasicKernels, SortInScratch) {
  const size_t n = 150;
  const auto in = random_integers<int32_t>(n * 24, 11);
  struct {
    const int32_t* in;
    int32_t* out;
    int n;
  } p{upload(in), poisoned<int32_t>(n * 24), static_cast<int>(n)};
  launch(load("basic"), "scratch_sort", {groups_of(n, 64), {64, 1, 1}}, p);
  for (size_t i = 0; i < n; ++i) {
    std::vector<int32_t> keys(in.begin() + static_cast<long>(i) * 24,
                              in.begin() + static_cast<long>(i + 1) * 24);
    std::sort(keys.begin(), keys.end());
    for (size_t k = 0; k < 24; ++k) ASSERT_EQ(p.out[i * 24 + k], keys[(k * 7 + i) % 24]) << i << " " << k;
  }
}

TEST_P(BasicKernels, JumpTableAndConstants) {
  const auto in = random_integers<uint32_t>(500, 12);
  struct {
    const uint32_t* in;
    uint32_t* out;
    int n;
  } p{upload(in), poisoned<uint32_t>(in.size()), static_cast<int>(in.size())};
  launch(load("basic"), "jump_table", {groups_of(in.size(), 64), {64, 1, 1}}, p);
  const uint32_t table[16] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};
  const auto deep = [](uint32_t v, uint32_t depth) { return depth ? v * 3 + depth : v; };
  for (size_t i = 0; i < in.size(); ++i) {
    const uint32_t v = in[i];
    uint32_t r = table[v % 16];
    switch (v % 9) {
      case 0: r = r * 7 + v; break;
      case 1: r ^= v << 3; break;
      case 2: r = v / (r + 1); break;
      case 3: r = deep(v, r); break;
      case 4: r -= v; break;
      case 5: r = ~v; break;
      case 6: r = deep(r, v); break;
      case 7: r = (v >> 3) * r; break;
      default: r += 100;
    }
    ASSERT_EQ(p.out[i], r) << v;
  }
}

TEST_P(BasicKernels, SmallIntegers) {
  const auto a = random_integers<int16_t>(400, 13), b = random_integers<int16_t>(400, 14);
  const size_t n = a.size();
  struct {
    const int16_t *a, *b;
    int16_t* out;
    int8_t* bytes;
    int n;
  } p{upload(a), upload(b), poisoned<int16_t>(6 * n), poisoned<int8_t>(n), static_cast<int>(n)};
  launch(load("basic"), "small_integers", {groups_of(n, 64), {64, 1, 1}}, p);
  for (size_t i = 0; i < n; ++i) {
    const int x = a[i], y = b[i];
    const auto ux = static_cast<uint16_t>(x), uy = static_cast<uint16_t>(y);
    const int want[6] = {x + y,
                         x * y - (x >> 3),
                         std::max(x, y),
                         ux < uy ? x * 4 : uy >> 1,
                         std::clamp(x + y, -32768, 32767),
                         std::max(0, static_cast<int>(ux) - uy)};
    for (size_t k = 0; k < 6; ++k)
      ASSERT_EQ(p.out[k * n + i], static_cast<int16_t>(want[k])) << k << " of " << x << ", " << y;
    ASSERT_EQ(p.bytes[i], static_cast<int8_t>(x ^ y >> 4));
  }
}

}  // namespace
}  // namespace rocm_sd::emu
