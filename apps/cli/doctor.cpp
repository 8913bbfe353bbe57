// rocm-sd doctor: what this machine can do, what is missing and what each gap costs.
#include "doctor/diagnose.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/cli/commands.hpp"

namespace rocm_sd::cli {

void add_doctor(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  auto root = std::make_shared<std::string>("/");
  CLI::App* sub =
      app.add_subcommand("doctor", "what this machine can do, what is missing, its cost and its fix");
  sub->add_flag("--json", *json, "print JSON");
  sub->add_option("--root", *root,
                  "read /sys, /proc, /dev and /etc below this folder (of another machine) [/]");
  sub->callback([json, root] {
    const doctor::Examination examination = doctor::examine(*root);
    const auto findings = doctor::diagnose(examination);
    if (*json)
      fmt::print("{}\n", doctor::report_json(examination, findings)
                             .dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    else
      fmt::print("{}", doctor::report_text(examination, findings));
  });
}

}  // namespace rocm_sd::cli
