// Scenarios on a clock of the test's own.
#include "measurement/scenario.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

namespace rocm_sd::measurement {
namespace {

// A machine that takes `fixed` seconds for a call and `each` for each picture of it.
struct Machine {
  double fixed = 0, each = 1, time = 100;
  std::vector<int> drawn;
  ScenarioHooks hooks() {
    return {.draw = [this](int count) { drawn.push_back(count), time += fixed + each * count; },
            .now = [this] { return time; },
            .wait = [this](double seconds) { time += seconds; },
            .cancelled = {}};
  }
};

TEST(Scenario, AStreamWaitsForEachPicture) {
  Machine machine;
  const ScenarioResult result =
      run_scenario({.kind = ScenarioKind::kStream, .queries = 4, .warm_up = 2}, machine.hooks());
  EXPECT_EQ(machine.drawn.size(), 6u);
  EXPECT_DOUBLE_EQ(result.seconds, 4);
  EXPECT_THAT(result.latencies, testing::Each(1.0));
  EXPECT_DOUBLE_EQ(result.queries_per_second(), 1);
}

TEST(Scenario, OfflineBatchesAndAllWaitFromTheBeginning) {
  Machine machine{.fixed = 1, .each = 0.5};
  const ScenarioResult result =
      run_scenario({.kind = ScenarioKind::kOffline, .queries = 5, .warm_up = 0, .batch = 2}, machine.hooks());
  EXPECT_THAT(machine.drawn, testing::ElementsAre(2, 2, 1));
  EXPECT_DOUBLE_EQ(result.seconds, 2 + 2 + 1.5);
  EXPECT_THAT(result.latencies, testing::ElementsAre(2, 2, 4, 4, 5.5));
}

TEST(Scenario, AServersQueueGrowsWhereItIsTooSlow) {
  Machine slow{.each = 10};
  const ScenarioOptions options{.kind = ScenarioKind::kServer, .queries = 50, .warm_up = 0, .per_second = 1};
  const ScenarioResult busy = run_scenario(options, slow.hooks());
  EXPECT_GT(busy.percentile(0.99), 300);  // about 50 x 10 s of work for 50 s of queries
  EXPECT_NEAR(busy.queries_per_second(), 0.1, 1e-3);
  Machine fast{.each = 0.001};
  const ScenarioResult idle = run_scenario(options, fast.hooks());
  EXPECT_LT(idle.percentile(0.9), 0.01);
  EXPECT_NEAR(idle.seconds, 50, 25);  // as long as the queries take to come
  Machine again{.each = 0.001};
  EXPECT_DOUBLE_EQ(run_scenario(options, again.hooks()).seconds, idle.seconds);  // the same arrivals
}

TEST(Scenario, Percentiles) {
  ScenarioResult result;
  EXPECT_EQ(result.percentile(0.5), 0);
  result.latencies = {5, 1, 4, 2, 3};
  EXPECT_EQ(result.percentile(0), 1);
  EXPECT_EQ(result.percentile(0.5), 3);
  EXPECT_EQ(result.percentile(0.8), 4);
  EXPECT_EQ(result.percentile(0.9), 5);
  EXPECT_EQ(result.percentile(1), 5);
}

TEST(Scenario, BadOptionsAndCancelling) {
  Machine machine;
  EXPECT_THROW(run_scenario({.queries = 0}, machine.hooks()), UsageError);
  EXPECT_THROW(run_scenario({.batch = 0}, machine.hooks()), UsageError);
  EXPECT_THROW(run_scenario({.per_second = 0}, machine.hooks()), UsageError);
  ScenarioHooks hooks = machine.hooks();
  hooks.cancelled = [&] { return machine.drawn.size() >= 3; };
  EXPECT_THROW(run_scenario({.queries = 10}, hooks), CancelledError);
  EXPECT_EQ(machine.drawn.size(), 3u);
}

}  // namespace
}  // namespace rocm_sd::measurement
