#include "pipeline/infotext.hpp"

#include <nlohmann/json.hpp>

namespace rocm_sd {
namespace {

constexpr std::string_view kNegative = "Negative prompt:";

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::string quoted(const std::string& value) {
  // A1111 leaves a value that begins with a quotation mark as it is, and its readers then take what follows
  // up to the next mark for a part of it. White space at the ends is kept only between marks.
  if (value.find_first_of(",:\n") == std::string::npos && !value.starts_with('"') && trim(value) == value)
    return value;
  return nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

bool is_key_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == ' ' || c == '_' ||
         c == '-' || c == '/';
}

// One "Key: value" from the front of the line; advances it past the following comma. False where there is
// none.
bool take_field(std::string_view& line, std::pair<std::string, std::string>& field) {
  line = trim(line);
  size_t colon = 0;
  while (colon < line.size() && is_key_char(line[colon])) ++colon;
  if (colon == 0 || colon >= line.size() || line[colon] != ':') return false;
  field.first = trim(line.substr(0, colon));
  std::string_view rest = trim(line.substr(colon + 1));
  size_t end;
  if (rest.starts_with('"')) {
    end = 1;
    while (end < rest.size() && rest[end] != '"') end += rest[end] == '\\' ? 2 : 1;
    end = std::min(end + 1, rest.size());
    const auto value = nlohmann::json::parse(rest.substr(0, end), nullptr, false);
    field.second = value.is_string() ? value.get<std::string>() : std::string(rest.substr(0, end));
  } else {
    end = std::min(rest.find(','), rest.size());
    field.second = trim(rest.substr(0, end));
  }
  const size_t comma = rest.find(',', end);
  line = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
  return true;
}

std::vector<std::pair<std::string, std::string>> parse_fields(std::string_view line) {
  std::vector<std::pair<std::string, std::string>> fields;
  std::pair<std::string, std::string> field;
  while (take_field(line, field)) fields.push_back(field);
  return fields;
}

}  // namespace

std::string Infotext::get(std::string_view key) const {
  for (const auto& [name, value] : fields)
    if (name == key) return value;
  return "";
}

std::string format_infotext(const Infotext& info) {
  std::string out = info.prompt;
  if (!info.negative_prompt.empty()) {
    out += "\n";
    out += kNegative;
    out += " " + info.negative_prompt;
  }
  out += "\n";
  bool first = true;
  for (const auto& [key, value] : info.fields) {
    if (!first) out += ", ";
    first = false;
    out += key + ": " + quoted(value);
  }
  return out;
}

Infotext parse_infotext(std::string_view text) {
  Infotext info;
  text = trim(text);
  const size_t last_break = text.rfind('\n');
  const std::string_view last = last_break == std::string_view::npos ? text : text.substr(last_break + 1);
  auto fields = parse_fields(last);
  constexpr size_t kFewestFields = 3;
  std::string_view body = text;
  if (fields.size() >= kFewestFields) {
    info.fields = std::move(fields);
    body = last_break == std::string_view::npos ? std::string_view{} : text.substr(0, last_break);
  }
  // The negative prompt begins at the first line that says so and runs to the end.
  size_t line = 0;
  while (line < body.size() && !body.substr(line).starts_with(kNegative)) {
    const size_t next = body.find('\n', line);
    line = next == std::string_view::npos ? body.size() : next + 1;
  }
  info.prompt = trim(body.substr(0, line));
  if (line < body.size()) info.negative_prompt = trim(body.substr(line + kNegative.size()));
  return info;
}

}  // namespace rocm_sd
