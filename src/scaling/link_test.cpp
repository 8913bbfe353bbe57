#include "scaling/link_test.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Bytes that differ with the sender and the round (xorshift, Marsaglia 2003).
void fill(std::vector<uint32_t>& words, int rank, int round) {
  uint32_t x = 0x9e3779b9u ^ static_cast<uint32_t>(rank * 7919 + round + 1);
  for (uint32_t& word : words) {
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    word = x;
  }
}

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
    fill(sent, own, round);
    fill(want, before, round);
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
