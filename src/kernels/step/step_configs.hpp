// Configurations of the step kernels, shared by step.hip and its launchers.
#pragma once

namespace rocm_sd::step_configs {

constexpr int kThreads = 256;     // of a workgroup
constexpr int kMaxCounts = 1024;  // workgroups that count

}  // namespace rocm_sd::step_configs
