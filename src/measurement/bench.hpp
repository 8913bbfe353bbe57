// Benchmarks of single problems: times, rates, shares of the roofline, errors and memory of every candidate.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/gpu_products.hpp"
#include "measurement/explore.hpp"

namespace rocm_sd::measurement {

enum class BenchMode { kCheck, kTime, kList };

struct BenchOptions {
  BenchMode mode = BenchMode::kTime;
  std::string impls = "";  // "": what the op picks; "*": all; "gpu": those whose name begins so; several by
                           // ',', among them "chosen": what the op picks
  double seconds = 0.5;    // of timing a problem
  int least_rounds = 5, rounds = 50;
  Caches caches = Caches::kCold;
  std::function<void(const std::string&)> progress;
  std::function<bool()> cancelled;
};

struct BenchRow {
  std::string op, problem, choice;
  bool chosen = false;  // what the op picks
  double launches = 1;  // of a picture
  double flops = 0, bytes = 0;
  std::vector<double> seconds;    // empty: not timed
  double median = 0, spread = 0;  // seconds; spread: from the first to the third quartile, over the median
  std::optional<double> roofline_share;  // of the bound's time in the median; where the GPU's rates are known
  std::optional<Accuracy> accuracy;
  uint64_t arena_bytes = 0;
  std::optional<double> joules;    // of one run, by the device's counter
  std::optional<double> core_mhz;  // the device's clock while it was timed, the median of the readings
  std::string failure;             // why there is nothing else
};

struct BenchReport {
  nlohmann::ordered_json head;  // record_head()
  std::string device, code, energy_counter;
  nlohmann::ordered_json clocks;  // ClockLog::json() of all timed runs; null where there are none
  std::string clock_text;
  bool model = false;     // times are an emulated GPU's bounds or the time model's
  bool modelled = false;  // the latter: nothing was checked
  std::vector<BenchRow> rows;
};

// The GPU that the device is in the table of products, or nothing.
std::optional<GpuProduct> product_of(Device& device);

BenchReport bench(Device& device, const std::vector<PlannedWorkload>& problems, const BenchOptions& options);

nlohmann::ordered_json bench_json(const BenchReport& report);
std::string bench_text(const BenchReport& report);      // columns for a terminal
std::string bench_markdown(const BenchReport& report);  // a table of the same

}  // namespace rocm_sd::measurement
