// Runner: one way of computing one workload, planned and ready to be timed and checked.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "measurement/inputs.hpp"
#include "measurement/stopwatch.hpp"
#include "measurement/workload.hpp"

namespace rocm_sd::measurement {

// What could compute the workload on the device: choices as kernels/select.hpp names them, the untuned one
// first. References and scalar forms of kernels, which nobody would choose, are left out unless asked for.
enum class Slow { kLeftOut, kIncluded };
std::vector<std::string> candidates_of(Device& device, const Workload& workload, const Inputs& inputs,
                                       Slow slow = Slow::kLeftOut);

class Runner {
 public:
  // choice: "" for what the op itself picks, tables and all. Plans and prepares the weight. inputs, weight
  // and arena must outlive it; runners may share an arena, of which the last that ran has its output there.
  // Throws UsageError where the choice does not take the workload.
  Runner(Arena& arena, const Workload& workload, const Inputs& inputs, const Weight& weight,
         std::string choice);

  const std::string& choice() const { return choice_; }
  double time(Stopwatch& stopwatch, Caches caches) { return stopwatch.time(program_, caches); }
  // Runs on memory full of NaN and gives the output as floats.
  std::vector<float> output();
  size_t arena_bytes() const { return program_.arena_bytes(); }
  const PlannedProblems& launches() const { return program_.problems(); }

 private:
  Arena& arena_;
  std::string op_, choice_;
  Workload problem_;
  const Inputs& inputs_;
  const Weight& weight_;
  Program program_;
  void* y_ = nullptr;  // of the last capture
  int64_t count_ = 0;
  DType dtype_ = DType::kF32;
};

// How an output differs from the truth.
struct Accuracy {
  int64_t samples = 0;
  double worst = 0;  // |got - want| over its tolerance
  double relative_rms = 0;
  int64_t worst_at = 0;
  double got = 0, want = 0;  // there
  bool ok() const { return worst <= 1; }
  std::string describe() const;
};

// Samples of the output against Workload::exact: ends, and so many places at random. choice: what made it;
// MIOpen's may have rounded its sums once more (conv2d_vendor.hpp).
Accuracy check_output(const Workload& workload, const Inputs& inputs, const std::vector<float>& output,
                      std::string_view choice = "", int samples = 192);

// The number of elements in which two outputs of the workload differ by more than both may be wrong, judged
// by the tolerances at a few samples; values that are not finite count. choice: of b.
int64_t count_differences(const Workload& workload, const Inputs& inputs, const std::vector<float>& a,
                          const std::vector<float>& b, std::string_view choice = "");

}  // namespace rocm_sd::measurement
