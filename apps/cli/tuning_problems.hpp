// The problems that `tune` and `bench` work on: of known models, of a checkpoint, or from a file.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "base/gpu_products.hpp"
#include "measurement/explore.hpp"
#include "runtime/device.hpp"

namespace rocm_sd::cli {

struct ProblemSource {
  std::vector<std::string> models;    // names that predict knows, or paths of checkpoints
  std::vector<std::string> problems;  // "op problem" each
  std::string file;  // lines "op problem", as tables and logs name them; or a name that predict knows
  std::string dtype = "auto", weights = "auto", ops;  // ops: "linear,conv2d"
  int64_t width = 0, height = 0, batch = 1;
  int steps = 20;
  bool no_guidance = false;
};

void add_problem_options(CLI::App* sub, ProblemSource& source);

// Each problem once, with how often a picture needs it (1 for a checkpoint's and a file's). Throws UsageError
// where nothing is named, FileError and FormatError for the file, and what loading a checkpoint throws.
std::vector<measurement::PlannedWorkload> problems_of(const ProblemSource& source, Device& device);

// Adds to a problem that is there. Ops that are not tuned are passed over.
void add_problem(std::vector<measurement::PlannedWorkload>& problems, const std::string& op,
                 const std::string& text, double launches);

// device_named(), where emulated GPUs count, which stands for their time. Before anything else opens them.
Device& open_counting_device(const std::string& name);

// The estimate of `tune --modelled` for a product (analysis/modelled_time.hpp).
measurement::LaunchModel bound_model(const GpuProduct& product);

// `tune --modelled`: the model's choices for a GPU on paper (a product's name, or "all" of an architecture
// that was given by one: "gfx1100"), added to the table. Throws UsageError for what names no product.
void run_modelled_tune(const ProblemSource& source, const std::string& gpu,
                       const std::filesystem::path& table, bool quiet);

}  // namespace rocm_sd::cli
