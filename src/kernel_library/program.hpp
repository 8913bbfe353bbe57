// LaunchProgram: the launches of a problem on a GPU, made ready for any addresses.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "kernel_library/problem.hpp"
#include "kernel_library/recorder.hpp"
#include "runtime/gpu.hpp"

namespace rocm_sd::library {

using Pointers = std::array<const void*, kRoles>;  // by Role

// A launch whose parameters hold `addend` where a pointer belongs: the operand's address is added.
struct PlannedLaunch {
  struct Pointer {
    uint32_t offset;  // in params, bytes
    Role role;
  };
  const GpuKernel* kernel = nullptr;
  GpuGrid grid;
  uint32_t threads = 0, lds_bytes = 0;
  std::vector<std::byte> params;
  std::vector<Pointer> pointers;
};

struct LaunchProgram {
  std::vector<PlannedLaunch>
      prepare;  // from kWeight to kPrepared; empty where kernels read the weight as it is
  std::vector<PlannedLaunch> run;
  size_t prepared_bytes = 0, workspace_bytes = 0;
  std::vector<std::string> choices;  // as ChoiceRecord has them
};

// Runs the problem's ops on a recorder of the GPU. Throws what they throw, UsageError where no kernel takes
// the problem, and InternalError where a kernel's parameters depend on addresses in another way than by
// holding them.
LaunchProgram plan_launches(GpuDevice& gpu, const Problem& problem);

// Starts the launches on the caller's stream. Thread-safe; allocates nothing.
void start(GpuDevice& gpu, const std::vector<PlannedLaunch>& launches, const Pointers& pointers,
           void* stream);

}  // namespace rocm_sd::library
