// Checked size arithmetic: every size that a file or a user can influence goes through these.
#pragma once

#include <cstdint>
#include <span>

#include "base/error.hpp"

namespace rocm_sd {

// a * b and a + b for sizes; throw FormatError naming `what` on overflow.
inline uint64_t checked_mul(uint64_t a, uint64_t b, std::string_view what) {
  uint64_t out;
  require<FormatError>(!__builtin_mul_overflow(a, b, &out), what, ": size overflows (", a, " * ", b, ")");
  return out;
}
inline uint64_t checked_add(uint64_t a, uint64_t b, std::string_view what) {
  uint64_t out;
  require<FormatError>(!__builtin_add_overflow(a, b, &out), what, ": size overflows (", a, " + ", b, ")");
  return out;
}

// Product of dims (each >= 0); throws FormatError naming `what` on overflow of int64.
inline int64_t checked_product(std::span<const int64_t> dims, std::string_view what) {
  int64_t out = 1;
  for (const int64_t d : dims)
    require<FormatError>(d >= 0 && !__builtin_mul_overflow(out, d, &out), what, ": element count overflows");
  return out;
}

}  // namespace rocm_sd
