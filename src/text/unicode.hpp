// The Unicode operations of CLIP's tokenizer, with the tables of the Rust `tokenizers` 0.23 library whatever
// version of Unicode the system's utf8proc holds: letters and numbers as in Unicode 16 (Oniguruma), lower
// case as in Unicode 17 (Rust's standard library), NFC as in Unicode 9 (the unicode-normalization-alignments
// crate).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace rocm_sd::unicode {

enum class CharClass : uint8_t {
  kOther,   // [^\s\p{L}\p{N}]
  kSpace,   // White_Space
  kLetter,  // \p{L}
  kNumber,  // \p{N}
};
CharClass char_class(char32_t c);

// 0 to 9 for a decimal digit (category Nd) of any script, else -1.
int digit_value(char32_t c);

// UTF-8 to code points; each byte that is not valid UTF-8 becomes U+FFFD.
std::u32string decode(std::string_view utf8);

// Canonical composition (UAX #15). Time n log n at worst, also for long runs of combining marks.
std::u32string nfc(std::u32string_view text);

// Each character's full lower-case mapping, without context: U+0130 becomes two characters, a final sigma
// stays U+03C3.
std::u32string lower(std::u32string_view text);

// Each run of White_Space becomes one space.
std::u32string collapse_spaces(std::u32string_view text);

// "15.0.0" and the like, of the utf8proc that is linked.
std::string_view utf8proc_unicode();

}  // namespace rocm_sd::unicode
