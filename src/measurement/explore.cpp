#include "measurement/explore.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "tuning/race.hpp"

namespace rocm_sd::measurement {
namespace {

using Clock = std::chrono::steady_clock;
using tuning::Record;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  return fmt::format("{:04}-{:02}-{:02}", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday);
}

// An error that may say that nothing more can be done on the device. Memory that does not suffice and
// refusals concern one candidate.
bool is_fatal(const Error& error) { return dynamic_cast<const DeviceError*>(&error) != nullptr; }

struct Job {
  Workload workload;
  double launches = 1;
};

class Tuner {
 public:
  Tuner(Device& device, tuning::Journal& journal, const TuneOptions& options)
      : device_(device),
        identity_(options.identity.value_or(tuning::identity_of(device))),
        journal_(journal),
        options_(options),
        stopwatch_(make_stopwatch(device)),
        skipped_(journal.interrupted()) {
    if (!skipped_.empty())
      note(concat("the run before ended at \"", printable(skipped_), "\", which is left out this time"));
  }

  TuneReport operator()(const std::vector<PlannedWorkload>& problems) {
    const std::vector<Job> jobs = open_jobs(problems);
    const auto begin = Clock::now();
    for (size_t i = 0; i < jobs.size(); ++i) {
      const double spent = seconds_since(begin);
      if ((options_.cancelled && options_.cancelled()) ||
          (options_.seconds > 0 && spent >= options_.seconds)) {
        report_.cancelled = options_.cancelled && options_.cancelled();
        report_.left = jobs.size() - i;
        break;
      }
      if (options_.progress) {
        const double rest =
            i == 0 ? 0 : spent / static_cast<double>(i) * static_cast<double>(jobs.size() - i);
        const double left = options_.seconds > 0
                                ? (i == 0 ? options_.seconds : std::min(rest, options_.seconds - spent))
                                : rest;
        options_.progress({i, jobs.size(), left, jobs[i].workload.op, jobs[i].workload.text});
      }
      explore(jobs[i]);
    }
    if (options_.progress) options_.progress({jobs.size() - report_.left, jobs.size(), 0, "", ""});
    journal_.trying("");
    return report_;
  }

 private:
  void note(const std::string& line) const {
    if (options_.note) options_.note(line);
  }

  // What is to be done, the costliest first.
  std::vector<Job> open_jobs(const std::vector<PlannedWorkload>& problems) {
    std::vector<Job> jobs;
    for (const PlannedWorkload& problem : problems) {
      if (!is_workload_op(problem.op)) continue;
      Job job{.launches = problem.launches};
      try {
        job.workload = parse_workload(problem.op, problem.text);
      } catch (const UsageError& error) {  // an op has learnt to say what this parser has not
        note(error.what());
        continue;
      }
      const Record* known = journal_.table().find_exact(identity_, problem.op, problem.text);
      if (known && !options_.again) {
        ++report_.problems;
        ++report_.kept;
        count(*known, job.launches);
      } else {
        jobs.push_back(std::move(job));
      }
    }
    // Bytes count, too: 100 operations for each, about what GPUs do meanwhile.
    const auto cost = [](const Job& job) {
      return job.launches * (job.workload.flops + 100 * job.workload.bytes);
    };
    std::ranges::stable_sort(jobs, [&](const Job& a, const Job& b) { return cost(a) > cost(b); });
    return jobs;
  }

  void count(const Record& record, double launches) {
    report_.default_seconds += launches * record.default_microseconds * 1e-6;
    report_.tuned_seconds += launches * record.microseconds * 1e-6;
    if (record.choice != record.default_choice) ++report_.changed;
  }

  // Runs `body`; false where it failed in a way that concerns this candidate alone.
  template <class Body>
  bool attempt(const Workload& workload, const std::string& choice, const Body& body) {
    try {
      body();
      return true;
    } catch (const Error& error) {
      if (is_fatal(error)) device_.synchronize();  // throws where the device is lost
      note(concat(workload.op, " ", workload.text, ": ", choice, " failed: ", error.what()));
      return false;
    }
  }

