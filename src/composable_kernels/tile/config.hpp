// How a product is cut: the tile of a workgroup, its waves, the stages in LDS. Host and kernel share it, so
// that the launcher and the code cannot disagree.
#pragma once

#include <type_traits>

#include "composable_kernels/types.hpp"

namespace rocm_sd {

// Which operand goes from global memory to registers, around LDS (pipeline/direct_fragments.hpp).
enum class DirectOperand { kNone, kRows, kWeights };

// Rows are those of the activation (tokens, pixels), columns those of the weight (output channels).
struct TileShape {
  int block_m = 0;  // rows of a workgroup's tile of the output
  int block_n = 0;  // columns
  int block_k = 0;  // depth of one step of the main loop
  int waves_m = 1, waves_n = 1;
  int stages = 2;  // tiles of both operands in LDS at once; through registers 1 or 2
  DirectOperand direct = DirectOperand::kNone;
  // Steps whose loads are under way, where tiles pass through registers: each takes registers of its own. For
  // workgroups that have a compute unit to themselves, where nothing else hides what a load takes.
  int ahead = 1;

  constexpr bool operator==(const TileShape&) const = default;
  constexpr int waves() const { return waves_m * waves_n; }
  constexpr int wave_m() const { return block_m / waves_m; }
  constexpr int wave_n() const { return block_n / waves_n; }
  // Rows of a stage in LDS.
  constexpr int staged_m() const { return direct == DirectOperand::kRows ? 0 : block_m; }
  constexpr int staged_n() const { return direct == DirectOperand::kWeights ? 0 : block_n; }
};

// 16 bytes more in each row of LDS: rows that are read together then start in different banks.
constexpr int kLdsPadBytes = 16;
// Floats more in each row of the output's staging in LDS, at most; those of waves that keep a piece's
// channels in two halves (tile/output.hpp).
constexpr int kStagePad = 8, kHalvesStagePad = 4;

constexpr int main_loop_lds_bytes(const TileShape& shape, int element_bytes) {
  return shape.stages * (shape.staged_m() + shape.staged_n()) *
         (shape.block_k * element_bytes + kLdsPadBytes);
}
// Each wave passes 16 rows of its part of the output through LDS at a time, or `columns` of them.
constexpr int staged_lds_bytes(const TileShape& shape, int columns, int pad) {
  return shape.waves() * 16 * (columns + pad) * static_cast<int>(sizeof(float));
}
constexpr int output_lds_bytes(const TileShape& shape) {
  return staged_lds_bytes(shape, shape.wave_n(), kStagePad);
}
// LDS of a workgroup, in bytes: the output's staging reuses the main loop's.
constexpr int product_lds_bytes(const TileShape& shape, int element_bytes) {
  const int loop = main_loop_lds_bytes(shape, element_bytes), output = output_lds_bytes(shape);
  return loop > output ? loop : output;
}

// Atoms of a wave's channels that pass through LDS at once on their way out, where the output's staging
// should take no more than `bytes`. Two at the least, so that a row's piece of the output has 64 bytes.
constexpr int staged_atoms_within(const TileShape& shape, int bytes) {
  int atoms = shape.wave_n() / 16;
  while (atoms % 4 == 0 && staged_lds_bytes(shape, 16 * atoms, kHalvesStagePad) > bytes) atoms /= 2;
  return atoms;
}
// The same for pipeline/product_loads_to_lds.hpp: no padding, and each stage is memory of its own, of which
// the first is also the output's.
constexpr int loads_to_lds_stage_bytes(const TileShape& shape, int element_bytes) {
  return (shape.staged_m() + shape.staged_n()) * shape.block_k * element_bytes;
}
constexpr int loads_to_lds_first_bytes(const TileShape& shape, int element_bytes) {
  const int stage = loads_to_lds_stage_bytes(shape, element_bytes);
  const int output = staged_lds_bytes(shape, 16 * staged_atoms_within(shape, stage), kHalvesStagePad);
  return stage > output ? stage : output;
}
constexpr int loads_to_lds_bytes(const TileShape& shape, int element_bytes) {
  return loads_to_lds_first_bytes(shape, element_bytes) +
         (shape.stages - 1) * loads_to_lds_stage_bytes(shape, element_bytes);
}

// The same for hopper/wgmma_product.hpp: no padding, and room to align tiles to 1024.
constexpr int wgmma_lds_bytes(const TileShape& shape) {
  const int loop = 1024 + shape.stages * (shape.block_m + shape.block_n) * shape.block_k * 2;
  const int output = output_lds_bytes(shape);
  return loop > output ? loop : output;
}

// The tiles of hopper/tma_pipeline.hpp: 128 rows by two warpgroups, 64 of depth.
constexpr TileShape tma_shape(int columns, int stages) { return {128, columns, 64, 8, 1, stages}; }
constexpr int kTmaThreads = 384;  // a third warpgroup fetches
constexpr int tma_stage_bytes(const TileShape& shape) {
  return (shape.block_m + shape.block_n) * shape.block_k * 2;
}
// With room to align tiles to 1024, two barriers of 8 bytes to a stage, and one more.
constexpr int tma_lds_bytes(const TileShape& shape) {
  return 1024 + shape.stages * (tma_stage_bytes(shape) + 16) + 8;
}

// With the rows of all taps of a filter fetched at once: a stage is the weights of one, and there are two
// tiles of pixels: 8 by 16, or 8 by 8 of two images, and what a filter of 3 by 3 reaches around them.
constexpr int kHaloBytes = 2 * 10 * 10 * 128;
constexpr int halo_stage_bytes(const TileShape& shape) { return shape.block_n * shape.block_k * 2; }
constexpr int halo_lds_bytes(const TileShape& shape) {
  return 1024 + shape.stages * (halo_stage_bytes(shape) + 16) + 8 + 2 * (kHaloBytes + 16);
}

// With the filter of all taps and block_k channels in LDS as well, all that a workgroup may have: as many
// tiles of pixels, at most `stages`, as the filter leaves room for. A warpgroup more multiplies.
constexpr int kResidentLdsBytes = 227 * 1024, kResidentThreads = 512;
constexpr int resident_pixel_bytes(const TileShape& shape) {  // that the largest filter leaves
  return kResidentLdsBytes - 1024 - 16 * shape.stages - 9 * shape.block_n * shape.block_k * 2;
}

// Storage: Half, Bf16 or float.
template <class Storage, TileShape kTileShape>
struct ProductCfg {
  using T = Storage;
  static constexpr TileShape kShape = kTileShape;
  static constexpr int kBlockM = kShape.block_m, kBlockN = kShape.block_n, kBlockK = kShape.block_k;
  static constexpr int kWaves = kShape.waves(), kStages = kShape.stages;
  static constexpr int kWaveM = kShape.wave_m(), kWaveN = kShape.wave_n();
  static constexpr int kAtomsM = kWaveM / 16, kAtomsN = kWaveN / 16;  // of a wave
  static constexpr int kStagedAtoms = kAtomsN;  // of channels that pass through LDS at once on their way out
  static constexpr int kChunk = 16 / static_cast<int>(sizeof(T));  // elements that one copy moves
  static constexpr int kLd = kBlockK + kLdsPadBytes / static_cast<int>(sizeof(T));  // row of a tile in LDS
  static constexpr int kLdsBytes = product_lds_bytes(kShape, sizeof(T));
  // Where element (row, column) of a tile lies in LDS; column is the first of a chunk.
  static ROCM_SD_DEVICE constexpr int element(int row, int column) { return row * kLd + column; }

