// Configurations of the resampling kernels, shared by resample.hip and its launcher.
#pragma once

namespace rocm_sd::resample_configs {

constexpr int kThreads = 256;      // of a workgroup
constexpr int kTapsThreads = 128;  // of a workgroup that computes weights

}  // namespace rocm_sd::resample_configs
