// What group_bands.hip and its launcher share.
#pragma once

namespace rocm_sd::group_bands_configs {

constexpr int kThreads = 256;     // of a workgroup
constexpr int kPiecePacks = 16;   // of a thread that normalises
constexpr int kWideColumns = 32;  // threads that share a pixel, where it has as many packs

}  // namespace rocm_sd::group_bands_configs