  static_assert(kBlockM % (16 * kShape.waves_m) == 0 && kBlockN % (16 * kShape.waves_n) == 0);
  static_assert(kBlockK % 16 == 0 && kStages >= 1);
};

// Rows without padding, their 16-byte pieces in another order from row to row: reads and writes of 16 bytes
// by neighbouring lanes then meet in no bank. For atoms whose lanes read 16 bytes (Arch::kDeepAtoms).
template <class Storage, TileShape kTileShape>
struct SwizzledCfg : ProductCfg<Storage, kTileShape> {
  using Base = ProductCfg<Storage, kTileShape>;
  static constexpr int kLd = Base::kBlockK, kPieces = kLd / Base::kChunk;  // of a row
  static constexpr int kLoopBytes = Base::kStages * (kTileShape.staged_m() + kTileShape.staged_n()) * kLd *
                                    static_cast<int>(sizeof(Storage));
  // No more LDS for the output than the main loop has: another workgroup may find room in the difference.
  static constexpr int kStagedAtoms = staged_atoms_within(kTileShape, kLoopBytes);
  static constexpr int kStagedBytes = staged_lds_bytes(kTileShape, 16 * kStagedAtoms, kHalvesStagePad);
  static constexpr int kLdsBytes = kLoopBytes > kStagedBytes ? kLoopBytes : kStagedBytes;
  static_assert(sizeof(Storage) <= 2 && (kPieces == 4 || kPieces == 8));
  static ROCM_SD_DEVICE constexpr int element(int row, int column) {
    const int turn = kPieces == 4 ? row / 2 : row;  // 128 bytes hold two rows of 4 pieces
    return row * kLd + ((column / Base::kChunk ^ turn % kPieces) * Base::kChunk | column % Base::kChunk);
  }
};

constexpr TileShape one_stage(TileShape shape) {
  shape.stages = shape.ahead = 1;
  return shape;
}
// The same for pipeline/product_loads_to_lds.hpp. kLdsBytes: of the first stage and of the output.
template <class Storage, TileShape kTileShape>
struct LoadsToLdsCfg : SwizzledCfg<Storage, kTileShape> {
  static constexpr int kStageBytes = loads_to_lds_stage_bytes(kTileShape, sizeof(Storage));
  static constexpr int kStagedAtoms = staged_atoms_within(kTileShape, kStageBytes);
  static constexpr int kLdsBytes = loads_to_lds_first_bytes(kTileShape, sizeof(Storage));
  // For sources that no such load takes: through registers, in the first stage.
  using OneStage = SwizzledCfg<Storage, one_stage(kTileShape)>;
};

// How Arch's main loop lays out its tiles.
template <class Arch, class Storage, TileShape kTileShape>
using TileCfg = std::conditional_t<Arch::kDeepAtoms && sizeof(Storage) <= 2, SwizzledCfg<Storage, kTileShape>,
                                   ProductCfg<Storage, kTileShape>>;

}  // namespace rocm_sd
