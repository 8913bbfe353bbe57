#include "base/json.hpp"

#include <nlohmann/json.hpp>
#include <vector>

#include "base/file.hpp"
#include "base/utf8.hpp"

namespace rocm_sd {
namespace {

using nlohmann::json;

// Builds the value from parser events, so that a limit or a duplicate key ends the parse where it stands.
class StrictBuilder {
 public:
  using number_integer_t = json::number_integer_t;
  using number_unsigned_t = json::number_unsigned_t;
  using number_float_t = json::number_float_t;
  using string_t = json::string_t;
  using binary_t = json::binary_t;

  StrictBuilder(const JsonLimits& limits, std::string_view what) : limits_(limits), what_(what) {}

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(number_integer_t value) { return add(value); }
  bool number_unsigned(number_unsigned_t value) { return add(value); }
  bool number_float(number_float_t value, const string_t&) { return add(value); }
  bool string(string_t& value) { return add(std::move(value)); }
  bool binary(binary_t&) { return false; }
  bool start_object(size_t) { return open(json::object()); }
  bool start_array(size_t) { return open(json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(string_t& name) {
    require<FormatError>(!stack_.back()->contains(name), what_, ": duplicate key \"", printable(name), "\"");
    key_ = std::move(name);
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) {
    throw FormatError(concat(what_, ": not valid JSON at byte ", position, ": ", printable(error.what())));
  }

  json result;

 private:
  json* place(json value) {
    require<FormatError>(++values_ <= limits_.max_values, what_, ": more than ", limits_.max_values,
                         " JSON values");
    if (stack_.empty()) {
      result = std::move(value);
      return &result;
    }
    json& parent = *stack_.back();
    if (parent.is_object()) return &(parent[key_] = std::move(value));
    parent.push_back(std::move(value));
    return &parent.back();
  }
  bool add(json value) {
    place(std::move(value));
    return true;
  }
  bool open(json container) {
    require<FormatError>(static_cast<int>(stack_.size()) < limits_.max_depth, what_,
                         ": JSON nested deeper than ", limits_.max_depth, " levels");
    stack_.push_back(place(std::move(container)));
    return true;
  }
  bool close() {
    stack_.pop_back();
    return true;
  }

  const JsonLimits& limits_;
  std::string_view what_;
  std::vector<json*> stack_;  // a container does not move while a child of it is open
  std::string key_;
  uint64_t values_ = 0;
};

// NaN, Infinity and -Infinity outside of strings as strings.
std::string with_quoted_nonfinite(std::string_view text) {
  std::string out;
  bool in_string = false;
  for (size_t i = 0; i < text.size();) {
    size_t length = 0;
    for (const std::string_view word : {"NaN", "Infinity", "-Infinity"})
      if (!in_string && text.substr(i).starts_with(word)) length = word.size();
    if (length > 0) {
      out += concat('"', text.substr(i, length), '"');
      i += length;
      continue;
    }
    if (text[i] == '"') in_string = !in_string;
    if (in_string && text[i] == '\\' && i + 1 < text.size()) out += text[i++];
    out += text[i++];
  }
  return out;
}

}  // namespace

json parse_json(std::string_view text, const JsonLimits& limits, std::string_view what) {
  require<FormatError>(text.size() <= limits.max_bytes, what, ": ", text.size(), " bytes of JSON, at most ",
                       limits.max_bytes, " are accepted");
  // The library takes a NUL for the end and a byte order mark for nothing; both hide what follows from other
  // readers.
  require<FormatError>(text.find('\0') == text.npos, what, ": NUL byte inside JSON");
  require<FormatError>(!text.starts_with("\xef\xbb\xbf"), what, ": byte order mark before JSON");
  require<FormatError>(is_valid_utf8(text), what, ": not valid UTF-8");
  StrictBuilder builder(limits, what);
  const std::string finite = limits.nonfinite_as_text ? with_quoted_nonfinite(text) : std::string();
  if (limits.nonfinite_as_text) text = finite;
  const bool ok = json::sax_parse(text.begin(), text.end(), &builder);
  require<FormatError>(ok, what, ": not valid JSON");
  return std::move(builder.result);
}

json parse_json_file(const std::filesystem::path& path, const JsonLimits& limits) {
  return parse_json(read_file(path, limits.max_bytes), limits, printable_path(path));
}

}  // namespace rocm_sd
