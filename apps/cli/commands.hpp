// The subcommands of rocm-sd: each adds itself to the parser and runs when chosen.
#pragma once

#include <CLI/CLI.hpp>

namespace rocm_sd::cli {

void add_generate(CLI::App& app);
void add_grid(CLI::App& app);
void add_inspect(CLI::App& app);
void add_convert(CLI::App& app);
void add_list(CLI::App& app);
void add_devices(CLI::App& app);
void add_params(CLI::App& app);
void add_reproduce(CLI::App& app);
void add_upscale(CLI::App& app);
void add_compare(CLI::App& app);
void add_tokenize(CLI::App& app);
void add_emu(CLI::App& app);
void add_doctor(CLI::App& app);
void add_predict(CLI::App& app);
void add_tune(CLI::App& app);
void add_bench(CLI::App& app);
void add_serve(CLI::App& app);  // and serve-worker

}  // namespace rocm_sd::cli
