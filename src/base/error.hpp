// Raising errors: require() and the rendering of untrusted text. The error types are public:
// rocm_sd/error.hpp.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "rocm_sd/error.hpp"

namespace rocm_sd {

// The arguments one after the other; the types are erased, which keeps every caller small and quick to
// compile.
std::string concat_args(size_t count, fmt::format_args args);

// Concatenates the parts as fmt would print each of them.
template <class... Parts>
std::string concat(const Parts&... parts) {
  return concat_args(sizeof...(Parts), fmt::make_format_args(parts...));
}

// Throws E(concat(parts...)) unless ok. The parts are only formatted on failure.
template <class E = ShapeError, class... Parts>
void require(bool ok, const Parts&... parts) {
  if (!ok) [[unlikely]]
    throw E(concat(parts...));
}

// A text from a file or a user made safe to print on one line: control bytes and invalid UTF-8 as \xNN, cut
// at max_bytes.
std::string printable(std::string_view text, size_t max_bytes = 200);

}  // namespace rocm_sd
