// Modes of floats (denormals, output modifiers, clamping), clocks, and buffers that an access leaves in the
// middle.
#include <cmath>
#include <random>

#include "base/dtype.hpp"
#include "unit_tests/emulator/assembler.hpp"

namespace rocm_sd::emu {
namespace {

class ModeTest : public CasesTest {
 protected:
  // Pairs of floats with denormals, zeros and ordinary numbers, and of halves and doubles likewise.
  std::vector<Lane> numbers() {
    static const float kFloats[] = {1e-40f, -1e-40f, 0x1p-126f, -0x1p-126f, 0.0f,
                                    -0.0f,  1.0f,    -1.5f,     0x1p-127f,  3e-39f};
    static const uint16_t kHalves[] = {1, 0x8001, 0x3ff, 0x83ff, 0x400, 0x8400, 0, 0x8000, 0x3c00, 0xbc00};
    static const double kDoubles[] = {1e-310, -1e-310, 0x1p-1022, -0x1p-1022, 0.0,
                                      -0.0,   1.0,     -1.5,      0x1p-1023,  3e-309};
    std::vector<Lane> out(lanes());
    for (size_t l = 0; l < out.size(); ++l)
      for (size_t i = 0; i < 4; ++i) {
        const size_t pick = (l * 7 + i * (l / 10 + 3)) % 10;
        out[l][i] = bits(kFloats[pick]);
        out[l][8 + i] = kHalves[pick] | static_cast<uint32_t>(kHalves[(pick + l) % 10]) << 16;
        const auto wide = std::bit_cast<uint64_t>(kDoubles[pick]);
        out[l][16 + 2 * i] = static_cast<uint32_t>(wide);
        out[l][17 + 2 * i] = static_cast<uint32_t>(wide >> 32);
      }
    return out;
  }
};
INSTANTIATE_TEST_SUITE_P(Assembled, ModeTest, testing::ValuesIn(assembled()), build_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ModeTest);  // builds without AMD targets

float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }
double flushed(double x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0, x) : x; }
uint32_t flushed_half(uint32_t b) { return b & 0x7c00 ? b : b & 0x8000; }

// Each of the four modes of each field: bit 0 keeps denormals that are read, bit 1 those that are written.
// What moves bits or looks at classes does not flush.
TEST_P(ModeTest, DenormalsOfEachField) {
  const std::string num = gfx12() ? "_num" : "";
  const std::vector<std::string> cases = {
      "v_add_f32_e32 v64, v32, v33",
      "v_mul_f32_e64 v64, v32, -v33",
      "v_fma_f32 v64, v32, 1.0, v33",
      "v_max" + num + "_f32_e64 v64, v32, v33",
      "v_mov_b32_e32 v64, v32",
      gfx9() ? "v_cmp_class_f32_e64 vcc, v32, v34\nv_cndmask_b32_e32 v64, v32, v33, vcc"
             : "v_cndmask_b32_e64 v64, v32, v33, s0",
      "v_pk_add_f16 v64, v40, v41",
      "v_pk_fma_f16 v64, v40, 1.0, v41 op_sel_hi:[1,0,1]",
      "v_add_f16_e32 v64, v40, v41",
      "v_add_f64 v[64:65], v[48:49], v[50:51]"};
  const auto inputs = numbers();
  for (int mode = 0; mode < 4; ++mode)
    for (const bool wide : {false, true}) {  // which field is it
      const auto results =
          run(cases, inputs, {.denormals_32 = wide ? 3 : mode, .denormals_16_64 = wide ? mode : 3});
      const bool in = !(mode & 1), out = !(mode & 2);
      for (uint32_t lane = 0; lane < lanes(); ++lane) {
        const auto single = [&](int i) {
          const float x = std::bit_cast<float>(inputs[lane][static_cast<size_t>(i)]);
          return in && !wide ? flushed(x) : x;
        };
        const auto put = [&](float x) { return bits(out && !wide ? flushed(x) : x); };
        const auto where = [&](size_t c) {
          return concat(cases[c], " mode ", mode, wide ? " of 16 and 64" : "", " lane ", lane);
        };
        const auto got = [&](size_t c) { return results[c][lane][0]; };
        EXPECT_EQ(got(0), put(single(0) + single(1))) << where(0);
        EXPECT_EQ(got(1), put(single(0) * -single(1))) << where(1);
        EXPECT_EQ(got(2), put(single(0) + single(1))) << where(2);
        EXPECT_EQ(std::bit_cast<float>(got(3)), std::bit_cast<float>(put(std::fmax(single(0), single(1)))))
            << where(3);
        EXPECT_EQ(got(4), inputs[lane][0]) << where(4);
        const auto half = [&](int i, int part) {
          const uint32_t b = inputs[lane][static_cast<size_t>(8 + i)] >> 16 * part & 0xffff;
          return f16_to_float(static_cast<uint16_t>(in && wide ? flushed_half(b) : b));
        };
        const auto put_half = [&](float x) {
          const uint32_t b = float_to_f16(x);
          return out && wide ? flushed_half(b) : b;
        };
        const uint32_t sums = put_half(half(0, 0) + half(1, 0)) | put_half(half(0, 1) + half(1, 1)) << 16;
        EXPECT_EQ(got(6), sums) << where(6);
        EXPECT_EQ(got(7), sums) << where(7);
        EXPECT_EQ(got(8) & 0xffff, sums & 0xffff) << where(8);
        const auto whole = [&](size_t i) {
          const double x =
              std::bit_cast<double>(inputs[lane][16 + 2 * i] | uint64_t{inputs[lane][17 + 2 * i]} << 32);
          return in && wide ? flushed(x) : x;
        };
        const double sum = whole(0) + whole(1), want = out && wide ? flushed(sum) : sum;
        const auto got_wide = results[9][lane][0] | uint64_t{results[9][lane][1]} << 32;
        EXPECT_EQ(got_wide, std::bit_cast<uint64_t>(want)) << where(9);
        if (HasFailure()) return;
      }
    }
}

