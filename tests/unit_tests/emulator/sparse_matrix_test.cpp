// Sparse matrix instructions and those with changed lanes and blocks, against the fragment maps of AMD's
// matrix instruction calculator: integers, which every order of summation gives exactly.
#include <cmath>
#include <limits>

#include "base/dtype.hpp"
#include "unit_tests/emulator/kernel_test.hpp"

namespace rocm_sd::emu {
namespace {

struct In {
  uint32_t operand[16], sum[16];  // v[4:19], v[20:35]
};
struct Out {
  uint32_t sum[16];
};
template <class T>
T as(uint32_t bits) {
  return __builtin_bit_cast(T, bits);
}

std::vector<Build> assembled(const std::vector<std::string>& targets) {
  std::vector<Build> out;
  for (const Build& b : builds())
    if (b.level == "O1" && std::find(targets.begin(), targets.end(), b.target) != targets.end())
      out.push_back({b.target, "s"});
  return out;
}

class SparseMatrix : public KernelTest {
 protected:
  // Every operand is random; sums are small floats unless a test changes them.
  std::vector<In> random_inputs(int lanes, uint32_t seed) {
    std::mt19937 engine(seed);
    std::vector<In> in(static_cast<size_t>(lanes));
    for (In& lane : in) {
      for (uint32_t& v : lane.operand) v = static_cast<uint32_t>(engine());
      for (uint32_t& v : lane.sum) v = __builtin_bit_cast(uint32_t, static_cast<float>(engine() % 9) - 4);
    }
    return in;
  }
  // 16-bit floats with integer values in dwords [first, last).
  void make_halves(std::vector<In>& in, int first, int last) {
    for (In& lane : in)
      for (int d = first; d < last; ++d) {
        const uint32_t low = float_to_f16(static_cast<float>(lane.operand[d] % 9) - 4);
        const uint32_t high = float_to_f16(static_cast<float>(lane.operand[d] / 16 % 9) - 4);
        lane.operand[d] = low | high << 16;
      }
  }
  std::vector<Out> run(const char* kernel, const std::vector<In>& in) {
    struct {
      const In* in;
      Out* out;
    } p{upload(in), poisoned<Out>(in.size())};
    launch(load("sparse"), kernel, {{1, 1, 1}, {static_cast<uint32_t>(in.size()), 1, 1}}, p);
    return {p.out, p.out + in.size()};
  }
  static float half(const In& lane, int first, int i) {
    return f16_to_float(static_cast<uint16_t>(lane.operand[first + i / 2] >> (16 * (i % 2))));
  }
  static int small(const In& lane, int first, int i, int bits, bool is_signed) {
    const int per = 32 / bits;
    const auto v = static_cast<int>(lane.operand[first + i / per] >> (bits * (i % per)) & ((1u << bits) - 1));
    return is_signed && v >> (bits - 1) ? v - (1 << bits) : v;
  }
  // Which of four elements element i of a lane's A is; `shift` into dword 12 (v16).
  static int pick(const In& lane, int shift, int i) { return lane.operand[12] >> (shift + 2 * i) & 3; }

  // Sum over the groups of lanes that hold parts of k: a(lane, i) b(lane, j), i counting what A has kept.
  template <class A, class B>
  static double sparse_dot(const std::vector<In>& in, int m, int n, int size, int kept, int shift, A a, B b) {
    double sum = 0;
    for (size_t group = 0; group < in.size() / static_cast<size_t>(size); ++group) {
      const In &row = in[group * static_cast<size_t>(size) + static_cast<size_t>(m)],
               &col = in[group * static_cast<size_t>(size) + static_cast<size_t>(n)];
      for (int i = 0; i < kept; ++i) sum += a(row, i) * b(col, i / 2 * 4 + pick(row, shift, i));
    }
    return sum;
  }
};

class Rdna4Sparse : public SparseMatrix {};
INSTANTIATE_TEST_SUITE_P(Builds, Rdna4Sparse, testing::ValuesIn(assembled({"gfx1200", "gfx1201"})),
                         build_name);
class CdnaMatrix : public SparseMatrix {};
INSTANTIATE_TEST_SUITE_P(Builds, CdnaMatrix, testing::ValuesIn(assembled({"gfx90a", "gfx942"})), build_name);
class Cdna3Sparse : public SparseMatrix {};
INSTANTIATE_TEST_SUITE_P(Builds, Cdna3Sparse, testing::ValuesIn(assembled({"gfx942"})), build_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Rdna4Sparse);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CdnaMatrix);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Cdna3Sparse);

TEST_P(Rdna4Sparse, FloatsWithBothKeys) {
  for (const bool key : {false, true}) {
    auto in = random_inputs(32, key ? 2 : 1);
    make_halves(in, 0, 12);
    const auto out = run(key ? "swmmac_f16_key" : "swmmac_f16", in);
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 8; ++i) {
        const int m = i + 8 * (lane / 16), n = lane % 16;
        const double want = sparse_dot(
            in, m, n, 16, 8, key ? 16 : 0, [](const In& l, int e) { return half(l, 0, e); },
            [](const In& l, int e) { return half(l, 4, e); });
        ASSERT_EQ(as<float>(out[static_cast<size_t>(lane)].sum[i]),
                  as<float>(in[static_cast<size_t>(lane)].sum[i]) + want)
            << lane << " " << i;
      }
  }
}

