// Every op that tools know, on the GPU under test: each candidate computes the op's example, over NaN, and is
// compared at sampled places with double precision.
#include <gtest/gtest.h>

#include "gpu_tests/gpu_test.hpp"
#include "measurement/runner.hpp"
#include "tuning/choices.hpp"

namespace rocm_sd {
namespace {

using namespace measurement;

// On an emulated GPU the many configurations of matrix products are left to the ops' own tests.
std::vector<std::string> choices_of(const Workload& workload, const Inputs& inputs) {
  if (test_gpu_is_emulated() && workload.extent.columns > 1) return {""};
  return candidates_of(test_gpu(), workload, inputs);
}

TEST(GpuOps, EveryCandidateOfEveryExampleIsRight) {
  const tuning::TuningScope untuned(nullptr);
  for (const AnyOp& op : all_ops()) {
    const Workload workload = op.parse(op.example);
    const Inputs inputs(test_gpu(), workload);
    const std::vector<std::string> choices = choices_of(workload, inputs);
    EXPECT_FALSE(choices.empty()) << op.name;
    Arena arena(test_gpu());
    for (const std::string& choice : choices) {
      const Weight weight = inputs.weight();
      Runner runner(arena, workload, inputs, weight, choice);
      const Accuracy accuracy = check_output(workload, inputs, runner.output(), choice);
      EXPECT_TRUE(accuracy.ok()) << workload.title() << " " << choice << ": " << accuracy.describe();
      EXPECT_GE(accuracy.samples, 18);
    }
  }
}

}  // namespace
}  // namespace rocm_sd