// The mode that an instruction sets holds from there on.
TEST_P(ModeTest, DenormalModeSetByInstructions) {
  std::vector<std::string> cases = {
      "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0\nv_add_f32_e32 v64, v32, v33\n"
      "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 3\nv_add_f32_e32 v65, v32, v33"};
  if (!gfx9())
    cases.push_back(
        "s_denorm_mode 12\nv_add_f32_e32 v64, v32, v33\ns_denorm_mode 15\nv_add_f32_e32 v65, v32, v33");
  const auto inputs = numbers();
  const auto results = run(cases, inputs);
  for (size_t c = 0; c < cases.size(); ++c)
    for (uint32_t lane = 0; lane < lanes(); ++lane) {
      const float a = std::bit_cast<float>(inputs[lane][0]), b = std::bit_cast<float>(inputs[lane][1]);
      EXPECT_EQ(results[c][lane][0], bits(flushed(flushed(a) + flushed(b)))) << cases[c] << lane;
      EXPECT_EQ(results[c][lane][1], bits(a + b)) << cases[c] << lane;
    }
}

// Output modifiers are obeyed only where denormals are flushed and IEEE mode is off, and then -0 becomes 0.
TEST_P(ModeTest, OutputModifiers) {
  const std::vector<std::string> cases = {
      "v_add_f32_e64 v64, v32, v33 mul:2", "v_mul_f32_e64 v64, v32, v33 mul:4",
      "v_fma_f32 v64, v32, v33, 0 div:2", "v_add_f32_e64 v64, v32, v33 clamp mul:2"};
  const auto inputs = numbers();
  for (const int denormals : {0, 3})
    for (const int ieee : {0, 1}) {
      const auto results = run(cases, inputs, {.denormals_32 = denormals, .ieee = ieee});
      const bool obeyed = denormals == 0 && (gfx12() || !ieee);
      for (uint32_t lane = 0; lane < lanes(); ++lane) {
        const auto value = [&](size_t i) {
          const float x = std::bit_cast<float>(inputs[lane][i]);
          return denormals == 0 ? flushed(x) : x;
        };
        const auto put = [&](float x, float factor) {
          if (obeyed) x = x * factor + 0.0f;
          return bits(denormals == 0 ? flushed(x) : x);
        };
        const auto where = [&](size_t c) {
          return concat(cases[c], " denormals ", denormals, " ieee ", ieee, " lane ", lane);
        };
        EXPECT_EQ(results[0][lane][0], put(value(0) + value(1), 2)) << where(0);
        EXPECT_EQ(results[1][lane][0], put(value(0) * value(1), 4)) << where(1);
        EXPECT_EQ(results[2][lane][0], put(std::fma(value(0), value(1), 0.0f), 0.5f)) << where(2);
        const float clamped = std::bit_cast<float>(put(value(0) + value(1), 2));
        EXPECT_EQ(std::bit_cast<float>(results[3][lane][0]), std::fmin(std::fmax(clamped, 0.0f), 1.0f))
            << where(3);
      }
    }
}

