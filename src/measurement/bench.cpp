#include "measurement/bench.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "kernels/choice_record.hpp"
#include "measurement/clocks.hpp"
#include "measurement/energy.hpp"
#include "measurement/record.hpp"
#include "tuning/race.hpp"

namespace rocm_sd::measurement {
namespace {

bool is_wanted(const std::string& choice, std::string_view impls) {
  if (impls == "*") return true;
  while (!impls.empty()) {
    const std::string_view one = impls.substr(0, impls.find(','));
    impls.remove_prefix(std::min(one.size() + 1, impls.size()));
    const bool whole = one.starts_with('=');
    if (whole ? choice == one.substr(1) : !one.empty() && choice.starts_with(one)) return true;
  }
  return false;
}

void set_times(BenchRow& row, std::vector<double> seconds) {
  row.seconds = std::move(seconds);
  if (row.seconds.empty()) return;
  std::vector<double> sorted = row.seconds;
  std::ranges::sort(sorted);
  row.median = tuning::median(sorted);
  const auto at = [&](double share) {
    return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1))];
  };
  row.spread = (at(0.75) - at(0.25)) / row.median;
}

// Seconds that the problem takes at least.
double bound(const GpuProduct& gpu, const Workload& w) {
  const bool half = w.dtype != DType::kF32 && w.op != "group_norm" && w.op != "layer_norm";
  return std::max(w.flops / peak_rate(gpu, half ? RateType::kF16 : RateType::kF32),
                  w.bytes / (gpu.bandwidth * 1e9));
}

class Bench {
 public:
  Bench(Device& device, const BenchOptions& options)
      : device_(device),
        options_(options),
        stopwatch_(make_stopwatch(device)),
        counters_(energy_counters(device)),
        clocks_(clock_meter(device)),
        product_(product_of(device)) {}

  BenchReport operator()(const std::vector<PlannedWorkload>& problems) {
    const tuning::Identity identity = tuning::identity_of(device_);
    report_ = {.head = record_head("bench", device_),
               .device = device_.name(),
               .code = identity.code,
               .model = stopwatch_->is_model(),
               .modelled = !stopwatch_->leaves_results()};
    if (!counters_.empty()) report_.energy_counter = counters_[0]->name();
    for (const PlannedWorkload& problem : problems) {
      if (options_.cancelled && options_.cancelled()) break;
      if (!is_workload_op(problem.op)) continue;
      if (options_.progress) options_.progress(concat(problem.op, " ", problem.text));
      try {
        one(parse_workload(problem.op, problem.text), problem.launches);
      } catch (const UsageError& error) {
        report_.rows.push_back({.op = problem.op, .problem = problem.text, .failure = error.what()});
      }
    }
    report_.clocks = clocks_.json();
    report_.clock_text = clocks_.text();
    return std::move(report_);
  }

 private:
  struct Entry {
    BenchRow row;
    std::unique_ptr<Weight> weight;
    std::unique_ptr<Runner> runner;
  };

  void one(const Workload& workload, double launches) {
    BenchRow plain{.op = workload.op,
                   .problem = workload.text,
                   .launches = launches,
                   .flops = workload.flops,
                   .bytes = workload.bytes};
    try {
      const Inputs inputs(device_, workload);
      const std::string picked = pick(workload, inputs);
      Arena arena(device_);
      std::vector<Entry> entries;
      for (const std::string& name : candidates_of(device_, workload, inputs, Slow::kIncluded)) {
        // What is picked names no configuration where it takes its default, which comes first.
        const bool chosen = name == picked || (!chosen_seen(entries) && name.starts_with(picked + " "));
        const bool wanted =
            is_wanted(name, options_.impls) || (chosen && is_wanted("chosen", options_.impls));
        if (options_.impls.empty() ? !chosen : !wanted) continue;
        entries.push_back({plain, nullptr, nullptr});
        entries.back().row.choice = name;
        entries.back().row.chosen = chosen;
      }
      if (options_.mode != BenchMode::kList) measure(workload, inputs, arena, entries);
      for (Entry& entry : entries) report_.rows.push_back(std::move(entry.row));
    } catch (const Error& error) {
      plain.failure = error.what();
      report_.rows.push_back(std::move(plain));
    }
  }

  static bool chosen_seen(const std::vector<Entry>& entries) {
    return std::ranges::any_of(entries, [](const Entry& e) { return e.row.chosen; });
  }

