// What group_bands.hip and its launcher share.
#pragma once

namespace rocm_sd::group_bands_configs {

constexpr int kThreads = 256;  // of a workgroup

}  // namespace rocm_sd::group_bands_configs
