// Strict UTF-8 decoding (RFC 3629): no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace rocm_sd {

struct Utf8Char {
  char32_t code_point = 0xfffd;
  size_t length = 1;  // bytes consumed; 1 where the sequence is invalid
  bool valid = false;
};

// Decodes the character at text[pos]; pos must be < text.size().
Utf8Char decode_utf8(std::string_view text, size_t pos);

// Appends the code point's UTF-8 form; code points that UTF-8 cannot hold become U+FFFD.
void append_utf8(std::string& out, char32_t code_point);

bool is_valid_utf8(std::string_view text);

// The offset of the first byte that is not valid UTF-8; text.size() where all are.
size_t invalid_utf8_at(std::string_view text);

// "not valid UTF-8: byte 0xe9 at offset 3"; empty where the text is valid.
std::string utf8_problem(std::string_view text);

// Replaces each invalid byte by U+FFFD, as Python's bytes.decode("utf-8", "replace") does for lone bytes.
std::string sanitize_utf8(std::string_view text);

}  // namespace rocm_sd
