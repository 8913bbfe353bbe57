#include "emulator/lane_maps.hpp"

#include "emulator/operand_text.hpp"

namespace rocm_sd::emu {

namespace {

// The lane that `lane` reads under one pattern; -1: none. Sources: "Data parallel processing" of the ISA
// documents.
struct Pattern {
  enum Form {
    kNone,
    kQuad,
    kShl,
    kShr,
    kRor,
    kMirror,
    kHalfMirror,
    kShare,
    kXmask,
    kWaveShl,
    kWaveShr,
    kWaveRol,
    kWaveRor,
    kBcast15,
    kBcast31,
    kEight
  } form = kNone;
  int amount = 0;
  std::vector<int> picks;

  int from(int lane) const {
    const int row = lane & ~15, at = lane & 15;
    switch (form) {
      case kQuad: return (lane & ~3) + (picks[static_cast<size_t>(lane & 3)] & 3);
      case kEight: return (lane & ~7) + (picks[static_cast<size_t>(lane & 7)] & 7);
      case kShl: return at + amount <= 15 ? lane + amount : -1;
      case kShr: return at - amount >= 0 ? lane - amount : -1;
      case kRor: return row + ((at - amount) & 15);
      case kMirror: return row + 15 - at;
      case kHalfMirror: return (lane & ~7) + 7 - (lane & 7);
      case kShare: return row + (amount & 15);
      case kXmask: return row + (at ^ (amount & 15));
      case kWaveShl: return lane + 1 < 64 ? lane + 1 : -1;
      case kWaveShr: return lane - 1;
      case kWaveRol: return (lane + 1) & 63;
      case kWaveRor: return (lane - 1) & 63;
      case kBcast15: return row >= 16 ? row - 1 : -1;
      case kBcast31: return lane >= 32 ? 31 : -1;
      case kNone: break;
    }
    return -1;
  }
};

Pattern pattern_of(const Assembly& parts) {
  if (const auto v = parts.value("quad_perm"); !v.empty()) {
    Pattern p{Pattern::kQuad, 0, list_of(v)};
    return p.picks.size() == 4 ? p : Pattern{};
  }
  if (const auto v = parts.value("dpp8"); !v.empty()) {
    Pattern p{Pattern::kEight, 0, list_of(v)};
    return p.picks.size() == 8 ? p : Pattern{};
  }
  if (parts.has("row_mirror")) return {Pattern::kMirror, 0, {}};
  if (parts.has("row_half_mirror")) return {Pattern::kHalfMirror, 0, {}};
  static constexpr std::pair<std::string_view, Pattern::Form> kForms[] = {
      {"row_shl", Pattern::kShl},      {"row_shr", Pattern::kShr},        {"row_ror", Pattern::kRor},
      {"row_share", Pattern::kShare},  {"row_newbcast", Pattern::kShare}, {"row_xmask", Pattern::kXmask},
      {"wave_shl", Pattern::kWaveShl}, {"wave_shr", Pattern::kWaveShr},   {"wave_rol", Pattern::kWaveRol},
      {"wave_ror", Pattern::kWaveRor}};
  for (const auto& [name, form] : kForms)
    if (const auto n = parse_integer(parts.value(name))) return {form, static_cast<int>(*n), {}};
  if (const auto n = parse_integer(parts.value("row_bcast")))
    return {*n == 31 ? Pattern::kBcast31 : Pattern::kBcast15, 0, {}};
  return {};
}

}  // namespace

bool lane_map(const Assembly& parts, LaneMap& out) {
  const Pattern pattern = pattern_of(parts);
  if (pattern.form == Pattern::kNone) return false;
  const auto rows = static_cast<uint32_t>(parse_integer(parts.value("row_mask")).value_or(15));
  const auto banks = static_cast<uint32_t>(parse_integer(parts.value("bank_mask")).value_or(15));
  out.write_mask = 0;
  for (int lane = 0; lane < 64; ++lane) {
    out.from[lane] = static_cast<int8_t>(pattern.from(lane));
    if ((rows >> (lane / 16) & 1) && (banks >> (lane / 4 % 4) & 1)) out.write_mask |= 1ull << lane;
  }
  out.bound_zero = !parts.value("bound_ctrl").empty() || pattern.form == Pattern::kEight;
  out.fetch_inactive = parts.value("fi") == "1";
  return true;
}

std::optional<int32_t> swizzle_control(std::string_view text) {
  const size_t open = text.find('('), close = text.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos) return {};
  const std::string_view inside = text.substr(open + 1, close - open - 1);
  const std::string_view mode = inside.substr(0, inside.find(','));
  const auto numbers = list_of(inside);  // the mode counts as 0
  const auto bits = [](int value, int low) { return value << low; };
  if (mode == "QUAD_PERM" && numbers.size() == 5)
    return 0x8000 | bits(numbers[1] & 3, 0) | bits(numbers[2] & 3, 2) | bits(numbers[3] & 3, 4) |
           bits(numbers[4] & 3, 6);
  if (mode == "SWAP" && numbers.size() == 2) return 0x1f | bits(numbers[1] & 31, 10);
  if (mode == "REVERSE" && numbers.size() == 2) return 0x1f | bits((numbers[1] - 1) & 31, 10);
  if (mode == "BROADCAST" && numbers.size() == 3) return (-numbers[1] & 31) | bits(numbers[2] & 31, 5);
  if (mode == "BITMASK_PERM") {
    const size_t quote = inside.find('"');
    if (quote == std::string_view::npos || inside.size() < quote + 7) return {};
    int keep = 0, set = 0, flip = 0;
    for (int bit = 4; bit >= 0; --bit) switch (inside[quote + 1 + static_cast<size_t>(4 - bit)]) {
        case 'p': keep |= 1 << bit; break;
        case 'i': keep |= 1 << bit, flip |= 1 << bit; break;
        case '1': set |= 1 << bit; break;
        case '0': break;
        default: return {};
      }
    return keep | bits(set, 5) | bits(flip, 10);
  }
  return {};
}

}  // namespace rocm_sd::emu