  void explore(const Job& job) {
    const Workload& workload = job.workload;
    std::optional<Inputs> inputs;
    if (!attempt(workload, "its input", [&] { inputs.emplace(device_, workload); })) return;
    std::vector<std::string> names;
    if (!attempt(workload, "planning", [&] { names = candidates_of(device_, workload, *inputs); })) return;
    std::erase_if(names, [&](const std::string& name) { return trial(workload, name) == skipped_; });
    if (names.size() < 2) return;
    ++report_.problems;

    // On a GPU all candidates read a weight in one layout; on the host each has its own.
    Arena arena(device_);
    const bool host = device_.kind() == DeviceKind::kHost;
    std::vector<std::unique_ptr<Weight>> weights;
    std::vector<std::unique_ptr<Runner>> runners;
    size_t most = 0;
    for (const std::string& name : names) {
      if (host || weights.empty()) weights.push_back(std::make_unique<Weight>(inputs->weight()));
      runners.emplace_back();
      attempt(workload, name, [&] {
        runners.back() = std::make_unique<Runner>(arena, workload, *inputs, *weights.back(), name);
        most = std::max(most, runners.back()->arena_bytes());
      });
    }
    if (options_.shortlist > 0) shorten(workload, names, runners);
    // An arena that grows later would make those before it capture again, in the middle of the race.
    if (!attempt(workload, "its workspace", [&] { arena.reserve(most); })) return;
    for (size_t i = 0; i < names.size() && stopwatch_->varies(); ++i) {
      if (!runners[i]) continue;
      journal_.trying(trial(workload, names[i]));
      const bool runs =
          attempt(workload, names[i], [&] {  // the first captures, the second makes a graph of it
            runners[i]->time(*stopwatch_, Caches::kAsIs);
            runners[i]->time(*stopwatch_, Caches::kAsIs);
          });
      if (!runs) runners[i].reset();
    }
    if (!runners[0]) return;
    judge(job, *inputs, names, runners);
  }

  // Leaves the untuned choice and the best of the others by the quicker estimate.
  void shorten(const Workload& workload, const std::vector<std::string>& names,
               std::vector<std::unique_ptr<Runner>>& runners) const {
    std::vector<std::pair<double, size_t>> others;
    for (size_t i = 1; i < names.size(); ++i)
      if (runners[i])
        others.emplace_back(options_.rank(workload, runners[i]->launches(), splits_of(names[i])), i);
    std::ranges::sort(others);
    for (size_t i = options_.shortlist; i < others.size(); ++i) runners[others[i].second].reset();
  }

  void judge(const Job& job, const Inputs& inputs, const std::vector<std::string>& names,
             std::vector<std::unique_ptr<Runner>>& runners) {
    const Workload& workload = job.workload;
    tuning::RaceRules rules{.seconds = options_.per_problem};
    if (!stopwatch_->varies()) rules.rounds = rules.least_rounds = 1;
    if (!stopwatch_->leaves_results()) rules.worth = 1 + kModelGain;
    if (device_.kind() == DeviceKind::kHost) rules.rounds = 5;
    const auto time_once = [&](size_t i) {
      double time = -1;
      if (!runners[i]) return time;
      journal_.trying(trial(workload, names[i]));
      attempt(workload, names[i], [&] { time = runners[i]->time(*stopwatch_, Caches::kCold); });
      return time;
    };
    const tuning::RaceResult race = tuning::race(names.size(), time_once, rules, options_.cancelled);
    if (race.times[0].empty() || (options_.cancelled && options_.cancelled())) return;

    const auto time = [&](size_t i) { return tuning::median(race.times[i]); };
    if (!stopwatch_->leaves_results()) return keep(job, names, race.winner, time(race.winner), time(0));
    const std::vector<float> plain = runners[0]->output();
    const Accuracy accuracy = check_output(workload, inputs, plain, names[0]);
    if (!accuracy.ok()) {
      ++report_.wrong;
      note(concat(workload.op, " ", workload.text, ": the untuned ", names[0],
                  " is WRONG: ", accuracy.describe()));
      return;
    }
    // The fastest that is right. Those that were left behind come after those that stayed.
    std::vector<size_t> order;
    for (size_t i = 0; i < names.size(); ++i)
      if (!race.times[i].empty() && i != race.winner) order.push_back(i);
    std::ranges::sort(order, [&](size_t a, size_t b) { return time(a) < time(b); });
    order.insert(order.begin(), race.winner);
    for (const size_t i : order) {
      if (i != 0 && !is_right(workload, inputs, *runners[i], plain)) {
        ++report_.wrong;
        continue;
      }
      keep(job, names, i, i == 0 ? time(0) : std::min(time(i), time(0)), time(0));
      return;
    }
  }

