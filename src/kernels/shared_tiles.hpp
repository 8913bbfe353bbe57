// How a launcher divides a product's tiles among workgroups on families whose kernels sum the parts
// themselves (composable_kernels/tile/tile_parts.hpp).
#pragma once

#include "composable_kernels/tile/tile_parts_plan.hpp"
#include "kernels/gpu_launch.hpp"

namespace rocm_sd {

// Which tiles are shared: all of them, or those of the last round alone, in which not every compute unit
// would have one.
enum class SharedTileSet { kAll, kLastRound };

// Tiles that have a workgroup each.
inline int64_t whole_tiles(const GpuTraits& traits, int64_t tiles, SharedTileSet set) {
  const int64_t units = traits.compute_units > 0 ? traits.compute_units : 1;
  return set == SharedTileSet::kAll ? 0 : tiles / units * units;
}

// The kernel's argument, and the memory that its launch needs, for the time of this object.
struct SharedTiles {
  TileParts parts{};
  Tensor sums, arrivals;

  // splits: workgroups to each shared tile. copies: of the grid's tiles, each with tiles of its own to share.
  SharedTiles(Exec& ex, const TileShape& shape, int64_t tiles, int splits, SharedTileSet set,
              int64_t copies = 1) {
    GpuDevice& device = *gpu_device(ex);
    const GpuTraits& traits = device.traits();
    if (splits <= 1) return;
    const int64_t whole = whole_tiles(traits, tiles, set), rest = tiles - whole;
    if (rest == 0) return;
    sums = ex.alloc({rest * copies, splits, tile_floats(shape)}, DType::kF32);
    arrivals = ex.alloc({rest * copies, 2}, DType::kF32);                              // words of 64 bits
    if (arrivals.data()) device.admit_any_content(arrivals.data(), arrivals.bytes());  // not while planning
    parts = {static_cast<int>(whole),
             static_cast<int>(rest),
             splits,
             sums.as<float>(),
             static_cast<uint64_t*>(arrivals.data()),
             traits.samples_groups};
  }
  // Of a launch without copies, whose workgroups then differ.
  GroupOrder order(const GpuTraits& traits, const GpuGrid& grid) const {
    GroupOrder out = group_order(traits, grid);
    if (out.chiplets > 1 && grid.z == 1 && parts.splits > 1 &&
        parts.whole % static_cast<int>(out.chiplets) == 0)
      out.whole = static_cast<uint32_t>(parts.whole);
    return out;
  }
  // Workgroups of a launch.
  uint32_t workgroups(int64_t tiles) const {
    return static_cast<uint32_t>(parts.splits > 1 ? parts.whole + int64_t{parts.rest} * parts.splits : tiles);
  }
};

}  // namespace rocm_sd
