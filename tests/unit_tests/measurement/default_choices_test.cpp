// What every full-size problem takes by default on a GPU of each family: tests/data/default_choices.txt. A
// change of configurations, of their names or of the estimates shows there, problem by problem.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "kernels/select.hpp"
#include "measurement/workload.hpp"
#include "support/model_shapes.hpp"
#include "support/nominal_gpu.hpp"
#include "tuning/choices.hpp"

namespace rocm_sd::measurement {
namespace {

using testing_support::nominal_traits;
using testing_support::NominalGpu;

constexpr const char* kFile = ROCM_SD_SOURCE_DIR "/tests/data/default_choices.txt";

std::vector<std::string> own_candidates(NominalGpu& gpu, const Workload& workload) {
  Operands operands;
  for (const Operand& operand : workload.operands) {
    if (operand.output) continue;
    const auto count = static_cast<int64_t>(operand.bytes() / dtype_size(operand.dtype));
    const Tensor memory = make_tensor(gpu, {count}, operand.dtype);
    operands.emplace(operand.role, Tensor(memory.storage(), operand.shape, operand.strides, operand.dtype));
  }
  Weight weight;
  if (const auto plain = operands.find(Role::kWeight); plain != operands.end()) {
    StoredWeight stored(plain->second);
    if (workload.eight_bit_weight)
      stored = {make_tensor(gpu, plain->second.shape(), *workload.eight_bit_weight),
                make_tensor(gpu, {plain->second.dim(0)}, DType::kF32), plain->second.dtype(),
                workload.eight_bit_products};
    else if (dtype_size(stored.dtype) == 2)
      stored.dtype = workload.dtype;
    weight = Weight(std::move(stored));
  }
  Arena arena(gpu);
  Exec ex(arena, Mode::kPlan);
  const CandidateRecord record(workload.op);
  const tuning::TuningScope untuned(nullptr);
  arena.begin_plan();
  workload.run(ex, operands, weight);
  arena.end_plan();
  std::vector<std::string> out;
  for (const std::string& name : record.candidates())
    if (name.starts_with("gpu")) out.push_back(name);
  return out;
}

// Every line of model_shapes.txt that is a problem, and what no model of them has: products in 8 bits, masks,
// heads and depths that fit no tile.
std::vector<std::string> problem_lines() {
  std::vector<std::string> lines = {
      "linear 8192x320x320 f16 by i8 bias",
      "linear 8192x320x320 f16 by i8 products bias",
      "linear 8192x2560x320 f16 by f8e4m3 products bias geglu",
      "linear 2048x1280x5120 bf16 by i8 products bias residual",
      "linear 154x640x2048 bf16 by f8e4m3 products",
      "linear 1024x1280x1280 f32 bias",
      "linear 100x1000x1001 f16",
      "linear 2x1280x320 f32 bias silu",
      "conv2d 2x64x64x320->320 3x3 s1 p1,1,1,1 f32 bias",
      "conv2d 1x33x57x96->40 3x3 s1 p1,1,1,1 f16 bias",
      "attention f16 [2,8,4096x4096,40] causal",
      "attention f16 [2,8,1024x1024,64] causal",
      "attention bf16 [2,8,1024x1024,80] causal",
      "attention f16 [2,8,1024x1024,128]",
      "attention f16 [2,8,1024x1024,160]",
      "attention bf16 [2,8,256x256,160] causal",
      "attention f16 [2,8,64x64,32]",
      "attention f16 [2,8,1024x77,96]",
      "attention f32 [2,8,1024x77,64]",
      "attention bf16 [1,1,4096x4096,512] causal",
  };
  std::ifstream file(ROCM_SD_SOURCE_DIR "/tests/data/model_shapes.txt");
  for (std::string line; std::getline(file, line);)
    if (!line.empty() && line[0] != '#') lines.push_back(line);
  return lines;
}

// "gfx1100: gpu 128x160x32 of 12": the default, and the number of candidates; under ROCM_SD_ALL_CHOICES=1
// each of them, too, for comparing two commits.
std::vector<std::string> listing() {
  std::vector<std::string> out = {
      "# What each problem of tests/data/model_shapes.txt takes untuned, and the number of candidates. "
      "Compared by",
      "# DefaultChoices in test_measurement; written by the same test under "
      "ROCM_SD_WRITE_DEFAULT_CHOICES=1."};
  std::vector<std::unique_ptr<NominalGpu>> gpus;
  for (const char* arch : {"gfx1100", "gfx1201", "gfx942", "gfx90a", "sm_80", "sm_90"})
    gpus.push_back(std::make_unique<NominalGpu>(nominal_traits(arch)));
  for (const std::string& line : problem_lines()) {
    const size_t blank = line.find(' ');
    const Workload workload = parse_workload(line.substr(0, blank), line.substr(blank + 1));
    out.push_back(line);
    for (const auto& gpu : gpus) {
      const std::vector<std::string> names = own_candidates(*gpu, workload);
      out.push_back("  " + gpu->name() + ": " +
                    (names.empty() ? "none" : names[0] + " of " + std::to_string(names.size())));
      if (const char* all = std::getenv("ROCM_SD_ALL_CHOICES"); all && *all)
        for (const std::string& name : names) out.push_back("    " + name);
    }
  }
  return out;
}

TEST(DefaultChoices, AreThoseOfTheRepository) {
  const std::vector<std::string> have = listing();
  if (const char* write = std::getenv("ROCM_SD_WRITE_DEFAULT_CHOICES"); write && *write) {
    std::ofstream file(kFile);
    for (const std::string& line : have) file << line << "\n";
  }
  std::ifstream file(kFile);
  std::vector<std::string> want;
  for (std::string line; std::getline(file, line);) want.push_back(line);
  ASSERT_EQ(have.size(), want.size()) << kFile << " lists other problems";
  std::string problem;
  int differences = 0;
  for (size_t i = 0; i < have.size(); ++i) {
    if (!have[i].starts_with("  ")) problem = have[i];
    if (have[i] == want[i] || ++differences > 20) continue;
    ADD_FAILURE() << problem << "\n  is" << have[i].substr(1) << "\n  was" << want[i].substr(1);
  }
  EXPECT_EQ(differences, 0);
}

}  // namespace
}  // namespace rocm_sd::measurement
