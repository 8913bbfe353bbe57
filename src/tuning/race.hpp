// A race of candidates: timed in turns, so that a change of clocks or load hits all alike, and left behind as
// soon as they cannot win.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace rocm_sd::tuning {

struct RaceRules {
  int rounds = 7;        // at most
  int least_rounds = 3;  // of those that stay in it
  double seconds = 1;    // after which no further round begins, once least_rounds are done
  double behind = 1.25;  // a candidate whose best time is this many times the best of all drops out
  double worth = 1.02;   // the first candidate wins unless another is faster by this
};

struct RaceResult {
  size_t winner = 0;
  std::vector<std::vector<double>> times;  // of each candidate, as they came; empty: it failed
};

// Candidate 0 is what would run without a race. time_once(i) gives a time of candidate i in any unit, or
// throws nothing and gives a negative number where it failed, which takes it out of the race. cancelled, if
// given, ends the race after the round it is seen in. The winner has the least median.
RaceResult race(size_t candidates, const std::function<double(size_t)>& time_once,
                const RaceRules& rules = {}, const std::function<bool()>& cancelled = {});

double median(std::vector<double> values);  // of at least one value

}  // namespace rocm_sd::tuning
