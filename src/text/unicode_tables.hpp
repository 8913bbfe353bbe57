// Code points on which versions of Unicode, and so utf8proc and the libraries that CLIP's reference tokenizer
// stands on, disagree. Made by asking `tokenizers` 0.23 about every code point and comparing with Unicode 15
// and 18; tests/integration_tests/test_tokenizer.py compares every code point anew.
#pragma once

#include <span>

#include "text/unicode.hpp"

namespace rocm_sd::unicode {

struct ClassRange {
  char32_t first, last;
  CharClass is;
};
std::span<const ClassRange> class_overrides();  // sorted

struct LowerRange {
  char32_t first, last, to_first;  // first -> to_first, first + 1 -> to_first + 1, ...
};
std::span<const LowerRange> lower_overrides();  // sorted

struct CodeRange {
  char32_t first, last;
};
// Characters that the reference's older normalisation leaves alone: no combining class, no (de)composition.
// Sorted.
std::span<const CodeRange> inert_in_nfc();

}  // namespace rocm_sd::unicode
