// Configurations of the embedding kernels, shared by embed.hip and its launcher.
#pragma once

namespace rocm_sd::embed_configs {

constexpr int kTokenWaves = 4;         // of a workgroup: rows at a time
constexpr int kTimestepThreads = 128;  // of a workgroup

}  // namespace rocm_sd::embed_configs
