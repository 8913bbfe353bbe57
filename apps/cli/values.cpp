#include "apps/cli/values.hpp"

#include "base/error.hpp"

namespace rocm_sd::cli {

double parse_seconds(const std::string& text) {
  constexpr double kDay = 86400;
  std::string number = text;
  double unit = 1;
  if (!text.empty()) {
    const char last = text.back();
    unit = last == 'm' ? 60 : last == 'h' ? 3600 : 1;
    if (last == 's' || last == 'm' || last == 'h') number.pop_back();
  }
  try {
    return parse_number(number, 0, kDay / unit) * unit;
  } catch (const UsageError&) {
    throw UsageError(
        concat("expected a time of at most a day such as 5, 90s, 10m or 2h, got \"", printable(text), "\""));
  }
}

CLI::Option* add_seconds(CLI::App* app, const std::string& names, double& target, const std::string& help) {
  const auto take = [&target, names](const std::string& text) {
    read_value(names, [&] { target = parse_seconds(text); });
  };
  return app->add_option_function<std::string>(names, take, help)->type_name("TIME");
}

CLI::Option* add_text(CLI::App* app, const std::string& names, std::string& target, const std::string& help) {
  return app->add_option(names, target, help)->check([](const std::string& text) {
    return std::string(text.empty() ? "expected a value, got an empty text" : "");
  });
}

}  // namespace rocm_sd::cli
