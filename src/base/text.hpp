// Small text helpers that messages need.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace rocm_sd {

// The name with the smallest edit distance (Levenshtein), upper and lower case alike; "" for no names.
std::string nearest_name(std::string_view wanted, std::span<const std::string> names);

}  // namespace rocm_sd
