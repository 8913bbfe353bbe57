// What widen's kernels and their launches must agree on.
#pragma once

namespace rocm_sd::widen_configs {

constexpr int kThreads = 256;  // of a workgroup

}  // namespace rocm_sd::widen_configs
