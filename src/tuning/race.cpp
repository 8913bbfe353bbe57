#include "tuning/race.hpp"

#include <algorithm>
#include <chrono>
#include <limits>

namespace rocm_sd::tuning {

double median(std::vector<double> values) {
  const size_t half = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half), values.end());
  if (values.size() % 2) return values[half];
  return (values[half] +
          *std::max_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half))) /
         2;
}

RaceResult race(size_t candidates, const std::function<double(size_t)>& time_once, const RaceRules& rules,
                const std::function<bool()>& cancelled) {
  using Clock = std::chrono::steady_clock;
  constexpr double kNever = std::numeric_limits<double>::infinity();
  RaceResult out;
  out.times.resize(candidates);
  std::vector<char> running(candidates, 1);
  const auto best_of = [&](size_t i) {
    return out.times[i].empty() ? kNever : *std::ranges::min_element(out.times[i]);
  };
  const auto begin = Clock::now();
  for (int round = 0; round < rules.rounds; ++round) {
    for (size_t i = 0; i < candidates; ++i) {
      if (!running[i]) continue;
      const double time = time_once(i);
      if (time >= 0) {
        out.times[i].push_back(time);
        continue;
      }
      running[i] = 0;
      out.times[i].clear();
    }
    double best = kNever;
    for (size_t i = 0; i < candidates; ++i) best = std::min(best, best_of(i));
    for (size_t i = 1; i < candidates; ++i)  // the first stays, to be compared with
      if (best_of(i) > rules.behind * best) running[i] = 0;
    const std::chrono::duration<double> spent = Clock::now() - begin;
    if (round + 1 >= rules.least_rounds && spent.count() > rules.seconds) break;
    if (cancelled && cancelled()) break;
  }
  // Those that were left behind have fewer times, all of them worse.
  size_t winner = candidates;
  double least = kNever;
  for (size_t i = 0; i < candidates; ++i)
    if (running[i] && !out.times[i].empty() && median(out.times[i]) < least) {
      least = median(out.times[i]);
      winner = i;
    }
  if (winner == candidates) winner = 0;
  if (winner != 0 && running[0] && !out.times[0].empty() && median(out.times[0]) < rules.worth * least)
    winner = 0;
  out.winner = winner;
  return out;
}

}  // namespace rocm_sd::tuning
