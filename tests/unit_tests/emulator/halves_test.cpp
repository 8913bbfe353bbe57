// Halves of registers in the long and the short encoding, and comparisons of permuted lanes, on every target.
#include "unit_tests/emulator/modifiers.hpp"

namespace rocm_sd::emu {
namespace {

class Halves : public ModifiersTest {};
INSTANTIATE_TEST_SUITE_P(Assembled, Halves, testing::ValuesIn(assembled()), build_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Halves);  // builds without AMD targets

// ---- halves in the long encoding, whose bits LLVM 19 does not print ----

TEST_P(Halves, HalvesInTheLongEncoding) {
  if (gfx9()) GTEST_SKIP() << "gfx9 has them for a few operations, which it prints";
  using V = std::array<uint32_t, 3>;  // 16 bits each
  struct Operation16 {
    std::string text;
    int sources;
    uint32_t (*of)(V);
    int wide = 0;  // 1: the result is a dword, 2: a mask
  };
  const auto h = [](uint32_t b) { return static_cast<long double>(half_value(b)); };
  static const auto value = h;
  const std::string num = gfx12() ? "_num" : "";
  const Operation16 kOps[] = {
      {"v_add_f16_e64 v64, v32, v33", 2, [](V s) { return round_half(value(s[0]) + value(s[1])); }},
      {"v_mul_f16_e64 v64, v32, v33", 2, [](V s) { return round_half(value(s[0]) * value(s[1])); }},
      {"v_fma_f16 v64, v32, v33, v34", 3,
       [](V s) { return round_half(value(s[0]) * value(s[1]) + value(s[2])); }},
      {"v_mad_u16 v64, v32, v33, v34", 3, [](V s) { return s[0] * s[1] + s[2]; }},
      {"v_add_nc_u16 v64, v32, v33", 2, [](V s) { return s[0] + s[1]; }},
      {"v_mul_lo_u16 v64, v32, v33", 2, [](V s) { return s[0] * s[1]; }},
      {"v_lshlrev_b16 v64, v32, v33", 2, [](V s) { return s[1] << (s[0] & 15); }},
      {"v_xor_b16 v64, v32, v33", 2, [](V s) { return s[0] ^ s[1]; }},
      {"v_max_u16 v64, v32, v33", 2, [](V s) { return std::max(s[0], s[1]); }},
      {"v_not_b16_e64 v64, v32", 1, [](V s) { return ~s[0]; }},
      {"v_pack_b32_f16 v64, v32, v33", 2, [](V s) { return s[0] | s[1] << 16; }, 1},
      {"v_cvt_u32_u16_e64 v64, v32", 1, [](V s) { return s[0]; }, 1},
      {"v_cmp_lt_u16_e64 vcc_lo, v32, v33\nv_cndmask_b32_e64 v64, 0, 1, vcc_lo", 2,
       [](V s) { return s[0] < s[1] ? 1u : 0u; }, 1},
      {"v_cmp_lt_f16_e64 vcc_lo, v32, v33\nv_cndmask_b32_e64 v64, 0, 1, vcc_lo", 2,
       [](V s) { return value(s[0]) < value(s[1]) ? 1u : 0u; }, 1}};
  // Their encodings, from a first object.
  std::vector<std::string> plain;
  for (const Operation16& op : kOps) plain.push_back("s_nop 9\n" + op.text);
  const CodeObject first = gpu.load(assemble(GetParam().target, kernel_text(plain, {})), "plain");
  std::vector<std::array<uint32_t, 2>> encodings;
  for (const Inst& inst : first.program().code)
    if (!encodings.empty() && encodings.back()[1] == 0)
      std::memcpy(encodings.back().data(), reinterpret_cast<const void*>(inst.address), 8);
    else if (first.program().texts[inst.text] == "s_nop 9")
      encodings.push_back({0, 0});
  ASSERT_EQ(encodings.size(), std::size(kOps));
  std::vector<std::string> cases;
  std::vector<std::pair<size_t, uint32_t>> what;
  for (size_t i = 0; i < std::size(kOps); ++i)
    for (uint32_t select = 0; select < 16; ++select) {
      if ((select & 7) >> kOps[i].sources || (kOps[i].wide && select & 8)) continue;
      const size_t rest = kOps[i].text.find('\n');
      cases.push_back(concat(".long ", encodings[i][0] | select << 11, ", ", encodings[i][1],
                             rest == std::string::npos ? "" : kOps[i].text.substr(rest)));
      what.emplace_back(i, select);
    }
  const std::vector<Lane> inputs = dwords(9);
  const auto results = run(cases, inputs);
  for (size_t c = 0; c < cases.size(); ++c)
    for (uint32_t lane = 0; lane < 32; ++lane) {
      const auto [which, select] = what[c];
      V s{};
      for (uint32_t k = 0; k < 3; ++k)
        s[k] = (select >> k & 1 ? inputs[lane][k] >> 16 : inputs[lane][k]) & 0xffff;
      uint32_t want = kOps[which].of(s), got = results[c][lane][0];
      if (!kOps[which].wide) {
        const bool high = select & 8;
        EXPECT_EQ(high ? got & 0xffff : got >> 16, 0x1111u) << kOps[which].text << " op_sel " << select;
        want &= 0xffff;
        got = high ? got >> 16 : got & 0xffff;
        const bool is_half = kOps[which].text.find("f16") != std::string::npos;
        ASSERT_TRUE(is_half ? same_half(got, want) : got == want)
            << kOps[which].text << " op_sel " << select << " lane " << lane << std::hex << ": " << got
            << " for " << want;
      } else {
        ASSERT_EQ(got, want) << kOps[which].text << " op_sel " << select << " lane " << lane;
      }
    }
}

// Short encodings name high halves themselves; compilers since LLVM 20 write them.
TEST_P(Halves, HighHalvesInTheShortEncoding) {
  if (gfx9()) GTEST_SKIP() << "gfx9 has none";
  // v_add_f16_e32 v64.h, v32.h, v33.l and v_mov_b16_e32 v64.h, v32.l: bit 7 of a register says that it is the
  // high half.
  const auto results = run({concat(".long ", 0x64000000u | 0xc0u << 17 | 33u << 9 | 0x1a0u),
                            concat(".long ", 0x7e000000u | 0xc0u << 17 | 0x1cu << 9 | 0x120u)},
                           dwords(10));
  const auto inputs = dwords(10);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t sum = round_half(static_cast<long double>(half_value(inputs[lane][0] >> 16)) +
                                    half_value(inputs[lane][1] & 0xffff));
    EXPECT_TRUE(same_half(results[0][lane][0] >> 16, sum)) << lane;
    EXPECT_EQ(results[0][lane][0] & 0xffff, 0x1111u);
    EXPECT_EQ(results[1][lane][0], (inputs[lane][0] & 0xffff) << 16 | 0x1111u);
  }
}

// ---- comparisons of permuted lanes ----

TEST_P(Halves, ComparisonsOfPermutedLanes) {
  if (gfx9()) GTEST_SKIP() << "gfx9 has none";
  struct Pattern {
    const char* text;
    int (*from)(int);  // -1: none, and the lane takes no part
  };
  const Pattern kPatterns[] = {{"quad_perm:[1,0,3,2]", [](int l) { return l ^ 1; }},
                               {"row_shl:3", [](int l) { return l % 16 + 3 < 16 ? l + 3 : -1; }},
                               {"row_shr:1", [](int l) { return l % 16 ? l - 1 : -1; }},
                               {"row_ror:5", [](int l) { return l / 16 * 16 + (l + 11) % 16; }},
                               {"row_mirror", [](int l) { return l / 16 * 16 + 15 - l % 16; }},
                               {"row_half_mirror", [](int l) { return l / 8 * 8 + 7 - l % 8; }},
                               {"row_share:4", [](int l) { return l / 16 * 16 + 4; }},
                               {"row_xmask:6", [](int l) { return l ^ 6; }},
                               {"dpp8:[7,6,5,4,3,2,1,0]", [](int l) { return l / 8 * 8 + 7 - l % 8; }}};
  std::vector<std::string> cases;
  for (const Pattern& p : kPatterns) {
    const std::string tail = std::string(p.text).starts_with("dpp8")
                                 ? concat(" ", p.text)
                                 : concat(" ", p.text, " row_mask:0xf bank_mask:0xf");
    cases.push_back(concat("v_cmp_lt_u32 vcc_lo, v32, v33", tail, "\nv_cndmask_b32_e64 v64, 0, 1, vcc_lo"));
    cases.push_back(concat("v_cmp_lt_u32_e64_dpp s20, v32, v33", tail, "\nv_cndmask_b32_e64 v64, 0, 1, s20"));
    cases.push_back(concat("v_mov_b32_e32 v64, 0\nv_cmpx_lt_u32 v32, v33", tail,
                           "\nv_mov_b32_e32 v64, 1\ns_mov_b32 exec_lo, -1"));
  }
  const auto inputs = dwords(11);
  const auto results = run(cases, inputs);
  for (size_t c = 0; c < cases.size(); ++c)
    for (int lane = 0; lane < 32; ++lane) {
      const int from = kPatterns[c / 3].from(lane);
      const uint32_t want =
          from >= 0 && inputs[static_cast<size_t>(from)][0] < inputs[static_cast<size_t>(lane)][1];
      EXPECT_EQ(results[c][static_cast<size_t>(lane)][0], want) << cases[c] << " lane " << lane;
    }
}

}  // namespace
}  // namespace rocm_sd::emu
