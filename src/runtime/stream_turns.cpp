#include "runtime/stream_turns.hpp"

#include <algorithm>
#include <numeric>

namespace rocm_sd {
namespace {

double work_of(const StreamedUse& use) { return std::max(use.work, 1.0); }  // of launches that count none

// How many bytes may be copied for each use, when `wanted` are to be copied in all: as many for each piece of
// work, but where the weights have fewer, all of them.
std::vector<double> share_out(std::span<const StreamedUse> uses, double wanted) {
  const auto share = [](const StreamedUse& use, double rate) {
    return std::min(static_cast<double>(use.bytes), rate * work_of(use));
  };
  const auto given = [&](double rate) {
    double sum = 0;
    for (const StreamedUse& use : uses) sum += share(use, rate);
    return sum;
  };
  double low = 0, high = 0;  // at the highest rate all bytes are copied
  for (const StreamedUse& use : uses) high = std::max(high, static_cast<double>(use.bytes) / work_of(use));
  constexpr int kHalvings = 100;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (given(middle) < wanted ? low : high) = middle;
  }
  std::vector<double> out;
  for (const StreamedUse& use : uses) out.push_back(share(use, high));
  return out;
}

}  // namespace

std::vector<bool> choose_turns(std::span<const StreamedUse> uses, uint64_t keep) {
  uint64_t all = 0;
  for (const StreamedUse& use : uses) all += use.bytes;
  if (all <= keep) return std::vector<bool>(uses.size(), false);
  const std::vector<double> shares = share_out(uses, static_cast<double>(all - keep));
  std::vector<bool> turns(uses.size());
  uint64_t kept = 0, given = 0;
  double may_be_given = 0;
  constexpr double kRounding = 0.5;
  for (size_t i = 0; i < uses.size(); ++i) {
    may_be_given += shares[i];
    const bool early = static_cast<double>(given + uses[i].bytes) > may_be_given + kRounding;
    turns[i] = !early || kept + uses[i].bytes > keep;
    (turns[i] ? given : kept) += uses[i].bytes;
  }
  // What still finds room stays: first what has least work to hide its copy.
  std::vector<size_t> order(uses.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return work_of(uses[a]) * static_cast<double>(uses[b].bytes) <
           work_of(uses[b]) * static_cast<double>(uses[a].bytes);
  });
  for (const size_t i : order)
    if (turns[i] && kept + uses[i].bytes <= keep) {
      turns[i] = false;
      kept += uses[i].bytes;
    }
  return turns;
}

}  // namespace rocm_sd
