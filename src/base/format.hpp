// fmt with the formatters of this project's types. For .cpp files: what errors need is in error.hpp, without
// fmt.
#pragma once

#include <fmt/core.h>

#include "base/dtype.hpp"
#include "base/shape.hpp"

template <>
struct fmt::formatter<rocm_sd::DType> : fmt::formatter<fmt::string_view> {
  fmt::format_context::iterator format(rocm_sd::DType type, fmt::format_context& context) const;
};

template <>
struct fmt::formatter<rocm_sd::Shape> {
  constexpr fmt::format_parse_context::iterator parse(fmt::format_parse_context& context) {
    return context.begin();
  }
  fmt::format_context::iterator format(const rocm_sd::Shape& shape, fmt::format_context& context) const;
};
