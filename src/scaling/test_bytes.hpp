// What the tests of links have in common: the bytes that they send, and the clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace rocm_sd {

using LinkClock = std::chrono::steady_clock;
inline double seconds_since(LinkClock::time_point begin) {
  return std::chrono::duration<double>(LinkClock::now() - begin).count();
}

// Bytes that differ with the sender and the round (xorshift, Marsaglia 2003).
inline void fill_with_test_bytes(std::vector<uint32_t>& words, int rank, int round) {
  uint32_t x = 0x9e3779b9u ^ static_cast<uint32_t>(rank * 7919 + round + 1);
  for (uint32_t& word : words) {
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    word = x;
  }
}

}  // namespace rocm_sd
