// Small text helpers that messages need.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace rocm_sd {

// The name with the smallest edit distance (Levenshtein), upper and lower case alike; "" for no names.
std::string nearest_name(std::string_view wanted, std::span<const std::string> names);

// The letters and digits of a name, in lower case: what names are compared by that people write in several
// ways.
std::string letters_and_digits(std::string_view name);

// "a, b and 3 more": the first `most` of them, made printable (error.hpp), and how many there are besides.
std::string listed_names(std::span<const std::string> names, size_t most);

}  // namespace rocm_sd
