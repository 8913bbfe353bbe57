// Configuration of the elementwise kernels, shared by elementwise.hip and its launcher.
#pragma once

namespace rocm_sd::map_configs {

constexpr int kThreads = 256;  // of a workgroup

}  // namespace rocm_sd::map_configs
