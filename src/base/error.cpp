// Rendering of untrusted text for error messages and logs.
#include "base/error.hpp"

#include <fmt/format.h>

#include <iterator>

#include "base/utf8.hpp"

namespace rocm_sd {

void MessagePart::append_to(std::string& out) const {
  const auto to = std::back_inserter(out);
  switch (kind_) {
    case Kind::kSigned: fmt::format_to(to, "{}", static_cast<int64_t>(value_.number)); break;
    case Kind::kUnsigned: fmt::format_to(to, "{}", value_.number); break;
    case Kind::kFloat: fmt::format_to(to, "{}", static_cast<float>(value_.real)); break;
    case Kind::kDouble: fmt::format_to(to, "{}", value_.real); break;
    case Kind::kBool: out += value_.number != 0 ? "true" : "false"; break;
    case Kind::kChar: out += static_cast<char>(value_.number); break;
    case Kind::kText: out.append(static_cast<const char*>(value_.address), size_); break;
    case Kind::kAddress: fmt::format_to(to, "{}", value_.address); break;
    case Kind::kOther: out += to_text_(value_.address); break;
  }
}

std::string concat_parts(std::initializer_list<MessagePart> parts) {
  std::string out;
  for (const MessagePart& part : parts) part.append_to(out);
  return out;
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
