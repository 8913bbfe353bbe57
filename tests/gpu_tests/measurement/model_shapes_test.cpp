// The problems of SD 1.5 and SDXL in full size (tests/data/model_shapes.txt) on the GPU under test: outputs
// over NaN, at sampled places against double precision that shares no code with any kernel. On a GPU all of
// them run, and for SD 1.5's own picture every candidate of our own but for the VAE's largest outputs; on an
// emulated one those of little work, as the op chooses.
#include <gtest/gtest.h>

#include <iostream>

#include "base/error.hpp"
#include "gpu_tests/gpu_test.hpp"
#include "measurement/runner.hpp"
#include "support/model_shapes.hpp"
#include "tuning/choices.hpp"

namespace rocm_sd {
namespace {

using measurement::Inputs;
using measurement::Workload;
using testing_support::ModelShape;

class GpuModelShapes : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(All, GpuModelShapes, testing::Values(DType::kF16, DType::kBF16, DType::kF32),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

// The list has the problems of f16 and of bf16; those of f32 are the former with that type.
std::string in_type(std::string text, DType dtype) {
  const std::string_view listed = dtype_name(DType::kF16);
  const size_t at = dtype == DType::kF32 ? text.find(listed) : std::string::npos;
  return at == std::string::npos ? text : text.replace(at, listed.size(), dtype_name(dtype));
}

// What the op chooses, and on a GPU, where the output is copied back in milliseconds, the tiled kernels'
// other configurations: "gpu 128x128x64/2", not "gpu_wave".
std::vector<std::string> choices_of(const Workload& workload, const ModelShape& shape, const Inputs& inputs) {
  constexpr int64_t kSmall = 1 << 23;
  std::vector<std::string> choices = {""};
  if (test_gpu_is_emulated() || workload.dtype == DType::kF32 ||
      shape.section.find(" sd15 512x512") == std::string::npos ||
      measurement::output_count(workload) > kSmall)
    return choices;
  for (const std::string& name : measurement::candidates_of(test_gpu(), workload, inputs))
    if (name.starts_with("gpu ")) choices.push_back(name);
  return choices;
}

void check_problem(const Workload& workload, const ModelShape& shape) {
  GpuDevice& gpu = test_gpu();
  const Inputs inputs(gpu, workload);
  Arena arena(gpu);
  for (const std::string& choice : choices_of(workload, shape, inputs)) {
    const Weight weight = inputs.weight();
    measurement::Runner runner(arena, workload, inputs, weight, choice);
    const measurement::Accuracy accuracy = check_output(workload, inputs, runner.output(), choice);
    EXPECT_GT(accuracy.samples, 0);
    EXPECT_TRUE(accuracy.ok()) << choice << ": " << accuracy.describe();
  }
}

// An emulated GPU takes about 8 times as long for an operation of a norm as for one of a matrix product.
double work_of(const Workload& workload) {
  const bool matrix = workload.op != "group_norm" && workload.op != "layer_norm";
  return workload.flops * (matrix ? 1 : 8);
}

void check_op(std::string_view op, DType dtype) {
  const tuning::TuningScope untuned(nullptr);  // a table of this machine's would hide the default choices
  const double most = test_gpu_most_flops();
  int checked = 0, left_out = 0;
  const std::string_view listed = dtype_name(dtype == DType::kF32 ? DType::kF16 : dtype);
  for (const ModelShape& shape : testing_support::model_shapes(op, listed)) {
    const Workload workload = measurement::parse_workload(op, in_type(shape.text, dtype));
    if (work_of(workload) > most) {
      ++left_out;
      continue;
    }
    SCOPED_TRACE(concat(shape.section, ": ", op, " ", workload.text));
    check_problem(workload, shape);
    ++checked;
  }
  std::cout << op << ": " << checked << " problems, " << left_out << " left out for their work\n";
  EXPECT_GT(checked, 0);
}

TEST_P(GpuModelShapes, LinearFull) { check_op("linear", GetParam()); }
TEST_P(GpuModelShapes, Conv2dFull) { check_op("conv2d", GetParam()); }
TEST_P(GpuModelShapes, AttentionFull) { check_op("attention", GetParam()); }
TEST_P(GpuModelShapes, GroupNormFull) { check_op("group_norm", GetParam()); }
TEST_P(GpuModelShapes, LayerNormFull) { check_op("layer_norm", GetParam()); }

}  // namespace
}  // namespace rocm_sd
