// The race of candidates: who wins, who is left behind, and how long it goes on.
#include "tuning/race.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rocm_sd::tuning {
namespace {

RaceResult race_of(const std::vector<double>& times, const RaceRules& rules = {}) {
  return race(times.size(), [&](size_t i) { return times[i]; }, rules);
}

TEST(Race, TheFastestWinsByMoreThanTheNoise) {
  EXPECT_EQ(race_of({1.0, 0.9, 0.95}).winner, 1u);
  EXPECT_EQ(race_of({1.0, 0.99, 1.2}).winner, 0u);  // not worth another choice
  EXPECT_EQ(race_of({1.0}).winner, 0u);
}

TEST(Race, WhoIsFarBehindDropsOut) {
  const RaceResult result = race_of({1.0, 3.0, 1.1, 0.9}, {.rounds = 5});
  EXPECT_EQ(result.winner, 3u);
  EXPECT_EQ(result.times[1].size(), 1u);
  EXPECT_EQ(result.times[2].size(), 5u);
  // The first is needed for the comparison, however slow.
  EXPECT_EQ(race_of({9.0, 1.0}, {.rounds = 4}).times[0].size(), 4u);
}

TEST(Race, FailuresLeaveIt) {
  const RaceResult result = race_of({1.0, -1, 0.5});
  EXPECT_EQ(result.winner, 2u);
  EXPECT_TRUE(result.times[1].empty());
  EXPECT_EQ(race_of({-1, 2.0, 1.9}).winner, 2u);
  EXPECT_EQ(race_of({-1, -1}).winner, 0u);
  int calls = 0;  // one that fails later loses what it had
  const RaceResult later =
      race(2, [&](size_t i) { return i == 0        ? 1.0
                                     : ++calls > 2 ? -1.0
                                                   : 0.1; }, {.rounds = 5});
  EXPECT_EQ(later.winner, 0u);
  EXPECT_TRUE(later.times[1].empty());
}

TEST(Race, OneLuckyTimeDoesNotWin) {
  int round = 0;
  const RaceResult result =
      race(2, [&](size_t i) { return i == 0         ? 1.0
                                     : round++ == 0 ? 0.85
                                                    : 1.05; }, {.rounds = 5});
  EXPECT_EQ(result.winner, 0u);
}

TEST(Race, TimesAreTakenInTurns) {
  std::vector<size_t> order;
  race(3,
       [&](size_t i) {
         order.push_back(i);
         return 1.0;
       },
       {.rounds = 2, .least_rounds = 2});
  EXPECT_THAT(order, testing::ElementsAre(0, 1, 2, 0, 1, 2));
}

TEST(Race, TheBudgetEndsItAfterTheLeastRounds) {
  const RaceResult result = race_of({1.0, 1.0}, {.rounds = 50, .least_rounds = 3, .seconds = 0});
  EXPECT_EQ(result.times[0].size(), 3u);
  const RaceResult cancelled = race(2, [](size_t) { return 1.0; }, {.rounds = 50}, [] { return true; });
  EXPECT_EQ(cancelled.times[0].size(), 1u);
}

TEST(Race, Median) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(median({7}), 7);
}

}  // namespace
}  // namespace rocm_sd::tuning
