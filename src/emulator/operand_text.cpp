#include "emulator/operand_text.hpp"

#include <array>
#include <charconv>
#include <string>
#include <tuple>
#include <utility>

#include "emulator/lanes.hpp"

namespace rocm_sd::emu {

namespace {

constexpr uint16_t kAccumulators = 256;  // row of a0

bool take_prefix(std::string_view& s, std::string_view prefix, std::string_view suffix) {
  if (!s.starts_with(prefix) || !s.ends_with(suffix) || s.size() < prefix.size() + suffix.size())
    return false;
  s = s.substr(prefix.size(), s.size() - prefix.size() - suffix.size());
  return true;
}

// "7" or "[4:7]" -> first and count.
std::optional<std::pair<uint32_t, uint32_t>> parse_range(std::string_view s) {
  uint32_t first = 0, last = 0;
  if (take_prefix(s, "[", "]")) {
    const size_t colon = s.find(':');
    const std::string_view a = s.substr(0, colon);
    const std::string_view b = colon == std::string_view::npos ? a : s.substr(colon + 1);
    if (std::from_chars(a.data(), a.data() + a.size(), first).ec != std::errc{}) return {};
    if (std::from_chars(b.data(), b.data() + b.size(), last).ec != std::errc{} || last < first) return {};
    return std::pair{first, last - first + 1};
  }
  const auto result = std::from_chars(s.data(), s.data() + s.size(), first);
  if (result.ec != std::errc{} || result.ptr != s.data() + s.size()) return {};
  return std::pair{first, 1u};
}

struct Named {
  std::string_view name;
  Kind kind;
  uint16_t reg;
  uint8_t dwords;
};
constexpr std::array kNamed = {
    Named{"vcc", Kind::kSgpr, kVcc, 2},
    Named{"vcc_lo", Kind::kSgpr, kVcc, 1},
    Named{"vcc_hi", Kind::kSgpr, kVcc + 1, 1},
    Named{"exec", Kind::kSgpr, kExec, 2},
    Named{"exec_lo", Kind::kSgpr, kExec, 1},
    Named{"exec_hi", Kind::kSgpr, kExec + 1, 1},
    Named{"m0", Kind::kSgpr, kM0, 1},
    Named{"src_scc", Kind::kSgpr, kScc, 1},
    Named{"scc", Kind::kSgpr, kScc, 1},
    Named{"src_vccz", Kind::kSpecial, kVccz, 1},
    Named{"src_execz", Kind::kSpecial, kExecz, 1},
    Named{"src_shared_base", Kind::kSgpr, kSharedBase, 2},
    Named{"src_shared_limit", Kind::kSgpr, kSharedLimit, 2},
    Named{"src_private_base", Kind::kSgpr, kPrivateBase, 2},
    Named{"src_private_limit", Kind::kSgpr, kPrivateLimit, 2},
    Named{"flat_scratch", Kind::kSgpr, kFlatScratch, 2},
    Named{"flat_scratch_lo", Kind::kSgpr, kFlatScratch, 1},
    Named{"flat_scratch_hi", Kind::kSgpr, kFlatScratch + 1, 1},
    Named{"xnack_mask", Kind::kSgpr, 104, 2},
    Named{"xnack_mask_lo", Kind::kSgpr, 104, 1},
    Named{"xnack_mask_hi", Kind::kSgpr, 105, 1},
    Named{"src_flat_scratch_base_lo", Kind::kSgpr, kFlatScratch, 1},
    Named{"src_flat_scratch_base_hi", Kind::kSgpr, kFlatScratch + 1, 1},
};

uint64_t float_bits(std::string_view text, Type type, double value) {
  const bool turn =
      text == "0.15915494" || text == "0.15915494309189532" || text == "0.1592" || text == "0.15915";
  switch (type) {
    case Type::kF64:
    case Type::kB64: return turn ? 0x3fc45f306dc9c882ull : __builtin_bit_cast(uint64_t, value);
    case Type::kF16:
    case Type::kHalfBits:
    case Type::kPkF16: return turn ? 0x3118 : ROCM_SD_ISA::float_to_half(static_cast<float>(value));
    case Type::kBf16:
    case Type::kPkBf16: return turn ? 0x3e22 : ROCM_SD_ISA::float_to_bf16(static_cast<float>(value));
    // 16-bit integers are cut from the f32 pattern, packed ones are both of its halves: LLVM,
    // getInlineEncodingV216().
    default: break;
  }
  return turn ? 0x3e22f983u : __builtin_bit_cast(uint32_t, static_cast<float>(value));
}

std::optional<uint64_t> constant_bits(std::string_view text, Type type) {
  if (text.find('.') != std::string_view::npos) {
    double value = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    if (result.ec != std::errc{} || result.ptr != text.data() + text.size()) return {};
    return float_bits(text, type, value);
  }
  const auto value = parse_integer(text);
  if (!value) return {};
  const bool literal = text.find("0x") != std::string_view::npos;
  const auto bits = static_cast<uint64_t>(*value);
  // A literal is 32 bits: of a double the high ones.
  if (type == Type::kF64 && literal && bits <= 0xffffffff) return bits << 32;
  if (type == Type::kF64 || type == Type::kB64 || type == Type::kMask) return bits;
  return bits & 0xffffffff;
}

}  // namespace

std::optional<int64_t> parse_integer(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  const bool hex = text.starts_with("0x");
  if (hex) text.remove_prefix(2);
  uint64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value, hex ? 16 : 10);
  if (text.empty() || result.ec != std::errc{} || result.ptr != text.data() + text.size()) return {};
  return static_cast<int64_t>(negative ? 0 - value : value);
}

