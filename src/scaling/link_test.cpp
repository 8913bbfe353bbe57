#include "scaling/link_test.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "base/error.hpp"
#include "scaling/test_bytes.hpp"

namespace rocm_sd {
namespace {

using Clock = LinkClock;

}  // namespace

LinkTest test_links(Ranks& ranks) {
  LinkTest out;
  const int count = ranks.count(), own = ranks.rank();
  if (count == 1) return out;
  const int next = (own + 1) % count, before = (own + count - 1) % count;
  std::array<double, 31> times{};
  uint64_t word = 0;
  for (double& time : times) {
    const auto begin = Clock::now();
    ranks.send(next, &word, sizeof word);
    ranks.receive(before, &word, sizeof word);
    time = seconds_since(begin);
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  out.seconds = times[times.size() / 2];
  constexpr int kRounds = 8;
  std::vector<uint32_t> sent(size_t{1} << 18), want(sent.size()), got(sent.size());
  double seconds = 0;
  for (int round = 0; round < kRounds; ++round) {
    fill_with_test_bytes(sent, own, round);
    fill_with_test_bytes(want, before, round);
    const auto begin = Clock::now();
    ranks.send(next, sent.data(), sent.size() * sizeof(uint32_t));
    ranks.receive(before, got.data(), got.size() * sizeof(uint32_t));
    seconds += seconds_since(begin);
    require<DeviceError>(got == want, "ranks: what rank ", before, " sent to rank ", own,
                         " came as other bytes: the way between them is broken");
  }
  out.bytes_per_second = kRounds * static_cast<double>(sent.size() * sizeof(uint32_t)) / seconds;
  return out;
}

}  // namespace rocm_sd
