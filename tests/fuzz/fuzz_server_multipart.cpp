// Fuzzes forms that a client sends: the first line is a Content-Type, the rest its body. Fields are read or
// refused by a UsageError; what was read can be written as a form, which reads as the same fields.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "server/multipart.hpp"

namespace {

using namespace rocm_sd;
using namespace rocm_sd::server;

void check(bool ok) {
  if (!ok) std::abort();
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

bool holds_line_break(std::string_view text) { return text.find("\r\n") != text.npos; }

std::string write_form(const std::vector<FormField>& fields, const std::string& boundary) {
  std::string out;
  for (const FormField& field : fields) {
    out += "--" + boundary + "\r\nContent-Disposition: form-data; name=" + quoted(field.name);
    if (field.is_file) out += "; filename=" + quoted(field.file_name);
    out += "\r\n\r\n" + field.value + "\r\n";
  }
  return out + "--" + boundary + "--\r\n";
}

void fuzz(std::string_view text) {
  const size_t line = std::min(text.find('\n'), text.size());
  const std::string boundary = multipart_boundary(text.substr(0, line));
  check(!boundary.empty() && boundary.size() <= 70);
  const auto fields = parse_multipart(text.substr(std::min(line + 1, text.size())), boundary);
  check(fields.size() <= 64);
  if (fields.empty()) return;
  size_t longest = 0;
  for (const FormField& field : fields) {
    check(!field.name.empty());
    if (holds_line_break(field.name) || holds_line_break(field.file_name)) return;
    longest = std::max(longest, field.name.size() + field.file_name.size());
  }
  if (longest > 1000) return;  // quoting lengthens a head, whose limit is 4096 bytes
  const auto again = parse_multipart(write_form(fields, boundary), boundary);
  check(again.size() == fields.size());
  for (size_t i = 0; i < fields.size(); ++i)
    check(again[i].name == fields[i].name && again[i].is_file == fields[i].is_file &&
          again[i].file_name == fields[i].file_name && again[i].value == fields[i].value);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    fuzz({reinterpret_cast<const char*>(data), size});
  } catch (const UsageError&) {
  }
  return 0;
}
