// Scenarios of whole pictures: how long they take one after the other, as many as there are at once, or as
// users ask for them.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace rocm_sd::measurement {

// Loosely MLPerf's: kStream waits for each picture before it asks for the next; kOffline has all of them at
// once; in kServer they come at random moments (a Poisson process) and wait in line.
enum class ScenarioKind { kStream, kOffline, kServer };

struct ScenarioOptions {
  ScenarioKind kind = ScenarioKind::kStream;
  int queries = 10;         // of one picture each
  int warm_up = 1;          // that are not counted
  int batch = 1;            // most pictures at once, kOffline only
  double per_second = 0.1;  // kServer: how often a query comes, on average
  uint64_t seed = 1;
};

struct ScenarioResult {
  int queries = 0;
  double seconds = 0;             // from the first query to the last answer
  std::vector<double> latencies;  // of each query, in order; seconds
  double queries_per_second() const { return seconds > 0 ? queries / seconds : 0; }
  double percentile(double share) const;  // of the latencies: the least that this share is within
};

// draw(count) makes that many pictures and returns when they are there; clock and wait are the real ones
// unless a test gives others.
struct ScenarioHooks {
  std::function<void(int)> draw;
  std::function<double()> now;       // seconds
  std::function<void(double)> wait;  // seconds
  std::function<bool()> cancelled;   // may be empty
};
ScenarioHooks real_time(std::function<void(int)> draw);

// Throws UsageError for counts below one or a rate that is not positive, CancelledError, and what draw
// throws.
ScenarioResult run_scenario(const ScenarioOptions& options, const ScenarioHooks& hooks);

nlohmann::ordered_json scenario_json(const ScenarioResult& result);

}  // namespace rocm_sd::measurement
