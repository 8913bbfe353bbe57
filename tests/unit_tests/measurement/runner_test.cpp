// Runners and what judges them: every implementation of the host agrees with the sampled reference, and wrong
// results are seen.
#include "measurement/runner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

namespace rocm_sd::measurement {
namespace {

const std::vector<std::pair<std::string, std::string>> kProblems = {
    {"attention", "f32 [1,2,40x77,40]"},
    {"attention", "bf16 [1,2,40x77,64]"},
    {"attention", "f32 [1,2,24x24,40] causal"},
    {"attention", "f32 [2,3,8x9,40] masked"},
    {"linear", "65x96x128 f32 bias residual"},
    {"linear", "65x128x128 bf16 bias geglu"},
    {"linear", "17x64x128 f32 gelu"},
    {"conv2d", "2x9x10x32->48 3x3 s1 p1,1,1,1 f32 bias shift residual silu"},
    {"conv2d", "1x8x8x32+16->32 3x3 s1 p1,1,1,1 f32 bias"},
    {"conv2d", "1x8x8x32->32 3x3 s2 p0,0,1,1 f32 bias"},
    {"conv2d", "1x8x8x32->32 3x3 s1 p1,1,1,1 f32 upsample2x bias"},
    {"conv2d", "1x8x8x32->32 3x3 s1 p1,1,1,1 bf16 bias"},
    {"linear", "33x64x48 f32 by i8 bias"},
    {"linear", "33x64x48 bf16 by f8e4m3 products geglu"},
    {"group_norm", "f32 [2,64,64] groups 32 silu"},
    {"group_norm", "bf16 [1,30,48+48] groups 32"},
    {"layer_norm", "f32 [12,320]"},
    {"layer_norm", "bf16 [12,320]"},
    {"linear", "33x64x48 f32 by f16 bias"},
    {"linear", "33x64x48 f32 by bf16 bias geglu"},
    {"linear", "65x96x128 bf16->f32 bias residual"},
    {"conv2d", "1x8x8x32->32 3x3 s1 p1,1,1,1 bf16->f32 bias shift residual"},
    {"conv2d", "1x8x8x32->32 3x3 s1 p1,1,1,1 f32 by bf16 bias"},
    {"conv2d", "1x8x8x32->32 3x3 s1 p1,1,1,1 f32 by bf16 upsample2x bias"},
    {"conv2d", "1x8x8x32->32 3x3 s1 p1,1,1,1 f32 by f16 bias"},
    {"conv2d", "1x8x8x32->32 3x3 s1 p1,1,1,1 bf16->f32 upsample2x bias"},
    {"linear", "66x64x48 f32 bias residual gelu scale 3 shared term 24"},
    {"linear", "33x64x48 bf16 bias geglu term 32"},
    {"conv2d", "2x8x8x32->32 3x3 s1 p1,1,1,1 f32 bias residual silu scale 2"},
    {"conv2d", "2x8x8x32->32 3x3 s1 p1,1,1,1 f32 bias residual slopes"},
    {"group_norm", "f32->bf16 [2,64,64] groups 32 silu"},
    {"layer_norm", "f32->bf16 [12,320]"}};

// And the example of every op that there is.
TEST(Runner, EveryCandidateOfTheHostIsRight) {
  auto problems = kProblems;
  for (const AnyOp& op : all_ops()) problems.emplace_back(op.name, op.example);
  for (const auto& [op, text] : problems) {
    const Workload workload = parse_workload(op, text);
    const Inputs inputs(host_device(), workload);
    const auto names = candidates_of(host_device(), workload, inputs, Slow::kIncluded);
    EXPECT_THAT(names, testing::Contains("ref")) << text;
    Arena arena(host_device());
    for (const std::string& name : names) {
      const Weight weight = inputs.weight();
      Runner runner(arena, workload, inputs, weight, name);
      const std::vector<float> output = runner.output();
      const Accuracy accuracy = check_output(workload, inputs, output);
      EXPECT_TRUE(accuracy.ok()) << op << " " << text << " " << name << ": " << accuracy.describe();
      EXPECT_GE(accuracy.samples, 18);
    }
  }
}

TEST(Runner, CandidatesComeInTheListsOrderWithoutReferences) {
  const Workload workload = parse_workload("linear", "64x64x64 f32 bias");
  const Inputs inputs(host_device(), workload);
  EXPECT_THAT(candidates_of(host_device(), workload, inputs), testing::ElementsAre("tiled", "onednn"));
}

TEST(Runner, TimesARun) {
  const Workload workload = parse_workload("linear", "256x256x256 f32");
  const Inputs inputs(host_device(), workload);
  const Weight weight = inputs.weight();
  Arena arena(host_device());
  Runner runner(arena, workload, inputs, weight, "");
  const auto stopwatch = make_stopwatch(host_device());
  for (const Caches caches : {Caches::kCold, Caches::kAsIs}) {
    const double seconds = runner.time(*stopwatch, caches);
    EXPECT_GT(seconds, 0);
    EXPECT_LT(seconds, 60);
  }
  EXPECT_FALSE(stopwatch->is_model());
}

TEST(Runner, ARefusedChoiceSaysWhy) {
  const Workload workload = parse_workload("linear", "64x64x64 f32");
  const Inputs inputs(host_device(), workload);
  const Weight weight = inputs.weight();
  Arena arena(host_device());
  for (const char* choice : {"gpu", "gpu 128x128x32", "tiled 3", "nothing"})
    EXPECT_THROW(Runner(arena, workload, inputs, weight, choice), UsageError) << choice;
}

class WrongOutput : public testing::Test {
 protected:
  WrongOutput() : inputs_(host_device(), workload_) {
    const Weight weight = inputs_.weight();
    Arena arena(host_device());
    right_ = Runner(arena, workload_, inputs_, weight, "ref").output();
  }
  Workload workload_ = parse_workload("linear", "40x64x512 f32 bias");
  Inputs inputs_;
  std::vector<float> right_;
};

TEST_F(WrongOutput, TheRightOneIsRight) {
  EXPECT_TRUE(check_output(workload_, inputs_, right_).ok());
  EXPECT_EQ(count_differences(workload_, inputs_, right_, right_), 0);
}
TEST_F(WrongOutput, AWrongTileIsSeenBySamples) {
  std::vector<float> wrong = right_;
  for (int row = 16; row < 32; ++row)
    for (int column = 0; column < 32; ++column) wrong[static_cast<size_t>(row * 64 + column)] += 0.01f;
  EXPECT_FALSE(check_output(workload_, inputs_, wrong).ok());
  EXPECT_EQ(count_differences(workload_, inputs_, right_, wrong), 16 * 32);
}
TEST_F(WrongOutput, OneWrongElementIsSeenByTheComparison) {
  for (const float value : {1e9f, std::nanf(""), HUGE_VALF}) {
    std::vector<float> wrong = right_;
    wrong[777] = value;
    EXPECT_EQ(count_differences(workload_, inputs_, right_, wrong), 1) << value;
  }
}
// One product of 512 left out: the smallest mistake that a kernel makes.
TEST_F(WrongOutput, AMissingProductIsBeyondTheTolerance) {
  const ExactValue exact = workload_.exact(inputs_, 0);
  double largest = 0;
  for (int k = 0; k < 512; ++k)
    largest = std::max(largest, std::fabs(inputs_.value(Role::kX, k) * inputs_.value(Role::kWeight, k)));
  EXPECT_GT(largest, 10 * exact.tolerance);
}
TEST_F(WrongOutput, UnwrittenOutputIsSeen) {
  const std::vector<float> nothing(right_.size(), std::nanf(""));
  EXPECT_FALSE(check_output(workload_, inputs_, nothing).ok());
}

}  // namespace
}  // namespace rocm_sd::measurement
