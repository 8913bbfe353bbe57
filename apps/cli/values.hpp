// Options of the command line with checked values: every number goes through one strict reader, and an empty
// text is a value nowhere.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <type_traits>

#include "pipeline/options.hpp"

namespace rocm_sd::cli {

// Runs `read`, whose UsageError becomes CLI11's, with the option's name in front.
template <class Read>
void read_value(const std::string& names, const Read& read) {
  try {
    read();
  } catch (const UsageError& e) {
    throw CLI::ValidationError(names.substr(names.find_last_of(',') + 1), e.what());
  }
}

// A whole number or a number with a point, within bounds: digits alone, no blanks, no 0x, no leading zeros.
template <class T>
CLI::Option* add_number(CLI::App* app, const std::string& names, T& target, const std::string& help,
                        std::type_identity_t<T> least, std::type_identity_t<T> most) {
  const auto take = [&target, names, least, most](const std::string& text) {
    read_value(names, [&] {
      if constexpr (std::is_floating_point_v<T>)
        target = static_cast<T>(parse_number(text, least, most));
      else
        target = static_cast<T>(parse_integer(text, least, most));
    });
  };
  return app->add_option_function<std::string>(names, take, help)
      ->type_name(std::is_floating_point_v<T> ? "X" : "N");
}

// A time: "90", "90s", "10m", "2h", from 0 to a day.
double parse_seconds(const std::string& text);
CLI::Option* add_seconds(CLI::App* app, const std::string& names, double& target, const std::string& help);

// A text that is not empty.
CLI::Option* add_text(CLI::App* app, const std::string& names, std::string& target, const std::string& help);

}  // namespace rocm_sd::cli
