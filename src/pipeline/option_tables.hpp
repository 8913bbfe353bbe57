// What the tables of options are made of: setters of fields, and the tables, one for each group of options.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "pipeline/options.hpp"

namespace rocm_sd::option_tables {

using Setter = std::function<void(OptionTargets&, std::string_view)>;
using Request = GenerateRequest;

constexpr int64_t kMaxSide = 4096;

LoadOptions& load_of(OptionTargets& t);  // throws UsageError where there is none
Request& request_of(OptionTargets& t);
bool parse_flag(std::string_view text);
std::vector<double> parse_list(std::string_view list);  // of numbers from 0 to 1e9, with commas

// A picture's file. Throws UsageError for an empty name, else what load_image throws.
Image read_picture(std::string_view path);
// The pictures of a folder in the order of their names, at most 64. Throws FileError and UsageError.
std::vector<Image> load_image_folder(const std::string& folder);

template <class Field>  // std::string, or optional
Setter text(Field Request::* field) {
  return [=](OptionTargets& t, std::string_view v) {
    const std::string problem = utf8_problem(v);
    require<UsageError>(problem.empty(), problem);
    request_of(t).*field = std::string(v);
  };
}

inline Setter optional_integer(std::optional<int> Request::* field, int64_t least, int64_t most) {
  return [=](OptionTargets& t, std::string_view v) {
    request_of(t).*field = static_cast<int>(parse_integer(v, least, most));
  };
}
inline Setter share(std::optional<double> Request::* field) {
  return [=](OptionTargets& t, std::string_view v) { request_of(t).*field = parse_number(v, 0, 1); };
}
template <class T>
Setter integer(T Request::* field, int64_t least, int64_t most) {
  return [=](OptionTargets& t, std::string_view v) {
    request_of(t).*field = static_cast<T>(parse_integer(v, least, most));
  };
}
inline Setter number(double Request::* field, double least, double most) {
  return [=](OptionTargets& t, std::string_view v) { request_of(t).*field = parse_number(v, least, most); };
}

// In the order of the help text.
std::vector<OptionRow> model_options();
std::vector<OptionRow> prompt_options();
std::vector<OptionRow> picture_options();
std::vector<OptionRow> sampling_options();
std::vector<OptionRow> image_to_image_options();
std::vector<OptionRow> hires_options();
std::vector<OptionRow> repeated_options();  // details and loopback
std::vector<OptionRow> preview_options();
std::vector<OptionRow> control_options();
std::vector<OptionRow> ip_adapter_options();
std::vector<OptionRow> tile_options();
std::vector<OptionRow> savings_options();
std::vector<OptionRow> advanced_options();

}  // namespace rocm_sd::option_tables
