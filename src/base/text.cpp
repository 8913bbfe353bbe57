#include "base/text.hpp"

#include <algorithm>
#include <cctype>
#include <limits>
#include <numeric>
#include <vector>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (lower(a[i]) != lower(b[j]));
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_name(std::string_view wanted, std::span<const std::string> names) {
  wanted = wanted.substr(0, 64);  // hostile lengths must not cost quadratic time
  std::string best;
  size_t least = std::numeric_limits<size_t>::max();
  for (const std::string& name : names) {
    const size_t distance = edit_distance(wanted, name);
    if (distance < least) {
      least = distance;
      best = name;
    }
  }
  return best;
}

std::string letters_and_digits(std::string_view name) {
  std::string out;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c))) out += lower(c);
  return out;
}

std::string listed_names(std::span<const std::string> names, size_t most) {
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), most); ++i) out += concat(i ? ", " : "", printable(names[i]));
  return names.size() > most ? concat(out, " and ", names.size() - most, " more") : out;
}

}  // namespace rocm_sd
