// Where interpreters of this machine code went wrong, as single operations; the rest of that list is tested
// where kernels meet it (docs/emulator.md, "Pitfalls").
#include <algorithm>

#include "base/dtype.hpp"
#include "unit_tests/emulator/operations.hpp"

namespace rocm_sd::emu {
namespace {

class Pitfalls : public OperationTest {
 protected:
  Pitfalls() { object = "pitfalls"; }
  bool in_vcc(int lane) const { return (lane % (gfx9() ? 64 : 32)) % 3 == 0; }
  static float half(uint32_t bits) { return f16_to_float(static_cast<uint16_t>(bits)); }
};
INSTANTIATE_TEST_SUITE_P(Assembled, Pitfalls, testing::ValuesIn(assembled()), build_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Pitfalls);  // builds without AMD targets

TEST_P(Pitfalls, WhatDoesNothingDoesNothing) {
  run("t_no_operations", [&](const In& in, const Out& out, int lane) {
    EXPECT_BITS(out.v[0], in.v[2]);
    EXPECT_BITS(out.v[1], in.v[3]);
  });
}

TEST_P(Pitfalls, LanesLeaveALoopOneByOne) {
  run("t_leaving_loop", [&](const In& in, const Out& out, int lane) {
    EXPECT_BITS(out.v[0], in.v[2] & 7);
    EXPECT_BITS(out.v[1], in.v[2] & 7);
  });
}

TEST_P(Pitfalls, FormsOfAddresses) {
  run("t_addresses", [&](const In& in, const Out& out, int lane) {
    EXPECT_BITS(out.v[0], in_vcc(lane) ? in.v[2] : kUntouched);
    EXPECT_BITS(out.v[1], in_vcc(lane) ? in.v[3] : kUntouched);
    EXPECT_BITS(out.v[2], in_vcc(lane) ? in.v[0] : kUntouched);
  });
}

TEST_P(Pitfalls, RegistersAbove127) {
  run("t_high_registers", [&](const In& in, const Out& out, int lane) {
    const uint16_t low = float_to_f16(in.f(0));
    if (std::isnan(in.f(0))) {
      EXPECT_TRUE(std::isnan(half(out.v[0] & 0xffff))) << lane;
    } else {
      EXPECT_BITS(out.v[0], low | (gfx9() ? 0 : kUntouched & 0xffff0000));
    }
    EXPECT_FLOAT(out.f(1), in.f(0) - in.f(1));
    EXPECT_BITS(out.v[2], (in.v[2] & 0xffffff) * (in.v[3] & 0xffffff) + in.v[4]);
  });
}

TEST_P(Pitfalls, MatrixInstructionsKeepDenormals) {
  run("t_denormal_products", [&](const In& in, const Out& out, int lane) {
    EXPECT_FLOAT(out.f(0), 0x1p-20f);         // 16 products of 2^-24
    EXPECT_FLOAT(out.f(1), 0.5f + 0x1p-20f);  // on the constant 0.5
    EXPECT_BITS(out.v[2], kUntouched);
  });
}

TEST_P(Pitfalls, LdsStridesAndQuietAtomics) {
  run("t_lds_strides", [&](const In& in, const Out& out, int lane) {
    EXPECT_BITS(out.v[0], in.v[0]);
    EXPECT_BITS(out.v[1], in.v[1]);
    EXPECT_BITS(out.v[2], std::max(in.v[0], in.v[2]));
    EXPECT_BITS(out.v[3], kUntouched);
  });
}

TEST_P(Pitfalls, StoresBeforeABarrierAreThereBehindIt) {
  std::vector<uint32_t> got(64), want(64);
  run("t_barriers", [&](const In& in, const Out& out, int lane) {
    got[static_cast<size_t>(lane)] = out.v[0];
    want[static_cast<size_t>(lane ^ 32)] = in.v[2];
    EXPECT_BITS(out.v[1], in.v[3]);
    if (lane == 63) {
      EXPECT_EQ(got, want);
    }
  });
}

TEST_P(Pitfalls, ATrapSaysWhere) {
  try {
    run("t_trap", [](const In&, const Out&, int) {});
    FAIL() << "no fault";
  } catch (const KernelFault& fault) {
    EXPECT_NE(std::string(fault.what()).find("kernel t_trap, `s_trap 2` at 0x"), std::string::npos)
        << fault.what();
  }
}

// Of the same sign as far as a 16-bit sum says: one unit in the last place for the order of rounding.
void expect_near_16(uint32_t got, double want, bool bf16, int lane) {
  const auto value = [&](uint32_t b) {
    return bf16 ? std::bit_cast<float>(b << 16) : f16_to_float(static_cast<uint16_t>(b));
  };
  const float g = value(got & 0xffff);
  const auto nearest = static_cast<float>(want);
  const float w = value(bf16 ? float_to_bf16(nearest) : float_to_f16(nearest));
  if (std::isnan(w)) {
    EXPECT_TRUE(std::isnan(g)) << lane;
  } else if (std::isinf(w) || std::isinf(g)) {
    EXPECT_EQ(g, w) << lane;
  } else {
    EXPECT_LE(std::abs(g - want),
              std::max(std::abs(want) * (bf16 ? 0x1p-8 : 0x1p-10), bf16 ? 1e-38 : 0x1p-24))
        << lane << ": " << g << " for " << want;
  }
}

TEST_P(Pitfalls, SumsOfProducts) {
  run("t_dots", [&](const In& in, const Out& out, int lane) {
    const uint32_t a = in.v[2], b = in.v[3], c = in.v[4];
    if (gfx9()) {
      const auto part = [](uint32_t x, int i) {
        return static_cast<int64_t>(static_cast<int16_t>(x >> 16 * i));
      };
      EXPECT_BITS(out.v[0], part(a, 0) * part(b, 0) + part(a, 1) * part(b, 1) + static_cast<int32_t>(c));
      EXPECT_BITS(out.v[1], uint64_t{a & 0xffff} * (b & 0xffff) + uint64_t{a >> 16} * (b >> 16) + c);
    } else {
      const auto f16 = [](uint32_t x) { return static_cast<double>(half(x & 0xffff)); };
      const auto bf16 = [](uint32_t x) { return static_cast<double>(std::bit_cast<float>(x << 16)); };
      expect_near_16(out.v[0], f16(a) * f16(b) + f16(a >> 16) * f16(b >> 16) + f16(c), false, lane);
      expect_near_16(out.v[1],
                     bf16(a & 0xffff) * bf16(b & 0xffff) + bf16(a >> 16) * bf16(b >> 16) + bf16(c & 0xffff),
                     true, lane);
      EXPECT_BITS(out.v[0] >> 16, kUntouched >> 16);
      EXPECT_BITS(out.v[1] >> 16, kUntouched >> 16);
    }
    const auto apart = [](int64_t x, int64_t y) { return static_cast<uint32_t>(x > y ? x - y : y - x); };
    EXPECT_BITS(out.v[2], apart(a & 0xffff, b & 0xffff) + apart(a >> 16, b >> 16) + c);
    uint32_t masked = c;
    for (int i = 0; i < 32; i += 8)
      if (b >> i & 255) masked += apart(a >> i & 255, b >> i & 255);
    EXPECT_BITS(out.v[3], masked);
  });
}

// The value of an OCP 8-bit float: e4m3 or e5m2.
double f8(uint32_t code, bool e5m2) {
  const int mantissa_bits = e5m2 ? 2 : 3, bias = e5m2 ? 15 : 7;
  const int exponent = static_cast<int>(code >> mantissa_bits & (e5m2 ? 31 : 15));
  const int mantissa = static_cast<int>(code & (e5m2 ? 3 : 7));
  const double sign = code & 0x80 ? -1 : 1;
  if (e5m2 && exponent == 31) return mantissa ? NAN : sign * INFINITY;
  if (!e5m2 && (code & 0x7f) == 0x7f) return NAN;
  const double fraction = mantissa * std::ldexp(1.0, -mantissa_bits) + (exponent ? 1 : 0);
  return sign * std::ldexp(fraction, std::max(exponent, 1) - bias);
}

TEST_P(Pitfalls, SumsOfDifferencesAndMeans) {
  run("t_sads", [&](const In& in, const Out& out, int lane) {
    const uint32_t a = in.v[2], b = in.v[3], c = in.v[4];
    uint32_t sum = 0, mean = 0;
    double dot = 1;
    for (int i = 0; i < 32; i += 8) {
      const int x = static_cast<int>(a >> i & 255), y = static_cast<int>(b >> i & 255);
      sum += static_cast<uint32_t>(std::abs(x - y));
      mean |= (static_cast<uint32_t>(x + y) + (c >> i & 1)) / 2 << i;
      dot += f8(static_cast<uint32_t>(x), false) * f8(static_cast<uint32_t>(y), true);
    }
    EXPECT_BITS(out.v[0], (sum << 16) + c);
    EXPECT_BITS(out.v[1], mean);
    if (!gpu.target().gfx12) return;
    if (std::isnan(dot) || std::isinf(dot)) {
      EXPECT_EQ(std::isnan(out.f(2)), std::isnan(dot)) << lane;
      return;
    }
    EXPECT_NEAR(out.f(2), dot, 1e-5 * 4 * 448 * 57344);  // four sums of at most that, rounded in float
  });
}

TEST_P(Pitfalls, LoadsThatGoToLds) {
  if (gpu.target().gfx12) GTEST_SKIP() << "gfx12 has no such loads";
  const bool global = gpu.target().name == "gfx942";
  run("t_loads_to_lds", [&](const In& in, const Out& out, int lane) {
    EXPECT_BITS(out.v[0], lane < 40 ? in.v[2] : 0);
    EXPECT_BITS(out.v[1], global ? in.v[3] : kUntouched);
    EXPECT_BITS(out.v[2], global ? in.v[4] & 0xffff : kUntouched);
    EXPECT_BITS(out.v[3], global ? static_cast<uint32_t>(static_cast<int16_t>(in.v[4])) : kUntouched);
  });
}

}  // namespace
}  // namespace rocm_sd::emu
