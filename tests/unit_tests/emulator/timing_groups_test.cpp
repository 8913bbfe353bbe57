// The time model where a launch's workgroups differ: what their works are, which processor is the busiest,
// and how long it takes.
#include <gmock/gmock.h>

#include <numeric>

#include "emulator/played_groups.hpp"
#include "unit_tests/emulator/timed_kernel.hpp"

namespace rocm_sd::emu {
namespace {

using testing::ElementsAre;

TEST(UnevenGroups, WorkThatRepeatsIsRunOnce) {
  int runs = 0;
  const auto causal = [&](uint64_t group) {
    ++runs;
    return 100.0 + 50.0 * static_cast<double>(group % 128);
  };
  const std::vector<double> works = works_of_groups(128 * 256, causal);
  EXPECT_LT(runs, 160);
  for (uint64_t g = 0; g < works.size(); ++g) ASSERT_EQ(works[g], causal(g)) << g;
}

// Groups that are alike at the beginning of the grid and not behind it.
TEST(UnevenGroups, NoPeriodIsReadOffTheBeginningAlone) {
  const auto work = [](uint64_t group) { return group % 200 < 100 ? 1000.0 : 100.0; };
  const std::vector<double> works = works_of_groups(200 * 50, work);
  for (uint64_t g = 0; g < works.size(); ++g) ASSERT_EQ(works[g], work(g)) << g;
}

TEST(UnevenGroups, WorkThatNeverRepeatsIsSampled) {
  int runs = 0;
  const uint64_t groups = 100000;
  const auto rising = [&](uint64_t group) {
    ++runs;
    return 1000.0 + static_cast<double>(group);
  };
  const std::vector<double> works = works_of_groups(groups, rising);
  EXPECT_LT(runs, 4200);
  const double all = std::accumulate(works.begin(), works.end(), 0.0);
  EXPECT_NEAR(all, static_cast<double>(groups) * (1000 + 0.5 * static_cast<double>(groups)), 0.01 * all);
  EXPECT_THAT(works_of_groups(3, rising), ElementsAre(1000, 1001, 1002));
}

TEST(UnevenGroups, GroupsGoToTheFirstFreePlaceOfTheirDie) {
  // Two processors with a place each: group 0 keeps the first busy to the end.
  EXPECT_THAT(busiest_stream({10, 1, 1, 1, 1}, {.dies = 1, .processors = 2, .resident = 1}), ElementsAre(0));
  EXPECT_THAT(busiest_stream({2, 1, 1, 5}, {.dies = 1, .processors = 2, .resident = 1}), ElementsAre(0, 3));
  // Two dies: odd groups go to the second, and these are the large ones.
  EXPECT_THAT(busiest_stream({1, 4, 1, 4, 1, 4}, {.dies = 2, .processors = 2, .resident = 1}),
              ElementsAre(1, 3, 5));
}

// Groups of one to eight parts of work, as causal attention has them, on processors that hold one of them:
// all take about the mean, which no group of the launch is. Eight divides the processors' number or is
// divided by it.
TEST_P(Timing, GroupsThatDifferTakeTheirOwnTime) {
  const Machine m = round_machine(GetParam().target);
  const uint32_t simds = gfx9() ? 4 : 2, waves = simds * (gfx9() ? 4 : 16), processors = gfx9() ? 2 : 1;
  const std::string group = gfx12() ? "ttmp9" : "s2";
  const auto took = [&](const std::string& parts, uint32_t groups) {
    const std::string code = concat(parts, "\n.Lpart:\n", times(200, "v_add_f32_e32 v1, v1, v1"),
                                    "s_sub_u32 s8, s8, 1\ns_cmp_lg_u32 s8, 0\ns_cbranch_scc1 .Lpart\n");
    return time({.code = code, .registers = gfx9() ? 128 : 96, .waves = waves, .groups = groups}, m);
  };
  const std::string rising = concat("s_and_b32 s8, ", group, ", 7\ns_add_u32 s8, s8, 1");
  const double one = took("s_mov_b32 s8, 1", processors).cycles;
  const double eight = took("s_mov_b32 s8, 8", processors).cycles, part = (eight - one) / 7;
  // A round of eight to each processor, by turns: 4.5 parts a group, and at the end the largest.
  const LaunchTime many = took(rising, 48 * processors);
  const double groups = 48.0 / many.resident;
  EXPECT_NEAR(many.cycles, groups * (one + 3.5 * part), 0.15 * many.cycles);
  // One round in which each processor has room for all of its groups: the largest of them.
  EXPECT_GT(took(rising, 8).cycles, 0.9 * eight);
}

}  // namespace
}  // namespace rocm_sd::emu
