// ConfigFields: checked access to the fields of a config.json from an untrusted source.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace rocm_sd {

// Every getter throws FormatError "<file>: <field>: expected ..., got ..." where the value has another type
// or is outside the range. A field that is absent or null takes the default. Remembers which fields were
// asked for.
class ConfigFields {
 public:
  // Throws FormatError unless json is an object.
  ConfigFields(const nlohmann::json& json, std::string_view what);

  // The field's value, null where absent or null.
  const nlohmann::json* find(const std::string& field);
  bool is_null(const std::string& field) const;  // present, and null

  int64_t integer(const std::string& field, int64_t fallback, int64_t low, int64_t high);
  double number(const std::string& field, double fallback, double low, double high);
  std::vector<double> numbers(const std::string& field, size_t count, double low, double high);  // or none
  bool boolean(const std::string& field, bool fallback);
  std::string text(const std::string& field, const std::string& fallback);

  // A list of `count` integers (any count from 1 to max_count where count is 0).
  std::vector<int64_t> integers(const std::string& field, const std::vector<int64_t>& fallback, int64_t low,
                                int64_t high, size_t count = 0);
  // The same, or one integer that stands for all `count`.
  std::vector<int64_t> integer_each(const std::string& field, int64_t fallback, int64_t low, int64_t high,
                                    size_t count);
  std::vector<bool> boolean_each(const std::string& field, bool fallback, size_t count);
  std::vector<std::string> texts(const std::string& field, const std::vector<std::string>& fallback);

  // Refuses the field unless it is absent, null or equal to the one value that is implemented.
  void only(const std::string& field, const nlohmann::json& implemented);
  void ignore(std::initializer_list<const char*> fields);  // fields without effect on inference
  // Refuses every field never asked for, unless its value is null or false or its name begins with '_'.
  void refuse_others() const;
  // Checks "_class_name" or "architectures" where present.
  void require_class(std::initializer_list<const char*> names);

  [[noreturn]] void fail(const std::string& field, const std::string& expected,
                         const nlohmann::json& got) const;
  template <class... Parts>
  void check(bool ok, const std::string& field, const Parts&... parts) const {
    if (!ok) throw FormatError(concat(what_, ": ", field, ": ", parts...));
  }

 private:
  int64_t as_integer(const std::string& field, const nlohmann::json& value, int64_t low, int64_t high) const;

  const nlohmann::json& json_;
  std::string what_;
  std::set<std::string> asked_;
};

}  // namespace rocm_sd
