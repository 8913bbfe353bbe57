#include "base/utf8.hpp"

#include <fmt/format.h>

namespace rocm_sd {

Utf8Char decode_utf8(std::string_view text, size_t pos) {
  const auto byte = [&](size_t i) -> uint32_t { return static_cast<unsigned char>(text[i]); };
  const uint32_t first = byte(pos);
  if (first < 0x80) return {first, 1, true};
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || pos + length > text.size()) return {};
  uint32_t code = first & (0x7fu >> length);
  for (size_t k = 1; k < length; ++k) {
    if ((byte(pos + k) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(pos + k) & 0x3f);
  }
  static constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  if (code < kSmallest[length] || code > 0x10ffff || surrogate) return {};
  return {code, length, true};
}

void append_utf8(std::string& out, char32_t c) {
  if (c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) c = 0xfffd;
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xc0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xe0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else {
    out += static_cast<char>(0xf0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3f));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  }
}

size_t invalid_utf8_at(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const Utf8Char c = decode_utf8(text, i);
    if (!c.valid) break;
    i += c.length;
  }
  return i;
}

bool is_valid_utf8(std::string_view text) { return invalid_utf8_at(text) == text.size(); }

std::string utf8_problem(std::string_view text) {
  const size_t at = invalid_utf8_at(text);
  if (at == text.size()) return "";
  return fmt::format("not valid UTF-8: byte 0x{:02x} at offset {}", static_cast<unsigned char>(text[at]), at);
}

std::string sanitize_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = decode_utf8(text, i);
    append_utf8(out, c.valid ? c.code_point : U'\ufffd');
    i += c.length;
  }
  return out;
}

}  // namespace rocm_sd
