// rocm-sd inspect, convert, list, params: questions about files and names.
#include <fmt/format.h>

#include "apps/cli/commands.hpp"
#include "rocm_sd/pipeline.hpp"

namespace rocm_sd::cli {

void add_list(CLI::App& app) {
  CLI::App* list = app.add_subcommand("list", "names that other commands take");
  list->require_subcommand(1);
  list->add_subcommand("samplers", "samplers, with A1111's labels")->callback([] {
    for (const std::string& name : sampler_names()) fmt::print("{}\n", name);
  });
  list->add_subcommand("schedules", "noise schedules")->callback([] {
    for (const std::string& name : schedule_names_list()) fmt::print("{}\n", name);
  });
}

void add_params(CLI::App& app) {
  auto file = std::make_shared<std::string>();
  CLI::App* params = app.add_subcommand("params", "print the generation parameters that a picture carries");
  params->add_option("FILE", *file, "PNG, JPEG or WebP")->required();
  params->callback([file] {
    const std::string text = read_parameters(*file);
    if (text.empty()) throw FormatError(*file + ": carries no parameters");
    fmt::print("{}\n", text);
  });
}

}  // namespace rocm_sd::cli
