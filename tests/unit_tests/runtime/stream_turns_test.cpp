// Which weights take turns: within the room, spread by work, and better for a bus than spread by bytes.
#include "runtime/stream_turns.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace rocm_sd {
namespace {

uint64_t kept(const std::vector<StreamedUse>& uses, const std::vector<bool>& turns) {
  uint64_t sum = 0;
  for (size_t i = 0; i < uses.size(); ++i) sum += turns[i] ? 0 : uses[i].bytes;
  return sum;
}

// Time of a run in which one byte is copied in a unit of time and one unit of work is done in one, with
// copies at most `window` bytes ahead.
double played(const std::vector<StreamedUse>& uses, const std::vector<bool>& turns, double window) {
  double bus = 0, now = 0;  // when the last copy ends, when the last launch does
  std::vector<std::pair<double, double>>
      ended;  // of the turns so far: bytes copied, time when they were read
  double copied = 0;
  for (size_t i = 0; i < uses.size(); ++i) {
    if (turns[i]) {
      copied += static_cast<double>(uses[i].bytes);
      for (const auto& [bytes, end] : ended)
        if (bytes <= copied - window) bus = std::max(bus, end);
      bus += static_cast<double>(uses[i].bytes);
      now = std::max(now, bus);
    }
    now += uses[i].work;
    if (turns[i]) ended.emplace_back(copied, now);
  }
  return now;
}

TEST(StreamTurns, KeepTheRoomAndUseIt) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    std::vector<StreamedUse> uses(1 + random() % 60);
    uint64_t all = 0, largest = 0;
    for (StreamedUse& use : uses) {
      use = {1 + random() % 5000, random() % 4 == 0 ? 0.0 : static_cast<double>(random() % 100'000)};
      all += use.bytes;
      largest = std::max(largest, use.bytes);
    }
    const uint64_t keep = random() % (all + all / 4);
    const std::vector<bool> turns = choose_turns(uses, keep);
    ASSERT_EQ(turns.size(), uses.size());
    EXPECT_LE(kept(uses, turns), keep);
    EXPECT_GE(kept(uses, turns) + largest, std::min(keep, all))
        << "no weight that would find room takes turns";
    if (keep >= all) {
      EXPECT_EQ(std::count(turns.begin(), turns.end(), true), 0);
    }
  }
  EXPECT_TRUE(choose_turns({}, 5).empty());
}

// Fine levels at both ends: much work, few bytes. Coarse ones between: most of the bytes.
TEST(StreamTurns, WeightsOfMuchWorkTakeTurns) {
  std::vector<StreamedUse> uses;
  for (int i = 0; i < 20; ++i) uses.push_back({100, 1000});
  for (int i = 0; i < 200; ++i) uses.push_back({500, 100});
  for (int i = 0; i < 20; ++i) uses.push_back({100, 1000});
  constexpr uint64_t kKeep = 60'000;
  const std::vector<bool> turns = choose_turns(uses, kKeep);
  for (size_t i = 0; i < uses.size(); ++i)
    if (uses[i].work > 500) {
      EXPECT_TRUE(turns[i]) << i;
    }
  // Of the others each stretch of ten has about the same share.
  for (size_t begin = 20; begin < 220; begin += 20) {
    const auto from = turns.begin() + static_cast<ptrdiff_t>(begin);
    EXPECT_NEAR(static_cast<double>(std::count(from, from + 20, true)), 20 * 40'000.0 / 100'000, 1.5)
        << begin;
  }
  // Beside a choice by bytes alone (equal work for each byte) of the same room.
  std::vector<StreamedUse> by_bytes = uses;
  for (StreamedUse& use : by_bytes) use.work = static_cast<double>(use.bytes);
  const std::vector<bool> even = choose_turns(by_bytes, kKeep);
  constexpr double kWindow = 1000;
  EXPECT_LT(played(uses, turns, kWindow), 0.99 * played(uses, even, kWindow));
}

}  // namespace
}  // namespace rocm_sd
