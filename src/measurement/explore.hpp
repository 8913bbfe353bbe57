// The tuner: for each problem, every candidate is timed, the fastest is checked, and the choice is kept.
#pragma once

#include <functional>
#include <string>
#include <vector>

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

// Problems that cost most come first. Each result is in the journal before the next problem begins; a problem
// with one candidate only is passed over. A candidate that fails (memory, driver) is left out and noted; a
// device that is lost ends the call with its DeviceError, and the journal knows at which candidate. Throws
// FileError where the journal cannot be written.
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
