// Names that users type: compared without case, spaces, dashes and underscores, with a hint at the nearest.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace rocm_sd {

// "DPM++ 2M SDE" and "dpm++_2m-sde" -> "dpm++2msde". Letters are ASCII; other bytes stay.
std::string normalized_name(std::string_view name);

// The name of `known` that `name` may be a slip of: at most three edits of its normalized letters away.
std::optional<std::string> similar_name(std::string_view name, std::span<const std::string> known);

// Throws UsageError: no such `what`, the nearest of `known` (by edit distance over normalized names), then
// all of them.
[[noreturn]] void throw_unknown_name(std::string_view what, std::string_view name,
                                     std::span<const std::string> known);

}  // namespace rocm_sd
