// Configurations of the norm kernels, shared by norm.hip and its launcher.
#pragma once

#include <cstdint>

namespace rocm_sd::norm_configs {

constexpr int kLayerNormWaves = 4;       // of a workgroup: rows at a time
constexpr int kLayerNormWorkgroups = 8;  // workgroups of a compute unit at most
constexpr int kClusterThreads = 512;
constexpr int kClusterPacks[] = {2, 4, 6, 11, 16};  // of a thread
// Workgroups of a compute unit. Clusters of one each do not fill every part of the device.
constexpr int cluster_groups(int packs) { return packs <= 6 ? 2 : 1; }
constexpr int kResidentThreads = 640;  // divide evenly into the columns of 320, 640, 1280 and 512 channels
constexpr int kPartsThreads = 256;     // of the measuring and the normalising kernel
constexpr int kWholeBytes = 64;        // of a group that one thread keeps in registers
constexpr int kWholeThreads[] = {256, 1024};
struct LayerNormRow {
  int lanes, packs;  // of a row, of a lane
};
// By the length of the rows that they take; 40, 80 and 160 packs (320, 640 and 1280 columns) exactly.
constexpr LayerNormRow kLayerNormRows[] = {{8, 5}, {16, 5}, {32, 3}, {32, 5}, {32, 8}, {32, 10}};
constexpr int kMaxMergedParts = 128;  // that the normalising kernel merges itself

// Elements of 16 bytes.
constexpr int full_pack(int element_bytes) { return 16 / element_bytes; }
// Packs that one thread of the whole-group kernel keeps.
constexpr int whole_packs(int vec, int element_bytes) { return kWholeBytes / (vec * element_bytes); }

}  // namespace rocm_sd::norm_configs
