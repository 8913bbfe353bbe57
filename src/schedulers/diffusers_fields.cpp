// The fields of one scheduler_config.json.
#include "schedulers/diffusers_fields.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace rocm_sd {

using nlohmann::json;

DiffusersFields::DiffusersFields(const json& object, std::string_view name)
    : file_(printable(name)), object_(object) {
  require<FormatError>(object_.is_object(), file_, ": not a JSON object");
}

const json* DiffusersFields::find(const char* key) const {
  const auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

double DiffusersFields::to_number(const json& value, const char* key) const {
  require<FormatError>(value.is_number() && std::isfinite(value.get<double>()), file_, ": \"", key,
                       "\" must hold finite numbers, not ", printable(value.dump(), 64));
  return value.get<double>();
}

bool DiffusersFields::flag(const char* key, bool fallback) const {
  const json* value = find(key);
  if (!value) return fallback;
  require<FormatError>(value->is_boolean(), file_, ": \"", key, "\" must be true or false, not ",
                       printable(value->dump(), 64));
  return value->get<bool>();
}

double DiffusersFields::number(const char* key, double fallback) const {
  const json* value = find(key);
  return value ? to_number(*value, key) : fallback;
}

double DiffusersFields::number(const char* key, double fallback, double low, double high) const {
  const double value = number(key, fallback);
  require<FormatError>(!has(key) || (value >= low && value <= high), file_, ": \"", key, "\" must be within ",
                       low, "..", high, ", not ", value);
  return value;
}

int DiffusersFields::integer(const char* key, int fallback, int low, int high) const {
  const json* value = find(key);
  if (!value) return fallback;
  const double number = to_number(*value, key);
  require<FormatError>(number == std::floor(number) && number >= low && number <= high, file_, ": \"", key,
                       "\" must be a whole number within ", low, "..", high, ", not ", number);
  return static_cast<int>(number);
}

std::string DiffusersFields::text(const char* key, std::string_view fallback) const {
  const json* value = find(key);
  if (!value) return std::string(fallback);
  require<FormatError>(value->is_string(), file_, ": \"", key, "\" must be a string, not ",
                       printable(value->dump(), 64));
  return value->get<std::string>();
}

size_t DiffusersFields::choice(const char* key, std::string_view fallback,
                               std::initializer_list<std::string_view> known) const {
  const std::string value = text(key, fallback);
  std::string all;
  for (size_t i = 0; i < known.size(); ++i) {
    if (known.begin()[i] == value) return i;
    all += concat(i ? ", " : "", known.begin()[i]);
  }
  throw FormatError(
      concat(file_, ": \"", key, "\": expected one of ", all, "; got \"", printable(value, 64), "\""));
}

std::vector<double> DiffusersFields::numbers(const char* key) const {
  const json* value = find(key);
  if (!value) return {};
  require<FormatError>(value->is_array() && !value->empty(), file_, ": \"", key,
                       "\" must be a list of at least one number");
  std::vector<double> out;
  for (const json& element : *value) out.push_back(to_number(element, key));
  return out;
}

std::vector<int> DiffusersFields::integers(const char* key) const {
  const json* value = find(key);
  if (!value) return {};
  require<FormatError>(value->is_array(), file_, ": \"", key, "\" must be a list of whole numbers");
  std::vector<int> out;
  for (const json& element : *value) {
    const double number = to_number(element, key);
    require<FormatError>(number == std::floor(number) && number >= 0 && number <= 100'000, file_, ": \"", key,
                         "\" must hold whole numbers within 0..100000, not ", number);
    out.push_back(static_cast<int>(number));
  }
  return out;
}

bool DiffusersFields::is_text(const char* key) const {
  const json* value = find(key);
  return value && value->is_string();
}

void DiffusersFields::refuse(bool used, const char* key, std::string_view why) const {
  require<FormatError>(!used, file_, ": \"", key, "\" ", why);
}

}  // namespace rocm_sd
