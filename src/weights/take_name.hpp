// Names of tensors, read piece by piece from the front.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace rocm_sd {

// Takes `prefix` from the front of name, if it is there.
inline bool take(std::string_view& name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return false;
  name.remove_prefix(prefix.size());
  return true;
}

// Takes a number of digits alone.
inline std::optional<int> take_number(std::string_view& name) {
  int value = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), value);
  if (error != std::errc() || value < 0) return std::nullopt;
  name.remove_prefix(static_cast<size_t>(end - name.data()));
  return value;
}

}  // namespace rocm_sd
