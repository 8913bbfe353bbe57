// Single operations with edge values, as assembly: what the ISA documents say, and where interpreters go
// wrong.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/dtype.hpp"
#include "unit_tests/emulator/operations.hpp"

namespace rocm_sd::emu {
namespace {

class Operations : public OperationTest {};
INSTANTIATE_TEST_SUITE_P(Assembled, Operations, testing::ValuesIn(assembled()), build_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Operations);  // builds without AMD targets

TEST_P(Operations, MinAndMaxOfNanAndZeros) {
  run("t_minmax", [&](const In& in, const Out& out, int) {
    const float a = in.f(0), b = in.f(1);
    const bool zeros = a == 0 && b == 0;
    const float least = zeros ? (std::signbit(a) || std::signbit(b) ? -0.0f : 0.0f) : std::fmin(a, b);
    const float most = zeros ? (std::signbit(a) && std::signbit(b) ? -0.0f : 0.0f) : std::fmax(a, b);
    EXPECT_FLOAT(out.f(0), least);
    EXPECT_FLOAT(out.f(1), most);
    ASSERT_EQ(out.v[2], kUntouched);
  });
}

TEST_P(Operations, InputAndOutputModifiers) {
  run("t_modifiers", [&](const In& in, const Out& out, int) {
    const float sum = -in.f(0) + std::fabs(in.f(1));
    EXPECT_FLOAT(out.f(0), std::isnan(sum) ? 0.0f : sum > 0 ? std::min(sum, 1.0f) : 0.0f);
    // Where denormals are kept, output modifiers are ignored; ModeTest.OutputModifiers has them obeyed.
    EXPECT_FLOAT(out.f(1), in.f(0) * in.f(1));
    EXPECT_FLOAT(out.f(2), std::fma(-std::fabs(in.f(0)), 1.0f, in.f(1)));
    EXPECT_FLOAT(out.f(3), in.f(0) + -2.0f);
  });
}

TEST_P(Operations, ConversionsSaturate) {
  run("t_convert", [&](const In& in, const Out& out, int lane) {
    const double x = in.f(0);
    const auto s32 = std::isnan(x) ? 0 : static_cast<int32_t>(std::clamp(x, -2147483648.0, 2147483647.0));
    const auto u32 = std::isnan(x) ? 0u : static_cast<uint32_t>(std::clamp(x, 0.0, 4294967295.0));
    EXPECT_BITS(out.v[0], s32);
    EXPECT_BITS(out.v[1], u32);
    if (std::isnan(x))
      ASSERT_EQ(out.v[2] & 0x7c00, 0x7c00u);
    else
      EXPECT_BITS(out.v[2] & 0xffff, float_to_f16(in.f(0)));
    // The upper half: cleared by gfx9, kept since.
    EXPECT_BITS(out.v[2] >> 16, gfx9() ? 0 : kUntouched >> 16);
    EXPECT_FLOAT(out.f(3), static_cast<float>(in.v[0] >> 16 & 255));
  });
}

TEST_P(Operations, PackingConversions) {
  const auto toward_zero = [](float x) -> uint32_t {
    if (std::isnan(x) || std::isinf(x)) return float_to_f16(x);
    uint16_t h = float_to_f16(x);
    if ((h & 0x7fff) == 0x7c00) return h - 1;
    return std::fabs(f16_to_float(h)) > std::fabs(x) ? h - 1 : h;
  };
  run("t_packs", [&](const In& in, const Out& out, int lane) {
    if (!std::isnan(in.f(0))) {
      EXPECT_BITS(out.v[0] & 0xffff, toward_zero(in.f(0)));
    }
    if (!std::isnan(in.f(1))) {
      EXPECT_BITS(out.v[0] >> 16, toward_zero(in.f(1)));
    }
    EXPECT_BITS(out.v[1], std::min(in.v[2], 65535u) | std::min(in.v[3], 65535u) << 16);
    const auto s16 = [](int32_t v) { return static_cast<uint32_t>(std::clamp(v, -32768, 32767)) & 0xffff; };
    EXPECT_BITS(out.v[2], s16(in.s(2)) | s16(in.s(3)) << 16);
    EXPECT_BITS(out.v[3], in.v[2] >> 16 | in.v[3] << 16);  // op_sel: the high half of the first
  });
}

TEST_P(Operations, MantissaExponentFraction) {
  run("t_split", [&](const In& in, const Out& out, int lane) {
    const float x = in.f(0);
    int e = 0;
    const bool finite = std::isfinite(x);
    const float m = finite ? std::frexp(x, &e) : x;
    EXPECT_FLOAT(out.f(0), m);
    EXPECT_BITS(out.v[1], finite && x != 0 ? e : 0);
    EXPECT_FLOAT(out.f(2), std::ldexp(x, std::clamp(in.s(2), -1000, 1000)));
    if (finite && std::fabs(x) < 1e6f && x >= 0) {
      EXPECT_FLOAT(out.f(3), x - std::floor(x));
    }
    if (x == -1e-44f) {
      EXPECT_FLOAT(out.f(3), 0x1.fffffep-1f);  // stays below 1
    }
  });
}

TEST_P(Operations, ClassesOfNumbers) {
  run("t_classes", [&](const In& in, const Out& out, int lane) {
    const float x = in.f(0);
    const bool negative = std::signbit(x);
    uint32_t want = negative ? 8 : 0x100;
    if (std::isnan(x))
      want = 2;
    else if (std::isinf(x))
      want = negative ? 4 : 0x200;
    else if (x == 0)
      want = negative ? 0x20 : 0x40;
    else if (std::fpclassify(x) == FP_SUBNORMAL)
      want = negative ? 0x10 : 0x80;
    EXPECT_BITS(out.v[0], want);
  });
}

TEST_P(Operations, DoublesAndTheirLiterals) {
  run("t_doubles", [&](const In& in, const Out& out, int) {
    const double x = std::bit_cast<double>(static_cast<uint64_t>(in.v[1]) << 32 | in.v[0]);
    const double sum = std::bit_cast<double>(static_cast<uint64_t>(out.v[1]) << 32 | out.v[0]);
    const double half = std::bit_cast<double>(static_cast<uint64_t>(out.v[3]) << 32 | out.v[2]);
    if (std::isnan(x))
      ASSERT_TRUE(std::isnan(sum) && std::isnan(half));
    else
      ASSERT_TRUE(sum == x + 100.0 && half == x * 0.5) << x << " gave " << sum << ", " << half;
  });
}

// One unit in the last place is what the documents state; denormals count as zeros.
TEST_P(Operations, Transcendentals) {
  const auto near = [](float got, double want) {
    if (std::isnan(want)) return std::isnan(got);
    if (std::fabs(want) < 0x1p-126) return got == 0.0f;
    const float rounded = static_cast<float>(want);
    return got == rounded ||
           (std::isfinite(rounded) && std::fabs(got - want) <= std::ldexp(1.0, std::ilogb(want) - 23));
  };
  const auto flush = [](float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; };
  run("t_transcendentals", [&](const In& in, const Out& out, int) {
    const double x = flush(in.f(0)), y = flush(in.f(1));
    ASSERT_TRUE(near(out.f(0), std::exp2(x))) << "exp2 " << x << " " << out.f(0);
    ASSERT_TRUE(near(out.f(1), std::log2(y))) << "log2 " << y << " " << out.f(1);
    ASSERT_TRUE(near(out.f(2), 1 / x)) << "rcp " << x << " " << out.f(2);
    ASSERT_TRUE(near(out.f(3), 1 / std::sqrt(y))) << "rsq " << y << " " << out.f(3);
  });
}

TEST_P(Operations, PackedHalves) {
  run("t_halves", [&](const In& in, const Out& out, int lane) {
    const auto h = [](uint32_t v, bool high) {
      return f16_to_float(static_cast<uint16_t>(high ? v >> 16 : v));
    };
    const auto same = [](uint32_t got, float want) {
      const float g = f16_to_float(static_cast<uint16_t>(got)), w = f16_to_float(float_to_f16(want));
      return std::isnan(w) ? std::isnan(g) : g == w && std::signbit(g) == std::signbit(w);
    };
    const uint32_t a = in.v[0], b = in.v[1], c = in.v[2], d = in.v[3];
    ASSERT_TRUE(same(out.v[0], h(a, true) + h(b, false))) << std::hex << a << " " << b;
    ASSERT_TRUE(same(out.v[0] >> 16, h(a, false) + h(b, true))) << std::hex << a << " " << b;
    ASSERT_TRUE(same(out.v[1], -h(a, false) * h(b, false))) << std::hex << a << " " << b;
    ASSERT_TRUE(same(out.v[1] >> 16, h(a, true) * -h(b, true))) << std::hex << a << " " << b;
    EXPECT_BITS(out.v[2], ((c + d) & 0xffff) | ((c >> 16) + (d >> 16)) << 16);
    EXPECT_BITS(out.v[3], ((c << 3) & 0xffff) | ((c >> 16) << 3) << 16);
  });
}

TEST_P(Operations, SixteenBitSelections) {
  run("t_opsel", [&](const In& in, const Out& out, int lane) {
    const uint32_t c = in.v[2], d = in.v[3];
    const float sum =
        f16_to_float(static_cast<uint16_t>(in.v[0])) + f16_to_float(static_cast<uint16_t>(in.v[1]));
    if (!std::isnan(sum)) {
      EXPECT_BITS(out.v[1] & 0xffff, float_to_f16(sum));
    }
    EXPECT_BITS(out.v[1] >> 16, gfx9() ? 0 : kUntouched >> 16);
    if (gfx9()) {
      EXPECT_BITS(out.v[0], (kUntouched & 0xffff0000) | ((c * d + c) & 0xffff));  // VOP3 keeps the other half
    } else {
      EXPECT_BITS(out.v[0], (kUntouched & 0xffff) | ((c >> 16) + d) << 16);
      EXPECT_BITS(out.v[2], (kUntouched & 0xffff0000) | ((c + (d >> 16)) & 0xffff));
      EXPECT_BITS(out.v[3], (kUntouched & 0xffff0000) | ((c * d) & 0xffff));
    }
  });
}

TEST_P(Operations, MixedFma) {
  run("t_mix", [&](const In& in, const Out& out, int lane) {
    const float a = in.f(0), b = in.f(1), h = f16_to_float(static_cast<uint16_t>(in.v[2] >> 16));
    EXPECT_FLOAT(out.f(0), std::fma(a, h, b));
    const float sum = std::fma(a, b, a);
    if (std::isnan(sum)) return;
    EXPECT_BITS(out.v[1], (kUntouched & 0xffff0000) | float_to_f16(sum));
    EXPECT_BITS(out.v[2], (kUntouched & 0xffff) | static_cast<uint32_t>(float_to_f16(sum)) << 16);
  });
}

TEST_P(Operations, BitFields) {
  run("t_fields", [&](const In& in, const Out& out, int lane) {
    const uint32_t a = in.v[2], b = in.v[3], c = in.v[4], offset = b & 31, width = c & 31;
    const uint64_t mask = (uint64_t{1} << width) - 1;
    EXPECT_BITS(out.v[0], a >> offset & mask);
    int64_t field = in.s(2) >> offset;  // the sign fills what lies above bit 31
    if (offset + width < 32)
      field = static_cast<int64_t>(static_cast<uint64_t>(field) << (64 - width)) >> (64 - width);
    EXPECT_BITS(out.v[1], width == 0 ? 0 : field);
    EXPECT_BITS(out.v[2], (a & b) | (~a & c));
    EXPECT_BITS(out.v[3], (static_cast<uint64_t>(a) << 32 | b) >> (c & 31));
  });
}

TEST_P(Operations, ShiftsTakeTheLowBits) {
  run("t_shifts", [&](const In& in, const Out& out, int lane) {
    EXPECT_BITS(out.v[0], in.v[2] << (in.v[3] & 31));
    EXPECT_BITS(out.v[1], in.s(2) >> (in.v[3] & 31));
    const uint64_t wide = (static_cast<uint64_t>(in.v[3]) << 32 | in.v[2]) >> (in.v[4] & 63);
    EXPECT_BITS(out.v[2], wide);
    EXPECT_BITS(out.v[3], wide >> 32);
  });
}

TEST_P(Operations, CountsOfBits) {
  run("t_counts", [&](const In& in, const Out& out, int lane) {
    const uint32_t a = in.v[2];
    EXPECT_BITS(out.v[0], static_cast<uint32_t>(std::popcount(a)) + in.v[3]);
    uint32_t reversed = 0;
    for (int i = 0; i < 32; ++i) reversed |= (a >> i & 1) << (31 - i);
    EXPECT_BITS(out.v[1], reversed);
    EXPECT_BITS(out.v[2], a ? std::countl_zero(a) : -1);
    const uint32_t folded = a ^ static_cast<uint32_t>(in.s(2) >> 31);
    EXPECT_BITS(out.v[3], folded ? std::countl_zero(folded) : -1);
  });
}

TEST_P(Operations, BytePermutationAnd24Bits) {
  run("t_perm", [&](const In& in, const Out& out, int lane) {
    const uint64_t data = static_cast<uint64_t>(in.v[2]) << 32 | in.v[3];
    uint32_t want = 0;
    for (int i = 0; i < 4; ++i) {
      const uint32_t pick = in.v[4] >> 8 * i & 255;
      uint32_t byte = 0xff;
      if (pick < 8)
        byte = data >> 8 * pick & 255;
      else if (pick < 12)
        byte = data >> (16 * (pick - 8) + 15) & 1 ? 0xff : 0;
      else if (pick == 12)
        byte = 0;
      want |= byte << 8 * i;
    }
    EXPECT_BITS(out.v[0], want);
    EXPECT_BITS(out.v[1], (in.v[2] & 0xffffff) * (in.v[3] & 0xffffff) + in.v[4]);
    const auto s24 = [](uint32_t v) { return static_cast<int64_t>(static_cast<int32_t>(v << 8) >> 8); };
    EXPECT_BITS(out.v[2], (s24(in.v[2]) * s24(in.v[3])) >> 32);
    int32_t three[3] = {in.s(2), in.s(3), in.s(4)};
    std::sort(three, three + 3);
    EXPECT_BITS(out.v[3], three[1]);
  });
}

TEST_P(Operations, SaturatingSums) {
  run("t_saturate", [&](const In& in, const Out& out, int lane) {
    const int64_t a = in.v[2], b = in.v[3], sa = in.s(2), sb = in.s(3);
    EXPECT_BITS(out.v[0], std::min<int64_t>(a + b, 0xffffffff));
    EXPECT_BITS(out.v[1], std::max<int64_t>(a - b, 0));
    EXPECT_BITS(out.v[2], std::clamp<int64_t>(sa + sb, INT32_MIN, INT32_MAX));
    EXPECT_BITS(out.v[3], std::clamp<int64_t>(sa - sb, INT32_MIN, INT32_MAX));
  });
}

TEST_P(Operations, WideProductsAndCarries) {
  run("t_widemul", [&](const In& in, const Out& out, int lane) {
    const uint64_t c = static_cast<uint64_t>(in.v[5]) << 32 | in.v[4];
    const uint64_t product = static_cast<uint64_t>(in.v[2]) * in.v[3], sum = product + c;
    EXPECT_BITS(out.v[0], sum);
    EXPECT_BITS(out.v[1], sum >> 32);
    EXPECT_BITS(out.v[2], sum < product ? 1 : 0);
    EXPECT_BITS(out.v[3], in.v[4] + in.v[5] + ((static_cast<uint64_t>(in.v[2]) + in.v[3]) >> 32));
  });
}

TEST_P(Operations, SelectsByMask) {
  run("t_select", [&](const In& in, const Out& out, int lane) {
    const uint64_t vcc = gfx9() ? 0x9249249249249249ull : 0x4924924949249249ull;
    EXPECT_BITS(out.v[0], vcc >> lane & 1 ? in.v[1] : in.v[0]);
    EXPECT_BITS(out.v[1], in.s(2) < in.s(3) ? in.v[1] & 0x7fffffff : in.v[0] ^ 0x80000000);
  });
}

TEST_P(Operations, DppReadsAllLanesFirst) {
  run("t_inplace", [&](const In&, const Out&, int) {});
  const auto all = inputs();
  std::vector<In> some(all.begin(), all.begin() + 64);
  for (uint32_t i = 0; i < 64; ++i) some[i].v[2] = 1000 + i * i;
  struct {
    const In* in;
    Out* out;
  } p{upload(some), poisoned<Out>(64)};
  launch(load("operations"), "t_inplace", {{1, 1, 1}, {64, 1, 1}}, p);
  const auto v = [&](int i) { return some[static_cast<size_t>(i)].v[2]; };
  for (int l = 0; l < 64; ++l) {
    EXPECT_EQ(p.out[l].v[0], l % 16 ? v(l - 1) : v(l)) << l;  // no source and no bound_ctrl: it stays
    EXPECT_EQ(p.out[l].v[1], v(l / 16 * 16 + (l + 13) % 16)) << l;
    EXPECT_EQ(p.out[l].v[2], v(l) + v(l ^ 1)) << l;
  }
}

TEST_P(Operations, LaneNumbersAndSingleLanes) {
  const int lanes = gfx9() ? 64 : 32;
  run("t_lanes", [&](const In&, const Out& out, int lane) {
    ASSERT_EQ(out.v[0], static_cast<uint32_t>(lane % lanes + 5));
    ASSERT_EQ(out.v[2], lane % lanes == 3 ? 0x55u : kUntouched);
  });
}

TEST_P(Operations, LdsPairsAndAtomics) {
  run("t_lds", [&](const In& in, const Out& out, int lane) {
    EXPECT_BITS(out.v[0], in.v[1]);
    EXPECT_BITS(out.v[1], in.v[3]);
    EXPECT_BITS(out.v[2], in.v[0] + in.v[4]);  // added without a result
    EXPECT_BITS(out.v[3], in.v[2]);            // the old value
  });
}

TEST_P(Operations, Scalars) {
  run("t_scalars", [&](const In&, const Out& out, int) {
    const uint32_t s20 = 0xf0f0f0f0;
    ASSERT_EQ(out.v[0], 0x0fu);    // bits 4..11 of it: 0x0f, whose sign is clear
    ASSERT_EQ(out.v[1], s20 + 1);  // the carry of s20 + s20
    const uint32_t high = static_cast<uint32_t>(static_cast<uint64_t>(0xffff8000u) * s20 >> 32);
    ASSERT_EQ(out.v[2], 17u ^ high);
    ASSERT_EQ(out.v[3], static_cast<uint32_t>((uint64_t{0x0f} << 32 | s20) << 36 >> 32));
  });
}

}  // namespace
}  // namespace rocm_sd::emu