  std::string pick(const Workload& workload, const Inputs& inputs) const {
    Arena arena(device_);
    const ChoiceRecord record;
    const Weight weight = inputs.weight();
    const Runner runner(arena, workload, inputs, weight, "");
    return record.choices().at(0).impl;
  }

  void measure(const Workload& workload, const Inputs& inputs, Arena& arena, std::vector<Entry>& entries) {
    size_t most = 0;
    for (Entry& e : entries)
      guard(e, [&] {
        e.weight = std::make_unique<Weight>(inputs.weight());
        e.runner = std::make_unique<Runner>(arena, workload, inputs, *e.weight, e.row.choice);
        e.row.arena_bytes = e.runner->arena_bytes();
        most = std::max(most, e.runner->arena_bytes());
      });
    arena.reserve(most);  // one that grows later makes those before it capture again
    for (Entry& e : entries)
      if (e.runner && stopwatch_->leaves_results())
        guard(e, [&] { e.row.accuracy = check_output(workload, inputs, e.runner->output(), e.row.choice); });
    if (options_.mode != BenchMode::kTime) return;
    tuning::RaceRules rules{.rounds = options_.rounds,
                            .least_rounds = options_.least_rounds,
                            .seconds = options_.seconds,
                            .behind = 1e30};  // nobody drops out
    if (!stopwatch_->varies()) rules.rounds = rules.least_rounds = 1;
    const auto time_once = [&](size_t i) {
      double time = -1;
      if (entries[i].runner)
        guard(entries[i], [&] { time = entries[i].runner->time(*stopwatch_, options_.caches); });
      clocks_.read_due();
      return time;
    };
    clocks_.read();
    const size_t first_reading = clocks_.readings().size();
    tuning::RaceResult race = tuning::race(entries.size(), time_once, rules, options_.cancelled);
    clocks_.read();
    const std::optional<double> core_mhz = median_clock(first_reading);
    for (size_t i = 0; i < entries.size(); ++i) {
      BenchRow& row = entries[i].row;
      set_times(row, std::move(race.times[i]));
      if (row.seconds.empty()) continue;
      row.core_mhz = core_mhz;
      if (product_) row.roofline_share = bound(*product_, workload) / row.median;
      if (!counters_.empty()) row.joules = energy_of(*entries[i].runner, row.median);
    }
  }

  std::optional<double> median_clock(size_t first) const {
    std::vector<double> values;
    for (size_t i = first; i < clocks_.readings().size(); ++i)
      if (const auto mhz = clocks_.readings()[i].core_mhz) values.push_back(*mhz);
    return values.empty() ? std::nullopt : std::optional(tuning::median(values));
  }

  // Counters tick slowly: as many runs as take half a second, with the caches as they are.
  double energy_of(Runner& runner, double seconds) {
    const int runs = static_cast<int>(std::clamp(0.5 / std::max(seconds, 1e-9), 1.0, 20000.0));
    const double before = counters_[0]->joules();
    for (int i = 0; i < runs; ++i) runner.time(*stopwatch_, Caches::kAsIs);
    device_.synchronize();
    return (counters_[0]->joules() - before) / runs;
  }

  // A failure of one candidate is its row's; a lost device ends all.
  template <class Body>
  void guard(Entry& entry, const Body& body) {
    try {
      body();
    } catch (const DeviceError&) {
      throw;
    } catch (const Error& error) {
      entry.row.failure = error.what();
      entry.runner.reset();
    }
  }

  Device& device_;
  const BenchOptions& options_;
  std::unique_ptr<Stopwatch> stopwatch_;
  std::vector<std::unique_ptr<EnergyCounter>> counters_;
  ClockLog clocks_;
  std::optional<GpuProduct> product_;
  BenchReport report_;
};

}  // namespace

std::optional<GpuProduct> product_of(Device& device) {
  if (device.kind() == DeviceKind::kHost) return std::nullopt;
  const tuning::Identity identity = tuning::identity_of(device);
  for (const GpuProduct& gpu : gpu_products()) {
    const std::string model = gpu.name.substr(0, gpu.name.find(" SXM"));  // drivers say "NVIDIA H200"
    if (gpu.arch == identity.arch && identity.product.ends_with(model) && peak_rate(gpu, RateType::kF16) > 0)
      return gpu;
  }
  return std::nullopt;
}

BenchReport bench(Device& device, const std::vector<PlannedWorkload>& problems, const BenchOptions& options) {
  return Bench(device, options)(problems);
}

}  // namespace rocm_sd::measurement
