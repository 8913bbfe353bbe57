// Names that users type: compared without case, spaces, dashes and underscores, with a hint at the nearest.
#include "schedulers/names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

// Levenshtein's distance. Names are short: both are cut at 64 bytes.
size_t edit_distance(std::string_view a, std::string_view b) {
  a = a.substr(0, 64);
  b = b.substr(0, 64);
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row.back();
}

}  // namespace

std::string normalized_name(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == ' ' || c == '_' || c == '-' || c == '\t') continue;
    out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return out;
}

std::optional<std::string> similar_name(std::string_view name, std::span<const std::string> known) {
  constexpr size_t kMaxEdits = 3;
  const std::string wanted = normalized_name(name);
  std::optional<std::string> out;
  size_t least = kMaxEdits + 1;
  for (const std::string& k : known) {
    const size_t edits = edit_distance(wanted, normalized_name(k));
    if (edits < least) out = k;
    least = std::min(least, edits);
  }
  return out;
}

void throw_unknown_name(std::string_view what, std::string_view name, std::span<const std::string> known) {
  const std::string wanted = normalized_name(name);
  const auto nearest = std::ranges::min_element(
      known, {}, [&](const std::string& k) { return edit_distance(wanted, normalized_name(k)); });
  std::string message = concat("unknown ", what, " \"", printable(name, 64), "\"");
  if (nearest != known.end()) message += concat("; did you mean \"", *nearest, "\"?");
  throw UsageError(fmt::format("{} Known: {}", message, fmt::join(known, ", ")));
}

}  // namespace rocm_sd
