// The tuner: for each problem, every candidate is timed, the fastest is checked, and the choice is kept.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "measurement/modelled.hpp"
#include "measurement/runner.hpp"
#include "tuning/journal.hpp"

namespace rocm_sd::measurement {

// A problem of a plan, and how often a picture needs it.
struct PlannedWorkload {
  std::string op, text;
  double launches = 1;
};

struct TuneProgress {
  size_t done = 0, all = 0;  // problems
  double seconds_left = 0;   // by what those before took, within the budget
  std::string op, text;      // at hand
};

struct TuneOptions {
  double seconds = 0;        // budget; 0: until all is done
  bool again = false;        // also what the table has for this device and code
  double per_problem = 0.5;  // seconds of timing a problem, once each candidate had its least rounds
  std::function<void(const TuneProgress&)> progress;
  std::function<void(const std::string&)> note;  // lines worth telling
  std::function<bool()> cancelled;
  // Where launches are modelled (Stopwatch::leaves_results() is false), each takes seconds of the host: of a
  // problem's candidates only the untuned one and the `shortlist` best by `rank` are. 0: all.
  size_t shortlist = 0;
  LaunchModel rank;
  std::optional<tuning::Identity> identity;  // of the card that is modelled: whose records they become
};

struct TuneReport {
  size_t problems = 0;                            // of those given: with a choice to make
  size_t done = 0, kept = 0;                      // in this call; already in the table
  size_t left = 0;                                // for want of time
  size_t changed = 0;                             // where another choice than the untuned one won
  size_t wrong = 0;                               // candidates whose results were wrong: a defect to be told
  double default_seconds = 0, tuned_seconds = 0;  // a picture's launches of what was done or kept
  bool cancelled = false;
};

// The part of a time by which modelled times of two kernels for one problem may differ for no reason.
inline constexpr double kModelGain = 0.03;

// Problems that cost most come first. Each result is in the journal before the next problem begins; a problem
// with one candidate only is passed over. A candidate that fails (memory, driver) is left out and noted; a
// device that is lost ends the call with its DeviceError, and the journal knows at which candidate. Where
// launches are modelled there are no results to check, and another choice than the untuned one has to gain
// kModelGain. Throws FileError where the journal cannot be written.
TuneReport tune(Device& device, const std::vector<PlannedWorkload>& problems, tuning::Journal& journal,
                const TuneOptions& options);

enum class Verdict { kRight, kWrong, kRefused };
struct Verification {
  Verdict verdict = Verdict::kRefused;
  std::string detail;
};
// Runs a table's choice on this device and compares it with the reference.
Verification verify(Device& device, const tuning::Record& record);

}  // namespace rocm_sd::measurement