// Quotients: an underflow keeps the sign that the operands say, whatever the iteration left; an infinity has
// no fraction.
TEST_P(ModeTest, SignsOfQuotientsAndFractions) {
  const std::vector<std::string> cases = {
      "v_mov_b32_e32 v70, 0x80000000\nv_div_fixup_f32 v64, v70, v32, v33\nv_div_fixup_f32 v65, 0, v32, v33",
      "v_mov_b32_e32 v70, 0x8000\nv_div_fixup_f16 v64, v70, v40, v41\nv_div_fixup_f16 v65, 0, v40, v41",
      "v_mov_b32_e32 v70, 0x7f800000\nv_mov_b32_e32 v71, 0xff800000\nv_fract_f32_e32 v64, "
      "v70\nv_fract_f32_e32 v65, v71\n"
      "v_mov_b32_e32 v70, 0x7c00\nv_fract_f16_e32 v66, v70\nv_mov_b32_e32 v70, 0\nv_mov_b32_e32 v71, "
      "0x7ff00000\n"
      "v_fract_f64_e32 v[68:69], v[70:71]"};
  const auto inputs = numbers();
  const auto results = run(cases, inputs);
  for (uint32_t lane = 0; lane < lanes(); ++lane) {
    const auto sign = [](uint32_t a, uint32_t b, uint32_t bit) { return (a ^ b) & bit; };
    const float b = std::bit_cast<float>(inputs[lane][0]), c = std::bit_cast<float>(inputs[lane][1]);
    for (size_t r = 0; r < 2 && b != 0 && c != 0; ++r)
      EXPECT_EQ(results[0][lane][r], sign(inputs[lane][0], inputs[lane][1], 0x80000000)) << lane;
    const uint32_t hb = inputs[lane][8] & 0xffff, hc = inputs[lane][9] & 0xffff;
    for (size_t r = 0; r < 2 && (hb & 0x7fff) && (hc & 0x7fff); ++r)
      EXPECT_EQ(results[1][lane][r] & 0xffff, sign(hb, hc, 0x8000)) << lane;
    EXPECT_TRUE(std::isnan(std::bit_cast<float>(results[2][lane][0])));
    EXPECT_TRUE(std::isnan(std::bit_cast<float>(results[2][lane][1])));
    EXPECT_GT(results[2][lane][2] & 0x7fff, 0x7c00u);
    EXPECT_GT(results[2][lane][5] & 0x7fffffff, 0x7ff00000u);
  }
}

// Clocks go on: what waits for one comes to an end.
TEST_P(ModeTest, ClocksAdvance) {
  const std::string realtime =
      gfx9()    ? "s_memrealtime s[20:21]\ns_waitcnt lgkmcnt(0)\n"
      : gfx12() ? "s_sendmsg_rtn_b64 s[20:21], sendmsg(MSG_RTN_GET_REALTIME)\ns_wait_kmcnt 0\n"
                : "s_sendmsg_rtn_b64 s[20:21], sendmsg(MSG_RTN_GET_REALTIME)\ns_waitcnt lgkmcnt(0)\n";
  const std::string cycles = gfx9()    ? "s_memtime s[20:21]\ns_waitcnt lgkmcnt(0)\n"
                             : gfx12() ? "s_getreg_b32 s20, hwreg(HW_REG_SHADER_CYCLES_LO)\n"
                                       : "s_getreg_b32 s20, hwreg(HW_REG_SHADER_CYCLES, 0, 20)\n";
  std::vector<std::string> cases;
  for (const std::string& read : {realtime, cycles}) {
    const size_t label = cases.size() + 1;
    // Turns until the clock has moved by 100 ticks; v64 counts them.
    cases.push_back(concat("v_mov_b32_e32 v64, 0\n", read, "s_mov_b32 s22, s20\n.Lwait", label, ":\n", read,
                           gfx9() ? "v_add_u32_e32 v64, 1, v64\n" : "v_add_nc_u32_e32 v64, 1, v64\n",
                           "s_sub_u32 s23, s20, s22\ns_cmp_lt_u32 s23, 100\ns_cbranch_scc1 .Lwait", label));
  }
  gpu.options().seconds_limit = 20;
  const auto results = run(cases, numbers());
  for (size_t c = 0; c < cases.size(); ++c) EXPECT_GE(results[c][0][0], 1u);
}

