#include "base/format.hpp"

#include <fmt/format.h>

namespace rocm_sd {

std::string to_text(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ","));
}

}  // namespace rocm_sd

fmt::format_context::iterator fmt::formatter<rocm_sd::DType>::format(rocm_sd::DType type,
                                                                     fmt::format_context& context) const {
  const std::string_view name = rocm_sd::dtype_name(type);
  return fmt::formatter<fmt::string_view>::format({name.data(), name.size()}, context);
}

fmt::format_context::iterator fmt::formatter<rocm_sd::Shape>::format(const rocm_sd::Shape& shape,
                                                                     fmt::format_context& context) const {
  const std::string text = rocm_sd::to_text(shape);
  return std::copy(text.begin(), text.end(), context.out());
}
