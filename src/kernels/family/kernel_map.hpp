// What the maps of attention_map.hpp, gemm_map.hpp and conv_map.hpp are made of: rows that say for which
// families and problems an algorithm is taken, and why. docs/reference/kernel-map.md is written from them.
#pragma once

#include <cstdint>
#include <string>

#include "composable_kernels/families/families.hpp"

namespace rocm_sd {

// first..last, both inclusive.
struct Range {
  int64_t first = 0, last = INT64_MAX;
  constexpr bool has(int64_t value) const { return value >= first && value <= last; }
  constexpr bool operator==(const Range&) const = default;
};
inline constexpr Range kAny;
constexpr Range exactly(int64_t value) { return {value, value}; }
constexpr Range at_most(int64_t value) { return {0, value}; }
constexpr Range from(int64_t value) { return {value, INT64_MAX}; }
std::string to_text(const Range& range);  // "any", "40", "1 to 80", "from 129"

std::string to_text(FamilySet families);  // "all", "nvidia, hopper"

}  // namespace rocm_sd