  bool is_right(const Workload& workload, const Inputs& inputs, Runner& runner,
                const std::vector<float>& plain) {
    std::vector<float> output;
    if (!attempt(workload, runner.choice(), [&] { output = runner.output(); })) return false;
    const Accuracy accuracy = check_output(workload, inputs, output, runner.choice());
    const int64_t different = count_differences(workload, inputs, plain, output, runner.choice());
    if (accuracy.ok() && different == 0) return true;
    note(concat(workload.op, " ", workload.text, ": ", runner.choice(), " is WRONG and was not kept: ",
                accuracy.describe(), "; ", different, " elements differ from the untuned result"));
    return false;
  }

  void keep(const Job& job, const std::vector<std::string>& names, size_t winner, double seconds,
            double default_seconds) {
    const Record record{identity_,
                        job.workload.op,
                        job.workload.text,
                        names[winner],
                        names[0],
                        seconds * 1e6,
                        default_seconds * 1e6,
                        stopwatch_->is_model() ? tuning::Origin::kModel : tuning::Origin::kMeasured,
                        today()};
    journal_.append(record);
    ++report_.done;
    count(record, job.launches);
    log().debug("tuned {} {}: {} ({:.1f} us, untuned {} {:.1f} us)", record.op, record.problem, record.choice,
                record.microseconds, record.default_choice, record.default_microseconds);
  }

  static std::string trial(const Workload& workload, const std::string& choice) {
    return concat(workload.op, "\t", workload.text, "\t", choice);
  }

  Device& device_;
  tuning::Identity identity_;
  tuning::Journal& journal_;
  const TuneOptions& options_;
  std::unique_ptr<Stopwatch> stopwatch_;
  std::string skipped_;
  TuneReport report_;
};

}  // namespace

TuneReport tune(Device& device, const std::vector<PlannedWorkload>& problems, tuning::Journal& journal,
                const TuneOptions& options) {
  return Tuner(device, journal, options)(problems);
}

Verification verify(Device& device, const Record& record) {
  try {
    const Workload workload = parse_workload(record.op, record.problem);
    // A table may name anything: what would fill the memory or the day is not run.
    constexpr double kMaxFlops = 2e13;
    const auto memory = static_cast<double>(device.memory().free);
    if (workload.flops > kMaxFlops || 3 * workload.bytes > memory)
      return {Verdict::kRefused, "is too large to be checked here"};
    const Inputs inputs(device, workload);
    const std::vector<std::string> names = candidates_of(device, workload, inputs, Slow::kIncluded);
    if (std::ranges::find(names, record.choice) == names.end())
      return {Verdict::kRefused, concat(record.choice, " is no choice for it here")};
    Arena arena(device);
    const Weight weight = inputs.weight();
    Runner runner(arena, workload, inputs, weight, record.choice);
    const Accuracy accuracy = check_output(workload, inputs, runner.output(), record.choice);
    return {accuracy.ok() ? Verdict::kRight : Verdict::kWrong, accuracy.describe()};
  } catch (const Error& error) {
    if (is_fatal(error)) throw;
    return {Verdict::kRefused, error.what()};
  }
}

}  // namespace rocm_sd::measurement
