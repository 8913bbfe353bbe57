// The device of the GPU tests: ROCM_SD_TEST_DEVICE (cuda, hip:1, emu:gfx1100), else the first usable GPU. A
// program without a device fails, so that no run can pass by testing nothing.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "runtime/gpu.hpp"
#include "runtime/tensor.hpp"

namespace rocm_sd {

// Opened once per process, before the first test runs.
GpuDevice& test_gpu();

// True where the device interprets machine code, or ROCM_SD_TEST_SMALL=1 says that a tool watches each
// access: tests then leave out the problems named *Full.
bool test_gpu_is_emulated();

// The most work of a problem in full size, in operations: no limit on a GPU; where test_gpu_is_emulated(),
// what is interpreted in half a minute. ROCM_SD_TEST_GFLOP=0.5 sets another one. Throws UsageError for what
// is no number.
double test_gpu_most_flops();

}  // namespace rocm_sd
