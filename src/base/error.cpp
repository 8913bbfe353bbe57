// Rendering of untrusted text for error messages and logs.
#include "base/error.hpp"

#include <iterator>

#include "base/utf8.hpp"

namespace rocm_sd {

std::string concat_args(size_t count, fmt::format_args args) {
  std::string pattern;
  for (size_t i = 0; i < count; ++i) pattern += "{}";
  return fmt::vformat(pattern, args);
}

std::string printable(std::string_view text, size_t max_bytes) {
  std::string out;
  size_t i = 0;
  while (i < text.size()) {
    if (out.size() >= max_bytes) return out + "...";
    const Utf8Char c = decode_utf8(text, i);
    if (c.valid && c.code_point >= 0x20 && c.code_point != 0x7f &&
        !(c.code_point >= 0x80 && c.code_point < 0xa0)) {
      out.append(text.substr(i, c.length));
    } else {
      for (size_t k = 0; k < c.length; ++k)
        fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(text[i + k]));
    }
    i += c.length;
  }
  return out;
}

}  // namespace rocm_sd
