// Which workgroup has which part of which tile (tile/tile_parts.hpp): launchers and kernels compute it here.
#pragma once

#include "composable_kernels/tile/config.hpp"

namespace rocm_sd {

// Floats of a workgroup's accumulators.
constexpr int64_t tile_floats(const TileShape& shape) { return int64_t{shape.block_m} * shape.block_n; }

// A shared tile's word in `arrivals`: a mark that tells it from what other kernels leave in memory, and the
// parts that have come; none when a launch has ended.
constexpr int kPartCountBits = 12;
constexpr uint64_t kPartCountMask = (uint64_t{1} << kPartCountBits) - 1, kPartMark = 0x9e3779b97f4a7;

// Of a launch's tiles the first `whole` have a workgroup each, the other `rest` are shared by `splits` each.
// All zero: no tile is shared.
struct TileParts {
  int whole, rest, splits;
  float* sums;         // [shared tiles][splits][tile_floats]
  uint64_t* arrivals;  // [shared tiles], of any content
  // Only some of the launch's workgroups run, for a model of its time: the last part of a tile finds the
  // others there, as it mostly does where all run.
  bool samples_groups;
};

// What workgroup `index` of whole + rest * splits has. Neighbours have the same part of neighbouring tiles.
struct TilePart {
  int tile, part;
  int place;  // of the tile among those that are shared; -1: it is not
  ROCM_SD_DEVICE constexpr bool shared() const { return place >= 0; }
};
ROCM_SD_DEVICE constexpr TilePart tile_part(const TileParts& p, int index) {
  if (p.splits <= 1 || index < p.whole) return {index, 0, -1};
  const int of_shared = index - p.whole, part = of_shared / p.rest, place = of_shared - part * p.rest;
  return {p.whole + place, part, place};
}

}  // namespace rocm_sd
