// Every modifier that an encoding takes, against its meaning written down in double precision: negations,
// halves, inline constants and lane permutations of packed, dot and matrix operations, on every target.
#include <algorithm>
#include <cmath>
#include <random>

#include "base/dtype.hpp"
#include "base/format.hpp"
#include "unit_tests/emulator/assembler.hpp"

namespace rocm_sd::emu {
namespace {

// ---- meanings ----

double half_value(uint32_t bits) { return f16_to_float(static_cast<uint16_t>(bits)); }

// To f16 once, from a sum that long double holds exactly.
uint32_t round_half(long double x) {
  if (std::isnan(x)) return 0x7e00;
  const uint32_t sign = std::signbit(x) ? 0x8000 : 0;
  const long double magnitude = std::fabs(x);
  if (magnitude == 0) return sign;
  if (std::isinf(magnitude)) return sign | 0x7c00;
  const int unit = std::max(std::ilogb(magnitude) - 10, -24);
  const long double rounded = std::ldexp(std::nearbyint(std::ldexp(magnitude, -unit)), unit);
  return sign | (rounded > 65504 ? 0x7c00u : float_to_f16(static_cast<float>(rounded)));
}
bool same_half(uint32_t got, uint32_t want) {
  const bool nan = (want & 0x7fff) > 0x7c00;
  return nan ? (got & 0x7fff) > 0x7c00 : got == want;
}

// Bits of modifiers, one for each source.
struct Modifiers {
  int neg_lo = 0, neg_hi = 0, op_sel = 0, op_sel_hi = 7;
};
std::string list_of_bits(const char* name, int bits, int sources) {
  std::string out = concat(" ", name, ":[");
  for (int s = 0; s < sources; ++s) out += concat(s ? "," : "", bits >> s & 1);
  return out + "]";
}
std::string text_of(const Modifiers& m, int sources) {
  const int all = (1 << sources) - 1;
  std::string out;
  if (m.op_sel & all) out += list_of_bits("op_sel", m.op_sel, sources);
  if ((m.op_sel_hi & all) != all) out += list_of_bits("op_sel_hi", m.op_sel_hi, sources);
  if (m.neg_lo & all) out += list_of_bits("neg_lo", m.neg_lo, sources);
  if (m.neg_hi & all) out += list_of_bits("neg_hi", m.neg_hi, sources);
  return out;
}
// None, each bit alone, all, and some at random.
std::vector<Modifiers> some_modifiers(int sources, int random) {
  std::vector<Modifiers> out{{}};
  for (int s = 0; s < sources; ++s) {
    out.push_back({1 << s, 0, 0, 7});
    out.push_back({0, 1 << s, 0, 7});
    out.push_back({0, 0, 1 << s, 7});
    out.push_back({0, 0, 0, 7 & ~(1 << s)});
  }
  out.push_back({7, 7, 7, 0});
  std::mt19937 engine(3);
  for (int i = 0; i < random; ++i)
    out.push_back({static_cast<int>(engine() & 7), static_cast<int>(engine() & 7),
                   static_cast<int>(engine() & 7), static_cast<int>(engine() & 7)});
  return out;
}
// The 16 bits that a source of a packed operation gives for result `part`.
uint32_t part_of(uint32_t value, const Modifiers& m, int source, int part, bool is_float = true) {
  const int half = (part ? m.op_sel_hi : m.op_sel) >> source & 1;
  const uint32_t bits = (half ? value >> 16 : value) & 0xffff;
  return is_float && (part ? m.neg_hi : m.neg_lo) >> source & 1 ? bits ^ 0x8000 : bits;
}

class Modified : public CasesTest {
 protected:
  struct Op {
    std::string line;
    Modifiers m;
    size_t which;  // of the operations of the test
  };
  // Runs those of the lines that the assembler takes and asks `check(op, in, out)` of every lane; returns how
  // many they were.
  template <class Check>
  size_t run_accepted(const std::vector<Op>& ops, const std::vector<Lane>& inputs, const std::string& before,
                      Check check) {
    std::vector<std::string> lines;
    for (const Op& op : ops) lines.push_back(op.line);
    const std::vector<bool> ok = accepted(lines);
    std::vector<const Op*> taken;
    std::vector<std::string> cases;
    for (size_t i = 0; i < ops.size(); ++i)
      if (ok[i]) {
        taken.push_back(&ops[i]);
        cases.push_back(before + ops[i].line);
      }
    if (cases.empty()) return 0;
    const auto results = run(cases, inputs);
    for (size_t i = 0; i < taken.size(); ++i)
      for (uint32_t lane = 0; lane < lanes(); ++lane) {
        const std::string wrong = check(*taken[i], inputs[lane], results[i][lane]);
        EXPECT_EQ(wrong, "") << taken[i]->line << " lane " << lane;
        if (!wrong.empty()) return cases.size();
      }
    return cases.size();
  }
  // Random dwords; the first lanes hold edges of f16.
  std::vector<Lane> dwords(uint32_t seed) {
    static constexpr uint16_t kEdges[] = {0,      0x8000, 1,      0x8001, 0x3ff,  0x400,  0x7bff, 0xfbff,
                                          0x7c00, 0xfc00, 0x7e00, 0x3c00, 0xbc00, 0x3c01, 0x1400, 0x6bff};
    std::mt19937 engine(seed);
    std::vector<Lane> out(lanes());
    for (size_t l = 0; l < out.size(); ++l)
      for (uint32_t& v : out[l])
        v = l < 16 ? kEdges[engine() % 16] | static_cast<uint32_t>(kEdges[engine() % 16]) << 16 : engine();
    return out;
  }
  // Pairs of small whole numbers of a type, so that every sum is exact.
  std::vector<Lane> small_numbers(bool bf16, uint32_t seed) {
    std::mt19937 engine(seed);
    const auto number = [&] {
      const auto x = static_cast<float>(static_cast<int>(engine() % 7) - 3);
      return static_cast<uint32_t>(bf16 ? float_to_bf16(x) : float_to_f16(x));
    };
    std::vector<Lane> out(lanes());
    for (Lane& lane : out)
      for (uint32_t& v : lane) {
        v = number();
        v |= number() << 16;
      }
    return out;
  }
};
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

// ---- matrix instructions of RDNA: fragment maps as docs/emulator.md's sources state them ----

struct Wmma {
  const char* types;  // behind v_wmma_
  char element;       // f, b (bf16), 8, 4 (integers)
  int depth;
};

TEST_P(Modified, SignsOfMatrixOperands) {
  if (gfx9()) GTEST_SKIP() << "MFMA has no such modifiers";
  const Wmma kAll[] = {{"f32_16x16x16_f16", 'f', 16},
                       {"f32_16x16x16_bf16", 'b', 16},
                       {"i32_16x16x16_iu8", '8', 16},
                       {"i32_16x16x16_iu4", '4', 16},
                       {"i32_16x16x32_iu4", '4', 32}};
  for (const Wmma& wmma : kAll) {
    if (wmma.depth == 32 && !gfx12()) continue;
    const int bits = wmma.element == '8' ? 8 : wmma.element == '4' ? 4 : 16;
    const bool is_float = bits == 16;
    const int each = gfx12() ? wmma.depth / 2 : wmma.depth;  // elements of a lane
    const int dwords_each = each * bits / 32;
    const auto range = [](int first, int count) {
      return count == 1 ? concat("v", first) : concat("v[", first, ":", first + count - 1, "]");
    };
    std::vector<Op> ops;
    for (int lo = 0; lo < 8; ++lo)
      for (int hi = 0; hi < 8; ++hi) {
        const Modifiers m{lo, hi, 0, 7};
        ops.push_back({concat("v_wmma_", wmma.types, " v[64:71], ", range(32, dwords_each), ", ",
                              range(40, dwords_each), ", v[48:55]", text_of(m, 3)),
                       m, 0});
      }
    // On gfx11 both halves of a wave hold the same A and B.
    std::vector<Lane> inputs = is_float ? small_numbers(wmma.element == 'b', 7) : dwords(7);
    for (uint32_t l = 0; l < 32; ++l)
      for (int r = 0; r < 8; ++r) {
        if (!gfx12()) inputs[l][r] = inputs[l % 16][r], inputs[l][8 + r] = inputs[l % 16][8 + r];
        const int c = static_cast<int>((l * 8 + static_cast<uint32_t>(r)) % 15) - 7;
        inputs[l][16 + r] =
            is_float ? std::bit_cast<uint32_t>(static_cast<float>(c)) : static_cast<uint32_t>(c);
      }
    // Element k of row (A) or column (B) `index`.
    const auto element = [&](const Modifiers& m, int operand, int index, int k) -> double {
      const int lane = gfx12() ? index + 16 * (k / each) : index, i = gfx12() ? k % each : k;
      const uint32_t dword =
          inputs[static_cast<size_t>(lane)][static_cast<size_t>(8 * operand + i * bits / 32)];
      const uint32_t raw = dword >> (i * bits % 32) & ((1u << bits) - 1);
      if (!is_float) {
        const bool is_signed = m.neg_lo >> operand & 1;
        return is_signed && raw >> (bits - 1) ? static_cast<double>(raw) - (1 << bits) : raw;
      }
      const double v = wmma.element == 'b' ? std::bit_cast<float>(raw << 16) : half_value(raw);
      return (i % 2 ? m.neg_hi : m.neg_lo) >> operand & 1 ? -v : v;
    };
    std::map<int, std::vector<double>> products;  // by the modifiers of A and B
    size_t lane_of_check = 0;
    const auto check = [&](const Op& op, const Lane& in, const auto& out) {
      const int lane = static_cast<int>(lane_of_check++ % 32);
      auto& ab = products[(op.m.neg_lo & 3) | (op.m.neg_hi & 3) << 2];
      if (ab.empty())
        for (int row = 0; row < 16; ++row)
          for (int col = 0; col < 16; ++col) {
            double sum = 0;
            for (int k = 0; k < wmma.depth; ++k) sum += element(op.m, 0, row, k) * element(op.m, 1, col, k);
            ab.push_back(sum);
          }
      for (int i = 0; i < 8; ++i) {
        const int row = gfx12() ? i + 8 * (lane / 16) : 2 * i + lane / 16;
        double c = is_float ? std::bit_cast<float>(in[16 + i]) : static_cast<int32_t>(in[16 + i]);
        if (is_float && op.m.neg_hi & 4) c = std::fabs(c);
        if (is_float && op.m.neg_lo & 4) c = -c;
        const double want = c + ab[static_cast<size_t>(row * 16 + lane % 16)];
        const double got = is_float ? std::bit_cast<float>(out[i]) : static_cast<int32_t>(out[i]);
        if (got != want) return fmt::format("row {}: got {}, want {}", row, got, want);
      }
      return std::string();
    };
    const size_t count = run_accepted(ops, inputs, "", check);
    EXPECT_GE(count, is_float ? 64u : 4u) << wmma.types;
  }
}

// A sparse product with a negated operand is the plain one of the negated data.
TEST_P(Modified, SignsOfSparseOperands) {
  if (!gfx12()) GTEST_SKIP() << "only gfx12 has them";
  std::vector<std::string> cases;
  for (const char* type : {"f16", "bf16"})
    for (const auto& [modifier, mask, first, count] :
         {std::tuple{" neg_lo:[1,0,0]", "0x8000", 32, 4}, std::tuple{" neg_hi:[1,0,0]", "0x80000000", 32, 4},
          std::tuple{" neg_lo:[0,1,0]", "0x8000", 40, 8},
          std::tuple{" neg_hi:[0,1,0]", "0x80000000", 40, 8}}) {
      std::string flip, zero;
      for (int r = 0; r < count; ++r)
        flip += concat("v_xor_b32_e32 v", first + r, ", ", mask, ", v", first + r, "\n");
      for (int r = 64; r < 72; ++r) zero += concat("v_mov_b32_e32 v", r, ", 0\n");
      const std::string op = concat("v_swmmac_f32_16x16x32_", type, " v[64:71], v[32:35], v[40:47], v48");
      cases.push_back(zero + op + modifier);
      cases.push_back(zero + flip + op + "\n" + flip);
    }
  const auto results = run(cases, small_numbers(false, 8));
  for (size_t i = 0; i < cases.size(); i += 2) EXPECT_EQ(results[i], results[i + 1]) << cases[i];
}

// ---- halves in the long encoding, whose bits LLVM 19 does not print ----

TEST_P(Modified, HalvesInTheLongEncoding) {
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
TEST_P(Modified, HighHalvesInTheShortEncoding) {
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

TEST_P(Modified, ComparisonsOfPermutedLanes) {
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
