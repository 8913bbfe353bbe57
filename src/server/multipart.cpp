#include "server/multipart.hpp"

#include <algorithm>
#include <optional>

#include "base/error.hpp"
#include "base/utf8.hpp"

namespace rocm_sd::server {
namespace {

constexpr size_t kMaxFields = 64, kMaxHead = 4096, kMaxBoundary = 70;

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) {
    const auto low = [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; };
    return low(x) == low(y);
  });
}

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// The value of `name` among "; name=value" or "; name=\"value\"" parameters.
std::optional<std::string> parameter(std::string_view text, std::string_view name) {
  size_t at = text.find(';');
  while (at != text.npos && at + 1 < text.size()) {
    std::string_view rest = trim(text.substr(at + 1));
    const size_t equals = rest.find('=');
    if (equals == rest.npos) return std::nullopt;
    const std::string_view key = trim(rest.substr(0, equals));
    rest.remove_prefix(equals + 1);
    std::string value;
    size_t used = 0;
    if (rest.starts_with('"')) {
      for (used = 1; used < rest.size() && rest[used] != '"'; ++used) {
        if (rest[used] == '\\' && used + 1 < rest.size()) ++used;
        value += rest[used];
      }
      used = std::min(rest.size(), used + 1);
    } else {
      used = std::min(rest.find(';'), rest.size());
      value = trim(rest.substr(0, used));
    }
    if (equal_ignoring_case(key, name)) return value;
    text = rest.substr(used);
    at = text.find(';');
  }
  return std::nullopt;
}

FormField read_head(std::string_view head) {
  FormField field;
  bool named = false;
  while (!head.empty()) {
    const std::string_view line = head.substr(0, head.find("\r\n"));
    head.remove_prefix(std::min(head.size(), line.size() + 2));
    const size_t colon = line.find(':');
    require<UsageError>(colon != line.npos, "multipart: expected \"Name: value\", got \"", printable(line),
                        "\"");
    const std::string_view value = line.substr(colon + 1);
    if (equal_ignoring_case(trim(line.substr(0, colon)), "content-transfer-encoding"))
      require<UsageError>(!equal_ignoring_case(trim(value), "base64"),
                          "multipart: base64 is not accepted here");
    if (!equal_ignoring_case(trim(line.substr(0, colon)), "content-disposition")) continue;
    const auto name = parameter(value, "name");
    require<UsageError>(name.has_value() && !name->empty() && is_valid_utf8(*name),
                        "multipart: a field without a name");
    field.name = *name;
    const auto file_name = parameter(value, "filename");
    field.is_file = file_name.has_value();
    field.file_name = file_name.value_or("");
    named = true;
  }
  require<UsageError>(named, "multipart: a field without Content-Disposition");
  return field;
}

}  // namespace

std::string multipart_boundary(std::string_view content_type) {
  const auto boundary = parameter(content_type, "boundary");
  constexpr std::string_view kAllowed =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ'()+_,-./:=? ";
  require<UsageError>(boundary && !boundary->empty() && boundary->size() <= kMaxBoundary &&
                          boundary->find_first_not_of(kAllowed) == std::string::npos,
                      "Content-Type: expected multipart/form-data with a boundary of 1 to ", kMaxBoundary,
                      " characters");
  return *boundary;
}

std::vector<FormField> parse_multipart(std::string_view body, std::string_view boundary) {
  const std::string delimiter = concat("\r\n--", boundary);
  const std::string_view first = std::string_view(delimiter).substr(2);
  // What stands before the first delimiter counts for nothing.
  size_t at = body.starts_with(first) ? 0 : body.find(delimiter);
  require<UsageError>(at != body.npos, "multipart: the boundary does not occur in the body");
  body.remove_prefix(at + (body.starts_with(first) && at == 0 ? first.size() : delimiter.size()));
  std::vector<FormField> fields;
  while (!body.starts_with("--")) {
    const size_t line_end = body.find("\r\n");
    require<UsageError>(line_end != body.npos && trim(body.substr(0, line_end)).empty(),
                        "multipart: expected a line break behind the boundary");
    body.remove_prefix(line_end + 2);
    const size_t head_end = body.substr(0, kMaxHead).find("\r\n\r\n");
    require<UsageError>(head_end != body.npos, "multipart: expected a field's head of at most ", kMaxHead,
                        " bytes");
    FormField field = read_head(body.substr(0, head_end));
    body.remove_prefix(head_end + 2);  // the line break that a delimiter begins with may follow at once
    const size_t end = body.find(delimiter);
    require<UsageError>(end != body.npos, "multipart: field \"", printable(field.name), "\" has no end");
    field.value = end >= 2 ? body.substr(2, end - 2) : std::string_view();
    require<UsageError>(fields.size() < kMaxFields, "multipart: more than ", kMaxFields, " fields");
    fields.push_back(std::move(field));
    body.remove_prefix(end + delimiter.size());
  }
  return fields;
}

}  // namespace rocm_sd::server
