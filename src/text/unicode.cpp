// Character classes, lower case and NFC on utf8proc's tables with the reference's versions laid over them.
#include "text/unicode.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "base/utf8.hpp"
#include "text/unicode_tables.hpp"

namespace rocm_sd::unicode {
namespace {

template <class Range>
const Range* find_range(std::span<const Range> ranges, char32_t c) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), c,
                                      [](char32_t value, const Range& range) { return value < range.first; });
  if (after == ranges.begin() || c > (after - 1)->last) return nullptr;
  return &*(after - 1);
}

bool is_white_space(char32_t c) {  // PropList.txt, White_Space
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

CharClass class_from_category(char32_t c) {
  if (is_white_space(c)) return CharClass::kSpace;
  if (const ClassRange* found = find_range(class_overrides(), c)) return found->is;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return CharClass::kLetter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return CharClass::kNumber;
    default: return CharClass::kOther;
  }
}

// The first combining character is U+0300: nothing below it has a combining class or composes with a
// predecessor.
constexpr char32_t kFirstCombining = 0x300;

bool is_inert(char32_t c) { return find_range(inert_in_nfc(), c) != nullptr; }

int combining_class(char32_t c) {
  if (c < kFirstCombining || is_inert(c)) return 0;
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
}

void append_decomposed(char32_t c, std::u32string& out) {
  if (c < 0xc0 || is_inert(c)) {
    out += c;
    return;
  }
  std::array<utf8proc_int32_t, 16> parts;  // the longest canonical decomposition has four characters
  int boundary_class = 0;
  const utf8proc_ssize_t count = utf8proc_decompose_char(
      static_cast<utf8proc_int32_t>(c), parts.data(), parts.size(),
      static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE), &boundary_class);
  if (count < 1 || count > static_cast<utf8proc_ssize_t>(parts.size())) {
    out += c;
    return;
  }
  for (utf8proc_ssize_t i = 0; i < count; ++i) out += static_cast<char32_t>(parts[i]);
}

// The primary composite of two characters, 0 if there is none.
char32_t composite(char32_t first, char32_t second) {
  // utf8proc lets a Hangul syllable swallow U+11A7, which stands for "no final consonant" and never composes.
  if (second < kFirstCombining || second == 0x11a7 || is_inert(first) || is_inert(second)) return 0;
  std::array<utf8proc_int32_t, 2> pair = {static_cast<utf8proc_int32_t>(first),
                                          static_cast<utf8proc_int32_t>(second)};
  const auto length = utf8proc_normalize_utf32(
      pair.data(), 2, static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  if (length != 1 || is_inert(static_cast<char32_t>(pair[0]))) return 0;
  return static_cast<char32_t>(pair[0]);
}

// Canonical Ordering Algorithm: runs of non-starters sorted by class, stably.
void order_canonically(std::u32string& text) {
  std::vector<std::pair<int, char32_t>> run;
  for (size_t i = 0; i < text.size();) {
    run.clear();
    size_t end = i;
    for (; end < text.size(); ++end) {
      const int ccc = combining_class(text[end]);
      if (ccc == 0) break;
      run.emplace_back(ccc, text[end]);
    }
    if (run.size() > 1) {
      std::stable_sort(run.begin(), run.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
      for (size_t k = 0; k < run.size(); ++k) text[i + k] = run[k].second;
    }
    i = end + 1;
  }
}

// Canonical Composition Algorithm (The Unicode Standard, section 3.11, D117), in place.
void compose(std::u32string& text) {
  constexpr size_t kNone = static_cast<size_t>(-1);
  size_t starter = kNone, write = 0;
  int last_class = 0;  // of the character written last, after the starter
  for (const char32_t c : text) {
    const int ccc = combining_class(c);
    const bool adjacent = starter != kNone && write == starter + 1;
    const bool blocked = !adjacent && last_class >= ccc;
    if (starter != kNone && !blocked) {
      if (const char32_t joined = composite(text[starter], c)) {
        text[starter] = joined;
        continue;
      }
    }
    if (ccc == 0) starter = write;
    last_class = ccc;
    text[write++] = c;
  }
  text.resize(write);
}

}  // namespace

CharClass char_class(char32_t c) {
  static const std::array<CharClass, 256> kLatin = [] {
    std::array<CharClass, 256> table;
    for (char32_t i = 0; i < 256; ++i) table[i] = class_from_category(i);
    return table;
  }();
  return c < 256 ? kLatin[c] : class_from_category(c);
}

int digit_value(char32_t c) {
  const auto is_digit = [](char32_t x) {
    return utf8proc_category(static_cast<utf8proc_int32_t>(x)) == UTF8PROC_CATEGORY_ND;
  };
  if (c < 0x80) return c >= U'0' && c <= U'9' ? static_cast<int>(c - U'0') : -1;
  if (!is_digit(c)) return -1;
  // Unicode assigns decimal digits in rows of ten, zero first, a row starting at an xxx0 or xxx6 code point;
  // only the mathematical ones (U+1D7CE..U+1D7FF) put five rows side by side.
  if (c >= 0x1d7ce && c <= 0x1d7ff) return static_cast<int>((c - 0x1d7ce) % 10);
  char32_t zero = c;
  while (is_digit(zero - 1) && c - zero < 9) --zero;
  return static_cast<int>(c - zero);
}

std::u32string decode(std::string_view utf8) {
  std::u32string out;
  out.reserve(utf8.size());
  for (size_t i = 0; i < utf8.size();) {
    const Utf8Char c = decode_utf8(utf8, i);
    out += c.valid ? c.code_point : U'\ufffd';
    i += c.length;
  }
  return out;
}

std::u32string nfc(std::u32string_view text) {
  std::u32string out;
  out.reserve(text.size());
  // Latin-1 and the rest below U+0300 is its own composed form.
  if (std::all_of(text.begin(), text.end(), [](char32_t c) { return c < kFirstCombining; })) {
    out = text;
    return out;
  }
  for (const char32_t c : text) append_decomposed(c, out);
  order_canonically(out);
  compose(out);
  return out;
}

std::u32string lower(std::u32string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (const char32_t c : text) {
    if (c < 0x80) {
      out += c >= U'A' && c <= U'Z' ? c + 32 : c;
    } else if (c == 0x130) {  // the one unconditional entry of SpecialCasing.txt that lower-cases to two
                              // characters
      out += U"i\u0307";
    } else if (const LowerRange* found = find_range(lower_overrides(), c)) {
      out += found->to_first + (c - found->first);
    } else {
      out += static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
    }
  }
  return out;
}

std::u32string collapse_spaces(std::u32string_view text) {
  std::u32string out;
  out.reserve(text.size());
  bool in_space = false;
  for (const char32_t c : text) {
    const bool space = is_white_space(c);
    if (!space) out += c;
    if (space && !in_space) out += U' ';
    in_space = space;
  }
  return out;
}

std::string_view utf8proc_unicode() { return utf8proc_unicode_version(); }

}  // namespace rocm_sd::unicode