// The dwords of an access that lie in the buffer are read or written, the others are zeros or left out.
TEST_P(ModeTest, BuffersThatAnAccessLeavesInTheMiddle) {
  const char* kWidths[] = {"b32", "b64", "b96", "b128"};
  const char* kOld[] = {"dword", "dwordx2", "dwordx3", "dwordx4"};
  const auto range = [](int first, int count) {
    return count == 1 ? concat("v", first) : concat("v[", first, ":", first + count - 1, "]");
  };
  const std::string zero = gfx12() ? "null" : "0";
  std::vector<std::string> cases;
  for (int d = 1; d <= 4; ++d) {
    const std::string width = gfx9() ? kOld[d - 1] : kWidths[d - 1];
    cases.push_back(
        concat("buffer_load_", width, " ", range(64, d), ", v4, s[8:11], ", zero, " offen offset:4"));
    // The address is overwritten by the data.
    cases.push_back(concat("v_mov_b32_e32 v64, v4\nbuffer_load_", width, " ", range(64, d),
                           ", v64, s[8:11], ", zero, " offen offset:4"));
    cases.push_back(concat("s_mov_b32 s14, 60\nbuffer_store_", width, " ", range(32, d), ", v3, s[12:15], ",
                           zero, " offen offset:8\ns_mov_b32 s14, 0x7ffffff0"));
  }
  const std::string atomic = gfx9() ? "buffer_atomic_add v64, v4, s[8:11], 0 offen " +
                                          std::string(gpu.target().name == "gfx942" ? "sc0" : "glc")
                             : gfx12()
                                 ? "buffer_atomic_add_u32 v64, v4, s[8:11], null offen th:TH_ATOMIC_RETURN"
                                 : "buffer_atomic_add_u32 v64, v4, s[8:11], 0 offen glc";
  cases.push_back("v_mov_b32_e32 v64, 0\n" + atomic);
  std::vector<Lane> inputs(lanes());
  for (size_t l = 0; l < inputs.size(); ++l)
    for (size_t i = 0; i < kInputs; ++i) inputs[l][i] = static_cast<uint32_t>(1000 * (l + 1) + i);
  const auto* words = inputs[0].data();
  for (const uint32_t records : {40u, 42u, 48u, 100u}) {
    auto modes = Modes{};
    modes.records = records;
    const auto results = run(cases, inputs, modes);
    for (uint32_t lane = 0; lane < lanes(); ++lane)
      for (uint32_t d = 1; d <= 4; ++d)
        for (uint32_t form = 0; form < 2; ++form)
          for (uint32_t i = 0; i < d; ++i) {
            const uint32_t at = 4 * lane + 4 + 4 * i;
            EXPECT_EQ(results[3 * (d - 1) + form][lane][i], at + 4 <= records ? words[at / 4] : 0)
                << "dword " << i << " of " << d << " lane " << lane << " of " << records << " bytes";
          }
    for (uint32_t lane = 0; lane < lanes(); ++lane) {
      const bool inside = 4 * lane + 4 <= records;
      EXPECT_EQ(results.back()[lane][0], inside ? words[lane] : 0)
          << "atomic, lane " << lane << " of " << records;
    }
  }
}

}  // namespace
}  // namespace rocm_sd::emu
