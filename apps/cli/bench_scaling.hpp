// rocm-sd bench --scenario scaling: one picture on more and more ranks (strong scaling), and a picture for
// each of more and more drawers (weak scaling).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "rocm_sd/multi.hpp"

namespace rocm_sd::cli {

// Options that save time at the price of the picture ("deep-cache=3,guidance-end=0.8"), and the request with
// them. Throws UsageError for other options and for values that they do not take.
struct SavedRequest {
  std::string name;
  GenerateRequest request;
};
SavedRequest with_savings(const GenerateRequest& request, const std::string& options);

struct ScalingBench {
  LoadOptions load;                  // without its devices and its split
  GenerateRequest request;           // of every picture; the seed stays
  std::vector<std::string> devices;  // rank i takes number i modulo how many there are
  std::vector<int> ranks = {1, 2};   // 1 is always measured, and first
  std::vector<std::string> splits;   // as --split; "images": weak scaling
  std::vector<SavedRequest> saved;   // drawn by every split of several ranks, too
  int pictures = 3, warm_up = 1;     // a configuration, and with images a drawer
  bool quiet = false;
};

struct ScalingReport {
  std::string text, markdown;
};

// Splits and ranks that do not go together are left out, with the reason. Throws what loading and drawing on
// one rank throw, CancelledError where it was interrupted. json: docs/howto/benchmarks.md describes it.
ScalingReport bench_scaling(const ScalingBench& bench, nlohmann::ordered_json& json);

}  // namespace rocm_sd::cli