TEST_P(Rdna4Sparse, SumsInHalves) {
  auto in = random_inputs(32, 3);
  make_halves(in, 0, 12);
  for (In& lane : in)
    for (uint32_t& v : lane.sum) v = float_to_f16(2) | static_cast<uint32_t>(float_to_f16(-3)) << 16;
  const auto out = run("swmmac_half_sum", in);
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 8; ++i) {
      const double want = sparse_dot(
          in, i + 8 * (lane / 16), lane % 16, 16, 8, 16, [](const In& l, int e) { return half(l, 0, e); },
          [](const In& l, int e) { return half(l, 4, e); });
      const uint32_t bits = out[static_cast<size_t>(lane)].sum[i / 2] >> (16 * (i % 2));
      ASSERT_EQ(f16_to_float(static_cast<uint16_t>(bits)), want + (i % 2 ? -3 : 2)) << lane << " " << i;
    }
}

TEST_P(Rdna4Sparse, IntegersBySign) {
  auto in = random_inputs(32, 4);
  for (In& lane : in)
    for (uint32_t& v : lane.sum) v = 0x7fffff00;  // near the end of the range
  const auto bytes = run("swmmac_iu8", in), nibbles = run("swmmac_iu4", in);
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 8; ++i) {
      const int m = i + 8 * (lane / 16), n = lane % 16;
      const double eight = sparse_dot(
          in, m, n, 16, 8, 16, [](const In& l, int e) { return small(l, 0, e, 8, true); },
          [](const In& l, int e) { return small(l, 4, e, 8, false); });
      const double four = sparse_dot(
          in, m, n, 16, 16, 0, [](const In& l, int e) { return small(l, 0, e, 4, false); },
          [](const In& l, int e) { return small(l, 4, e, 4, true); });
      // The first wraps around, the second (clamp) saturates.
      ASSERT_EQ(bytes[static_cast<size_t>(lane)].sum[i],
                static_cast<uint32_t>(0x7fffff00 + static_cast<int64_t>(eight)));
      ASSERT_EQ(as<int32_t>(nibbles[static_cast<size_t>(lane)].sum[i]),
                std::min<int64_t>(0x7fffff00 + static_cast<int64_t>(four), INT32_MAX));
    }
}

TEST_P(Rdna4Sparse, WhatIsLeftOutMultipliesNothing) {
  auto in = random_inputs(32, 5);
  make_halves(in, 0, 12);
  for (In& lane : in) {
    lane.operand[12] = 0x4e4e4e4e;                                 // elements 2, 3, 0, 1 of each two fours
    lane.operand[12] = 0x44444444;                                 // elements 0 and 1 of each four
    for (int d = 5; d < 12; d += 2) lane.operand[d] = 0x7c007e00;  // 2 and 3 of each: NaN and infinity
  }
  for (const Out& lane : run("swmmac_f16", in))
    for (int i = 0; i < 8; ++i) ASSERT_TRUE(std::isfinite(as<float>(lane.sum[i])));
}

TEST_P(Cdna3Sparse, Floats) {
  auto in = random_inputs(64, 6);
  make_halves(in, 0, 8);
  const auto a = [](const In& l, int e) { return half(l, 0, e); };
  const auto b = [](const In& l, int e) { return half(l, 4, e); };
  const auto narrow = run("smfmac_16", in), wide = run("smfmac_32", in);
  for (int lane = 0; lane < 64; ++lane) {
    const auto at = static_cast<size_t>(lane);
    for (int i = 0; i < 4; ++i)
      ASSERT_EQ(as<float>(narrow[at].sum[i]),
                as<float>(in[at].sum[i]) + sparse_dot(in, i + 4 * (lane / 16), lane % 16, 16, 4, 16, a, b));
    for (int i = 0; i < 16; ++i)  // cbsz: the first set, whatever abid says
      ASSERT_EQ(as<float>(wide[at].sum[i]),
                as<float>(in[at].sum[i]) +
                    sparse_dot(in, i % 4 + 8 * (i / 4) + 4 * (lane / 32), lane % 32, 32, 4, 0, a, b));
  }
}

TEST_P(Cdna3Sparse, Integers) {
  auto in = random_inputs(64, 7);
  const auto out = run("smfmac_i8", in);
  for (int lane = 0; lane < 64; ++lane)
    for (int i = 0; i < 4; ++i) {
      const double want = sparse_dot(
          in, i + 4 * (lane / 16), lane % 16, 16, 8, 16,
          [](const In& l, int e) { return small(l, 0, e, 8, true); },
          [](const In& l, int e) { return small(l, 4, e, 8, true); });
      const auto at = static_cast<size_t>(lane);
      ASSERT_EQ(out[at].sum[i], in[at].sum[i] + static_cast<uint32_t>(static_cast<int64_t>(want)));
    }
}

