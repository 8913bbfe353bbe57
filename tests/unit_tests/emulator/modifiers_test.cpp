// Every modifier that an encoding takes, against its meaning written down in double precision: negations,
// halves and inline constants of packed and dot operations, on every target.
#include "unit_tests/emulator/modifiers.hpp"

namespace rocm_sd::emu {
namespace {

class Modified : public ModifiersTest {};
INSTANTIATE_TEST_SUITE_P(Assembled, Modified, testing::ValuesIn(assembled()), build_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Modified);  // builds without AMD targets

TEST_P(Modified, PackedHalves) {
  using Meaning = long double (*)(long double, long double, long double);
  const struct {
    const char* name;
    int sources;
    Meaning of;
  } kOps[] = {{"v_pk_add_f16", 2, [](long double a, long double b, long double) { return a + b; }},
              {"v_pk_mul_f16", 2, [](long double a, long double b, long double) { return a * b; }},
              {"v_pk_fma_f16", 3, [](long double a, long double b, long double c) { return a * b + c; }}};
  std::vector<Op> ops;
  for (size_t which = 0; which < std::size(kOps); ++which)
    for (const Modifiers& m : some_modifiers(kOps[which].sources, 40))
      ops.push_back(
          {concat(kOps[which].name, kOps[which].sources == 3 ? " v64, v32, v33, v34" : " v64, v32, v33",
                  text_of(m, kOps[which].sources)),
           m, which});
  const size_t count = run_accepted(ops, dwords(1), "", [&](const Op& op, const Lane& in, const auto& out) {
    for (int part = 0; part < 2; ++part) {
      const auto value = [&](int s) {
        return static_cast<long double>(half_value(part_of(in[s], op.m, s, part)));
      };
      const uint32_t want = round_half(kOps[op.which].of(value(0), value(1), value(2)));
      const uint32_t got = out[0] >> 16 * part & 0xffff;
      if (!same_half(got, want)) return fmt::format("part {}: got {:04x}, want {:04x}", part, got, want);
    }
    return std::string();
  });
  EXPECT_EQ(count, ops.size());
}

// The dword that an inline constant is to an operation: integers are sign-extended; floats have the operand's
// type in the low half and zeros above, but 16-bit integers are cut from the f32 pattern.
enum class Constants { kInteger16, kHalf, kBf16 };
uint32_t constant_dword(const std::string& text, Constants kind) {
  if (text.find('.') == std::string::npos) return static_cast<uint32_t>(std::stoi(text));
  const bool turn = text == "0.15915494";
  const float value = std::stof(text);
  if (kind == Constants::kInteger16) return turn ? 0x3e22f983 : std::bit_cast<uint32_t>(value);
  if (kind == Constants::kBf16) return turn ? 0x3e22 : float_to_bf16(value);
  return turn ? 0x3118 : float_to_f16(value);
}
const std::vector<std::string>& constants() {
  static const std::vector<std::string> all = {"0",   "1",    "64",  "-1",   "-16", "0.5",  "-0.5",
                                               "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0", "0.15915494"};
  return all;
}

TEST_P(Modified, InlineConstantsOfPackedIntegers) {
  const struct {
    const char* name;
    uint32_t (*of)(uint32_t, uint32_t);
  } kOps[] = {{"v_pk_add_u16", [](uint32_t a, uint32_t b) { return a + b; }},
              {"v_pk_sub_i16", [](uint32_t a, uint32_t b) { return a - b; }},
              {"v_pk_mul_lo_u16", [](uint32_t a, uint32_t b) { return a * b; }},
              {"v_pk_max_u16", [](uint32_t a, uint32_t b) { return std::max(a, b); }},
              {"v_pk_lshrrev_b16", [](uint32_t a, uint32_t b) { return b >> (a & 15); }},
              {"v_pk_mad_u16", [](uint32_t a, uint32_t b) { return a * b + a; }}};
  std::vector<Op> ops;
  std::map<std::string, std::string> constant_of;
  for (size_t which = 0; which < std::size(kOps); ++which)
    for (const std::string& c : constants())
      for (const int hi : {7, 5}) {  // op_sel_hi of the constant
        const Modifiers m{0, 0, 0, hi};
        const bool three = which == 5;
        const std::string line =
            concat(kOps[which].name, " v64, v32, ", c, three ? ", v32" : "", text_of(m, three ? 3 : 2));
        constant_of[line] = c;
        ops.push_back({line, m, which});
      }
  const size_t count = run_accepted(ops, dwords(2), "", [&](const Op& op, const Lane& in, const auto& out) {
    const uint32_t c = constant_dword(constant_of[op.line], Constants::kInteger16);
    uint32_t want = 0;
    for (int part = 0; part < 2; ++part)
      want |=
          (kOps[op.which].of(part_of(in[0], op.m, 0, part, false), part_of(c, op.m, 1, part, false)) & 0xffff)
          << 16 * part;
    return out[0] == want ? std::string() : fmt::format("got {:08x}, want {:08x}", out[0], want);
  });
  EXPECT_EQ(count, ops.size());
}

TEST_P(Modified, InlineConstantsOfHalvesAndSixteenBits) {
  struct Form {
    std::string name;
    Constants kind;
    bool packed;
    uint32_t (*of)(uint32_t, uint32_t);
    bool integer = false;  // one alone takes the pattern of an f16: LLVM's disassembler writes it so
  };
  const auto add_half = [](uint32_t a, uint32_t b) {
    return round_half(static_cast<long double>(half_value(a & 0xffff)) + half_value(b & 0xffff));
  };
  const auto add = [](uint32_t a, uint32_t b) { return (a + b) & 0xffff; };
  const std::string none = gfx9() ? "v_add_u16_e64" : "v_add_nc_u16";
  const std::vector<Form> forms = {{"v_pk_add_f16", Constants::kHalf, true, add_half},
                                   {"v_add_f16_e64", Constants::kHalf, false, add_half},
                                   {none, Constants::kHalf, false, add, true}};
  std::vector<Op> ops;
  std::map<std::string, std::string> constant_of;
  for (size_t which = 0; which < forms.size(); ++which)
    for (const std::string& c : constants()) {
      const std::string line = concat(forms[which].name, " v64, v32, ", c);
      constant_of[line] = c;
      ops.push_back({line, {}, which});
    }
  const size_t count = run_accepted(ops, dwords(4), "", [&](const Op& op, const Lane& in, const auto& out) {
    const Form& f = forms[op.which];
    const uint32_t c = constant_dword(constant_of[op.line], f.kind);
    for (int part = 0; part < (f.packed ? 2 : 1); ++part) {
      const uint32_t got = out[0] >> 16 * part & 0xffff,
                     want = f.of(in[0] >> 16 * part & 0xffff, c >> 16 * part & 0xffff);
      if (f.integer ? got != want : !same_half(got, want))
        return fmt::format("part {}: got {:04x}, want {:04x}", part, got, want);
    }
    return std::string();
  });
  EXPECT_EQ(count, ops.size());
}

// Sums of products of pairs: f32, f16 or bf16 sums, with every selection and negation that the encoding has.
TEST_P(Modified, DotsOfPairs) {
  struct Dot {
    const char *name, *operands;
    bool bf16;
    int sum;  // bits
  };
  const Dot kDots[] = {{"v_dot2_f32_f16", " v64, v32, v33, v34", false, 32},
                       {"v_dot2_f32_bf16", " v64, v32, v33, v34", true, 32},
                       {"v_dot2c_f32_f16", " v64, v32, v33", false, 32},
                       {"v_dot2acc_f32_f16", " v64, v32, v33", false, 32},
                       {"v_dot2_f16_f16", " v64, v32, v33, v34", false, 16},
                       {"v_dot2_bf16_bf16", " v64, v32, v33, v34", true, 16}};
  size_t count = 0;
  for (const bool bf16 : {false, true}) {
    std::vector<Op> ops;
    for (size_t which = 0; which < std::size(kDots); ++which)
      if (kDots[which].bf16 == bf16)
        for (const Modifiers& m : some_modifiers(3, 40))
          if (kDots[which].sum == 32 || text_of(m, 3).empty())
            ops.push_back({concat(kDots[which].name, kDots[which].operands, text_of(m, 3)), m, which});
    for (const char* signs : {" v64, -v32, v33, v34", " v64, v32, -v33, -v34", " v64, |v32|, v33, -|v34|"})
      for (size_t which = 4; which < std::size(kDots); ++which)
        if (kDots[which].bf16 == bf16) ops.push_back({concat(kDots[which].name, signs), {}, which});
    std::vector<Lane> inputs = small_numbers(bf16, 5);
    for (size_t l = 0; l < inputs.size();
         ++l)  // the addend of 32-bit sums; as 16 bits its low half is another
      inputs[l][2] =
          std::bit_cast<uint32_t>(static_cast<float>(static_cast<int>(l % 9) - 4)) | (inputs[l][3] & 0xffff);
    count += run_accepted(
        ops, inputs, "v_mov_b32_e32 v64, v34\n", [&](const Op& op, const Lane& in, const auto& out) {
          const auto value = [&](uint32_t b) { return bf16 ? std::bit_cast<float>(b << 16) : half_value(b); };
          const bool text_signs =
              op.line.find('-') != std::string::npos || op.line.find('|') != std::string::npos;
          const auto has = [&](const char* part) { return op.line.find(part) != std::string::npos; };
          double sum = kDots[op.which].sum == 32 ? std::bit_cast<float>(in[2]) : value(in[2] & 0xffff);
          if (op.m.neg_lo & 4) sum = -sum;
          if (text_signs && has("|v34|")) sum = std::fabs(sum);
          if (text_signs && (has("-v34") || has("-|v34|"))) sum = -sum;
          for (int part = 0; part < 2; ++part) {
            double a = value(part_of(in[0], op.m, 0, part)), b = value(part_of(in[1], op.m, 1, part));
            if (text_signs && has("-v32")) a = -a;
            if (text_signs && has("|v32|")) a = std::fabs(a);
            if (text_signs && has("-v33")) b = -b;
            sum += a * b;
          }
          const double got =
              kDots[op.which].sum == 32 ? std::bit_cast<float>(out[0]) : value(out[0] & 0xffff);
          return got == sum ||
                         (kDots[op.which].sum == 32 && static_cast<float>(sum) == static_cast<float>(got))
                     ? std::string()
                     : fmt::format("got {}, want {}", got, sum);
        });
  }
  EXPECT_GT(count, gpu.target().name == "gfx942" ? 8u : 50u);  // gfx942 has few of them
}

// Of pairs of 16-bit integers, and of 8- and 4-bit ones where the negations say which are signed.
TEST_P(Modified, DotsOfIntegers) {
  struct Dot {
    const char* name;
    int bits;
    int is_signed;  // 2: as neg_lo says
  };
  const Dot kDots[] = {{"v_dot2_i32_i16", 16, 1}, {"v_dot2_u32_u16", 16, 0}, {"v_dot4_i32_iu8", 8, 2},
                       {"v_dot4_i32_i8", 8, 1},   {"v_dot4_u32_u8", 8, 0},   {"v_dot8_i32_iu4", 4, 2},
                       {"v_dot8_i32_i4", 4, 1},   {"v_dot8_u32_u4", 4, 0}};
  std::vector<Op> ops;
  for (size_t which = 0; which < std::size(kDots); ++which)
    for (const Modifiers& m : some_modifiers(3, 40))
      ops.push_back({concat(kDots[which].name, " v64, v32, v33, v34", text_of(m, 3)), m, which});
  const size_t count = run_accepted(ops, dwords(6), "", [&](const Op& op, const Lane& in, const auto& out) {
    const Dot& d = kDots[op.which];
    uint64_t sum = in[2];
    for (int i = 0; i < 32 / d.bits; ++i) {
      const auto element = [&](int s) {
        uint32_t bits = in[s] >> d.bits * i;
        if (d.bits == 16) bits = part_of(in[s], op.m, s, i, false);
        const bool is_signed = d.is_signed == 2 ? op.m.neg_lo >> s & 1 : d.is_signed == 1;
        const int64_t top = static_cast<int64_t>(static_cast<uint64_t>(bits) << (64 - d.bits));
        return is_signed ? top >> (64 - d.bits)
                         : static_cast<int64_t>(static_cast<uint64_t>(top) >> (64 - d.bits));
      };
      sum += static_cast<uint64_t>(element(0) * element(1));
    }
    return out[0] == static_cast<uint32_t>(sum) ? std::string() : fmt::format("got {:08x}", out[0]);
  });
  EXPECT_GT(count, 4u);
}

}  // namespace
}  // namespace rocm_sd::emu
