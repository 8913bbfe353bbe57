// The fields of one scheduler_config.json, each checked for type and range.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace rocm_sd {

// Every reader takes the class's default for a field that is missing or null, and throws FormatError with the
// file's and the field's name for a value of a wrong type or out of range.
class DiffusersFields {
 public:
  // object: the file's content, which must outlive this; name: for messages. Throws FormatError for JSON that
  // is no object.
  DiffusersFields(const nlohmann::json& object, std::string_view name);

  const std::string& file() const { return file_; }
  bool has(const char* key) const { return find(key) != nullptr; }
  bool flag(const char* key, bool fallback) const;
  double number(const char* key, double fallback) const;
  double number(const char* key, double fallback, double low, double high) const;
  int integer(const char* key, int fallback, int low, int high) const;
  std::string text(const char* key, std::string_view fallback) const;
  // One of `known`; the index of what the field holds.
  size_t choice(const char* key, std::string_view fallback,
                std::initializer_list<std::string_view> known) const;
  std::vector<double> numbers(const char* key) const;  // not empty where the field is there
  std::vector<int> integers(const char* key) const;    // may be empty; each within 0..100000
  bool is_text(const char* key) const;

  // Throws FormatError: the field is used in a way that the samplers here do not have.
  void refuse(bool used, const char* key, std::string_view why = "is not supported") const;

 private:
  const nlohmann::json* find(const char* key) const;
  double to_number(const nlohmann::json& value, const char* key) const;

  std::string file_;
  const nlohmann::json& object_;
};

}  // namespace rocm_sd
