// The meaning of modifiers, in double precision, and a test that asks it of every operation that takes them.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>

#include "base/dtype.hpp"
#include "base/format.hpp"
#include "unit_tests/emulator/assembler.hpp"

namespace rocm_sd::emu {

inline double half_value(uint32_t bits) { return f16_to_float(static_cast<uint16_t>(bits)); }

// To f16 once, from a sum that long double holds exactly.
inline uint32_t round_half(long double x) {
  if (std::isnan(x)) return 0x7e00;
  const uint32_t sign = std::signbit(x) ? 0x8000 : 0;
  const long double magnitude = std::fabs(x);
  if (magnitude == 0) return sign;
  if (std::isinf(magnitude)) return sign | 0x7c00;
  const int unit = std::max(std::ilogb(magnitude) - 10, -24);
  const long double rounded = std::ldexp(std::nearbyint(std::ldexp(magnitude, -unit)), unit);
  return sign | (rounded > 65504 ? 0x7c00u : float_to_f16(static_cast<float>(rounded)));
}
inline bool same_half(uint32_t got, uint32_t want) {
  const bool nan = (want & 0x7fff) > 0x7c00;
  return nan ? (got & 0x7fff) > 0x7c00 : got == want;
}

// Bits of modifiers, one for each source.
struct Modifiers {
  int neg_lo = 0, neg_hi = 0, op_sel = 0, op_sel_hi = 7;
};
inline std::string list_of_bits(const char* name, int bits, int sources) {
  std::string out = concat(" ", name, ":[");
  for (int s = 0; s < sources; ++s) out += concat(s ? "," : "", bits >> s & 1);
  return out + "]";
}
inline std::string text_of(const Modifiers& m, int sources) {
  const int all = (1 << sources) - 1;
  std::string out;
  if (m.op_sel & all) out += list_of_bits("op_sel", m.op_sel, sources);
  if ((m.op_sel_hi & all) != all) out += list_of_bits("op_sel_hi", m.op_sel_hi, sources);
  if (m.neg_lo & all) out += list_of_bits("neg_lo", m.neg_lo, sources);
  if (m.neg_hi & all) out += list_of_bits("neg_hi", m.neg_hi, sources);
  return out;
}
// None, each bit alone, all, and some at random.
inline std::vector<Modifiers> some_modifiers(int sources, int random) {
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
inline uint32_t part_of(uint32_t value, const Modifiers& m, int source, int part, bool is_float = true) {
  const int half = (part ? m.op_sel_hi : m.op_sel) >> source & 1;
  const uint32_t bits = (half ? value >> 16 : value) & 0xffff;
  return is_float && (part ? m.neg_hi : m.neg_lo) >> source & 1 ? bits ^ 0x8000 : bits;
}

class ModifiersTest : public CasesTest {
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

}  // namespace rocm_sd::emu
