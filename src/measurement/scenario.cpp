#include "measurement/scenario.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/error.hpp"

namespace rocm_sd::measurement {
namespace {

void stop_if_cancelled(const ScenarioHooks& hooks) {
  require<CancelledError>(!hooks.cancelled || !hooks.cancelled(), "cancelled");
}

// Moments at which queries come, from 0. Exponential gaps by inversion, so that every library gives the same.
std::vector<double> arrivals(const ScenarioOptions& o) {
  std::mt19937_64 random(o.seed);
  std::vector<double> out;
  double at = 0;
  for (int i = 0; i < o.queries; ++i) {
    out.push_back(at);
    const double uniform = (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53;
    at += -std::log(uniform) / o.per_second;
  }
  return out;
}

}  // namespace

double ScenarioResult::percentile(double share) const {
  if (latencies.empty()) return 0;
  std::vector<double> sorted = latencies;
  std::ranges::sort(sorted);
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::clamp<size_t>(rank, 1, sorted.size()) - 1];
}

ScenarioHooks real_time(std::function<void(int)> draw) {
  using Clock = std::chrono::steady_clock;
  return {.draw = std::move(draw),
          .now = [] { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); },
          .wait = [](double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); },
          .cancelled = {}};
}

ScenarioResult run_scenario(const ScenarioOptions& o, const ScenarioHooks& hooks) {
  require<UsageError>(o.queries >= 1 && o.batch >= 1 && o.warm_up >= 0,
                      "scenario: expected at least one query and one picture at once, got ", o.queries,
                      " and ", o.batch);
  require<UsageError>(o.per_second > 0 && std::isfinite(o.per_second),
                      "scenario: expected a positive rate, got ", o.per_second);
  for (int i = 0; i < o.warm_up; ++i) hooks.draw(o.kind == ScenarioKind::kOffline ? o.batch : 1);
  ScenarioResult result{.queries = o.queries};
  const std::vector<double> due = o.kind == ScenarioKind::kServer ? arrivals(o) : std::vector<double>();
  const double begin = hooks.now();
  for (int done = 0; done < o.queries;) {
    stop_if_cancelled(hooks);
    const int count = o.kind == ScenarioKind::kOffline ? std::min(o.batch, o.queries - done) : 1;
    double asked = hooks.now();
    if (o.kind == ScenarioKind::kOffline) asked = begin;
    if (o.kind == ScenarioKind::kServer) {
      asked = begin + due[static_cast<size_t>(done)];
      if (const double early = asked - hooks.now(); early > 0) hooks.wait(early);
    }
    hooks.draw(count);
    const double answered = hooks.now();
    for (int i = 0; i < count; ++i) result.latencies.push_back(answered - asked);
    done += count;
  }
  result.seconds = hooks.now() - begin;
  return result;
}

nlohmann::ordered_json scenario_json(const ScenarioResult& r) {
  return {{"queries", r.queries},
          {"seconds", r.seconds},
          {"queries_per_second", r.queries_per_second()},
          {"latency_seconds",
           {{"p50", r.percentile(0.5)},
            {"p90", r.percentile(0.9)},
            {"p99", r.percentile(0.99)},
            {"max", r.percentile(1)}}}};
}

}  // namespace rocm_sd::measurement
