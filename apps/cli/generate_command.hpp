// rocm-sd generate's options, which grid has, too, and the run that they ask for.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

#include "apps/cli/jobs.hpp"
#include "pipeline/options.hpp"

namespace rocm_sd::cli {

struct GenerateCommand {
  std::vector<std::pair<const OptionRow*, std::string>> set;  // in the order given
  std::string output = "out/{index:05}-{seed}.png";
  std::string config, prompts_file, grid, progress = "auto", trace, journal, wildcard_dir;
  std::string preview_path;      // empty: preview.png, or no file beside preview_terminal
  std::string preview_terminal;  // empty: not there
  int quality = 95, repeat = 1, threads = 0;
  double tune = 0;  // seconds after each picture
  bool profile = false, no_metadata = false, no_receipt = false, grid_labels = false, plan_only = false;
  bool quiet = false, dynamic_prompts = false;
  bool compare_exact = false;  // each batch is drawn without its savings, too
  bool print_paths = true;     // on the standard output
};

// $XDG_CONFIG_HOME/rocm-sd/config.toml, else ~/.config/rocm-sd/config.toml; empty where neither is set.
std::string default_config_path();

// The options that generate and grid share.
void add_generate_options(CLI::App* sub, GenerateCommand* command);

// Of an option that is given twice the last one counts, but for those that add to a list.
void take_last(CLI::App* sub);

// Draws and writes the pictures. jobs: besides those of files of prompts and folders. Returns the paths of
// all pictures in order, those of an earlier run with this journal among them. Throws Error subclasses.
std::vector<std::string> run_generate(const GenerateCommand& command, const std::vector<Job>& jobs = {});

}  // namespace rocm_sd::cli