TEST_P(Cdna3Sparse, Xf32CutsTheMantissa) {
  std::vector<In> in(64);
  for (size_t lane = 0; lane < 64; ++lane) {
    in[lane] = {};
    // Only k = 0 is not zero, in lanes 0 to 15: the products alone are seen.
    in[lane].operand[0] = lane < 16 ? 0x3f801fff : 0;  // 1 + 8191 ulp: the lower 13 bits are cut
    in[lane].operand[2] = lane < 16 ? 0x40402000 : 0;  // 3 and one of the bits that stay
  }
  in[3].operand[0] = 0x7f800001;  // NaN in bits that are cut: still NaN, in row 3
  const auto out = run("xf32", in);
  for (int lane = 0; lane < 64; ++lane)
    for (int i = 0; i < 4; ++i) {
      const float got = as<float>(out[static_cast<size_t>(lane)].sum[i]);
      if (i + 4 * (lane / 16) == 3)
        ASSERT_TRUE(std::isnan(got));
      else
        ASSERT_EQ(got, as<float>(0x40402000)) << lane;
    }
}

TEST_P(CdnaMatrix, LanesOfBAreChanged) {
  auto in = random_inputs(64, 8);
  make_halves(in, 0, 4);
  const auto source = [](int pattern, int lane) {
    return pattern == 1   ? lane % 32
           : pattern == 2 ? lane % 32 + 32
           : pattern == 3 ? (lane + 16) % 64
                          : (pattern - 4) * 16 + lane % 16;
  };
  for (const int pattern : {1, 2, 3, 4, 7}) {
    const auto out = run(concat("lanes_", pattern).c_str(), in);
    for (int lane = 0; lane < 64; ++lane)
      for (int i = 0; i < 16; ++i) {
        const int m = i % 4 + 8 * (i / 4) + 4 * (lane / 32), n = lane % 32;
        double want = as<float>(in[static_cast<size_t>(lane)].sum[i]);
        for (int group = 0; group < 2; ++group)
          for (int e = 0; e < 4; ++e)
            want += half(in[static_cast<size_t>(32 * group + m)], 0, e) *
                    half(in[static_cast<size_t>(source(pattern, 32 * group + n))], 2, e);
        ASSERT_EQ(as<float>(out[static_cast<size_t>(lane)].sum[i]), want)
            << pattern << " " << lane << " " << i;
      }
  }
}

TEST_P(CdnaMatrix, BlocksOfAAreShared) {
  auto in = random_inputs(64, 9);
  make_halves(in, 0, 4);
  const auto out = run("blocks", in);
  for (int lane = 0; lane < 64; ++lane)
    for (int m = 0; m < 4; ++m) {
      const int block = lane / 4,
                from = block / 4 * 4 + 3;  // cbsz 2: four blocks share; abid 3: the last one's
      double want = as<float>(in[static_cast<size_t>(lane)].sum[m]);
      for (int e = 0; e < 4; ++e)
        want += half(in[static_cast<size_t>(4 * from + m)], 0, e) * half(in[static_cast<size_t>(lane)], 2, e);
      ASSERT_EQ(as<float>(out[static_cast<size_t>(lane)].sum[m]), want) << lane << " " << m;
    }
  EXPECT_THROW(run("too_many_blocks", in), KernelFault);
}

TEST_P(CdnaMatrix, TheFirstFormOfBf16) {
  if (GetParam().target != "gfx90a") GTEST_SKIP() << "gfx90a alone has it";
  auto in = random_inputs(64, 10);
  for (In& lane : in)
    for (const int d : {0, 2})
      lane.operand[d] = float_to_bf16(static_cast<float>(lane.operand[d] % 9)) |
                        static_cast<uint32_t>(float_to_bf16(-static_cast<float>(lane.operand[d] / 16 % 9)))
                            << 16;
  const auto element = [&](int lane, int d, int e) {
    return bf16_to_float(static_cast<uint16_t>(in[static_cast<size_t>(lane)].operand[d] >> (16 * e)));
  };
  const auto out = run("old_bf16", in);  // four blocks of 16x16, two products each
  for (int lane = 0; lane < 64; ++lane)
    for (int i = 0; i < 16; ++i) {
      const int block = i / 4, m = i % 4 + 4 * (lane / 16), n = lane % 16;
      double want = as<float>(in[static_cast<size_t>(lane)].sum[i]);
      for (int e = 0; e < 2; ++e) want += element(16 * block + m, 0, e) * element(16 * block + n, 2, e);
      ASSERT_EQ(as<float>(out[static_cast<size_t>(lane)].sum[i]), want) << lane << " " << i;
    }
}

}  // namespace
}  // namespace rocm_sd::emu
