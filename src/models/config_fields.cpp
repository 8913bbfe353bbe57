#include "models/config_fields.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace rocm_sd {
namespace {

constexpr size_t kMaxListLength = 64;

std::string shown(const nlohmann::json& value) {
  if (value.is_object()) return "an object";
  return printable(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), 80);
}

}  // namespace

ConfigFields::ConfigFields(const nlohmann::json& json, std::string_view what) : json_(json), what_(what) {
  require<FormatError>(json.is_object(), what_, ": expected a JSON object, got ", shown(json));
}

void ConfigFields::fail(const std::string& field, const std::string& expected,
                        const nlohmann::json& got) const {
  throw FormatError(concat(what_, ": ", printable(field, 80), ": expected ", expected, ", got ", shown(got)));
}

const nlohmann::json* ConfigFields::find(const std::string& field) {
  asked_.insert(field);
  const auto it = json_.find(field);
  return it == json_.end() || it->is_null() ? nullptr : &*it;
}

bool ConfigFields::is_null(const std::string& field) const {
  const auto it = json_.find(field);
  return it != json_.end() && it->is_null();
}

int64_t ConfigFields::as_integer(const std::string& field, const nlohmann::json& value, int64_t low,
                                 int64_t high) const {
  const bool fits = value.is_number_integer() && (!value.is_number_unsigned() ||
                                                  value.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX));
  if (!fits || value.get<int64_t>() < low || value.get<int64_t>() > high)
    fail(field, concat("an integer ", low, "..", high), value);
  return value.get<int64_t>();
}

int64_t ConfigFields::integer(const std::string& field, int64_t fallback, int64_t low, int64_t high) {
  const nlohmann::json* value = find(field);
  return value ? as_integer(field, *value, low, high) : fallback;
}

double ConfigFields::number(const std::string& field, double fallback, double low, double high) {
  const nlohmann::json* value = find(field);
  if (!value) return fallback;
  const double x = value->is_number() ? value->get<double>() : low - 1;
  if (!(x >= low && x <= high)) fail(field, concat("a number ", low, "..", high), *value);
  return x;
}

std::vector<double> ConfigFields::numbers(const std::string& field, size_t count, double low, double high) {
  const nlohmann::json* value = find(field);
  std::vector<double> out;
  if (!value) return out;
  if (value->is_array() && value->size() == count)
    for (const nlohmann::json& item : *value)
      if (item.is_number() && item.get<double>() >= low && item.get<double>() <= high)
        out.push_back(item.get<double>());
  if (out.size() != count) fail(field, concat("a list of ", count, " numbers ", low, "..", high), *value);
  return out;
}

bool ConfigFields::boolean(const std::string& field, bool fallback) {
  const nlohmann::json* value = find(field);
  if (!value) return fallback;
  if (!value->is_boolean()) fail(field, "true or false", *value);
  return value->get<bool>();
}

std::string ConfigFields::text(const std::string& field, const std::string& fallback) {
  const nlohmann::json* value = find(field);
  if (!value) return fallback;
  if (!value->is_string()) fail(field, "a string", *value);
  return value->get<std::string>();
}

std::vector<int64_t> ConfigFields::integers(const std::string& field, const std::vector<int64_t>& fallback,
                                            int64_t low, int64_t high, size_t count) {
  const nlohmann::json* value = find(field);
  if (!value) {
    check(count == 0 || fallback.size() == count, field, "expected a list of ", count,
          " integers, got nothing");
    return fallback;
  }
  const bool fits = value->is_array() && !value->empty() && value->size() <= kMaxListLength &&
                    (count == 0 || value->size() == count);
  if (!fits)
    fail(field, count ? concat("a list of ", count, " integers") : "a list of 1..64 integers", *value);
  std::vector<int64_t> out;
  for (const nlohmann::json& item : *value) out.push_back(as_integer(field, item, low, high));
  return out;
}

std::vector<int64_t> ConfigFields::integer_each(const std::string& field, int64_t fallback, int64_t low,
                                                int64_t high, size_t count) {
  const nlohmann::json* value = find(field);
  if (value && value->is_array()) return integers(field, {}, low, high, count);
  return std::vector<int64_t>(count, integer(field, fallback, low, high));
}

std::vector<bool> ConfigFields::boolean_each(const std::string& field, bool fallback, size_t count) {
  const nlohmann::json* value = find(field);
  if (!value || !value->is_array()) return std::vector<bool>(count, boolean(field, fallback));
  std::vector<bool> out;
  for (const nlohmann::json& item : *value)
    if (item.is_boolean()) out.push_back(item.get<bool>());
  if (value->size() != count || out.size() != count)
    fail(field, concat("true, false or a list of ", count, " of them"), *value);
  return out;
}

std::vector<std::string> ConfigFields::texts(const std::string& field,
                                             const std::vector<std::string>& fallback) {
  const nlohmann::json* value = find(field);
  if (!value) return fallback;
  std::vector<std::string> out;
  if (value->is_array() && value->size() <= kMaxListLength)
    for (const nlohmann::json& item : *value)
      if (item.is_string()) out.push_back(item.get<std::string>());
  if (out.empty() || out.size() != value->size()) fail(field, "a list of 1..64 strings", *value);
  return out;
}

void ConfigFields::only(const std::string& field, const nlohmann::json& implemented) {
  const nlohmann::json* value = find(field);
  if (value && *value != implemented)
    fail(field, concat(shown(implemented), " (nothing else is implemented)"), *value);
}

void ConfigFields::ignore(std::initializer_list<const char*> fields) {
  asked_.insert(fields.begin(), fields.end());
}

void ConfigFields::refuse_others() const {
  for (const auto& [field, value] : json_.items()) {
    if (asked_.contains(field) || field.starts_with('_') || value.is_null() || value == false) continue;
    fail(field, "no such option (it is not implemented)", value);
  }
}

void ConfigFields::require_class(std::initializer_list<const char*> names) {
  const auto known = [&](const nlohmann::json& value) {
    return value.is_string() && std::any_of(names.begin(), names.end(), [&](const char* n) {
             return value.get_ref<const std::string&>() == n;
           });
  };
  const std::string expected = fmt::format("the class {}", fmt::join(names.begin(), names.end(), " or "));
  if (const auto* name = find("_class_name"); name && !known(*name)) fail("_class_name", expected, *name);
  if (const auto* list = find("architectures");
      list && !(list->is_array() && list->size() == 1 && known(list->front())))
    fail("architectures", expected, *list);
}

}  // namespace rocm_sd