std::optional<Operand> parse_operand(std::string_view text, Type type) {
  Operand o;
  o.type = type;
  if (take_prefix(text, "sext(", ")")) o.sdwa |= kSignExtend;
  if (take_prefix(text, "neg(", ")")) o.neg = true;
  if (text.starts_with('-') && text.size() > 1 && (text[1] < '0' || text[1] > '9')) {
    o.neg = true;
    text.remove_prefix(1);
  }
  if (take_prefix(text, "|", "|") || take_prefix(text, "abs(", ")")) o.abs = true;
  o.modified = o.neg || o.abs || o.sdwa;
  if (text == "off") return o;
  if (text == "null") {
    o.kind = Kind::kConst;
    return o;
  }
  for (const Named& n : kNamed)
    if (n.name == text) {
      o.kind = n.kind;
      o.reg = n.reg;
      o.dwords = n.dwords;
      return o;
    }
  std::string_view rest = text;
  if (rest.ends_with(".h")) o.half = 1;
  if (rest.ends_with(".h") || rest.ends_with(".l")) rest.remove_suffix(2);
  for (const auto& [prefix, kind, base, limit] :
       {std::tuple{std::string_view("ttmp"), Kind::kSgpr, uint16_t{kTtmp}, 16u},
        std::tuple{std::string_view("v"), Kind::kVgpr, uint16_t{0}, 256u},
        std::tuple{std::string_view("a"), Kind::kVgpr, kAccumulators, 256u},
        std::tuple{std::string_view("s"), Kind::kSgpr, uint16_t{0}, 106u}}) {
    if (!rest.starts_with(prefix)) continue;
    const auto range = parse_range(rest.substr(prefix.size()));
    if (!range || range->first + range->second > limit || range->second > 32) continue;
    o.kind = kind;
    o.reg = static_cast<uint16_t>(base + range->first);
    o.dwords = static_cast<uint8_t>(range->second);
    return o;
  }
  const auto bits = constant_bits(text, type);
  if (!bits) return {};
  o.kind = Kind::kConst;
  o.bits = *bits;
  return o;
}

}  // namespace rocm_sd::emu
