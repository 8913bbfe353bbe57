#include "kernels/bulk_plan.hpp"

namespace rocm_sd {
namespace {

constexpr int kRows = 128, kDepth = 64;  // of a tile, of a step

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

uint32_t bulk_clusters_at_once(const GpuTraits& traits, int groups, int workgroups) {
  // Of 132 multiprocessors 32 clusters of 4 did not run at once: some parts of an H200 are not whole.
  const int usable = workgroups <= 2 ? traits.multiprocessors : traits.multiprocessors * 17 / 20;
  return static_cast<uint32_t>(std::max(1, groups * usable / workgroups));
}

std::vector<BulkSplit> bulk_splits(const GpuTraits& traits, const BulkTile& tile, const BulkExtent& extent,
                                   bool may_split) {
  std::vector<BulkSplit> out;
  const int64_t below = ceil_div(extent.rows, kRows);
  const int64_t tiles = below * ceil_div(extent.columns, tile.columns) * extent.layers;
  const int64_t steps = ceil_div(extent.depth, kDepth);
  for (const int sharers : {1, 2})
    for (int splits = 1; splits * sharers <= 8; ++splits) {
      if (sharers > below || (splits > 1 && (!may_split || tile.groups > 1))) continue;
      // Parts that fill the device about once; none is empty.
      if (splits > 1 && tiles * splits > traits.multiprocessors) break;
      if (splits > 1 && (steps < 2 * splits || ceil_div(steps, ceil_div(steps, splits)) != splits)) continue;
      out.push_back({sharers, splits});
    }
  return out;
}

// Fitted to an H200's times of SD1.5's and SDXL's products.
double bulk_ns(const GpuTraits& traits, const BulkTile& tile, const BulkExtent& extent, BulkSplit split) {
  constexpr double kLaunch = 1800, kSumPerByte = 0.04, kBytes = 2000;
  const int columns = tile.columns;
  const double step = columns <= 64 ? 280 : columns <= 128 ? 326 : columns <= 160 ? 450 : 2.4 * columns;
  const double tail = (extent.gated ? 24.0 : 16.5) * columns;
  const int64_t groups =
      ceil_div(extent.rows, kRows * split.sharers) * ceil_div(extent.columns, tile.columns) * extent.layers;
  const auto steps = static_cast<double>(ceil_div(ceil_div(extent.depth, kDepth), split.splits));
  const int64_t at_once =
      std::min<int64_t>(groups, bulk_clusters_at_once(traits, tile.groups, split.sharers * split.splits));
  double round = tail + steps * step * (split.sharers > 1 ? 0.97 : 1.0) + (split.sharers > 1 ? 150 : 0);
  if (split.splits > 1) round += kSumPerByte * 4 * kRows * columns * (split.splits - 1) / split.splits;
  // Two that share a multiprocessor share its matrix units; what else they do is beside each other.
  if (tile.groups > 1 && groups > at_once / 2) round = std::max(round, 2 * steps * step + tail / 2);
  const auto rounds = static_cast<double>(ceil_div(groups, at_once));
  const auto weights = 2.0 * static_cast<double>(extent.columns * extent.depth * extent.layers);
  return kLaunch + std::max(rounds * round, weights / kBytes);
}

}  // namespace rocm_sd
