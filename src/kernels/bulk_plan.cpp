#include "kernels/bulk_plan.hpp"

namespace rocm_sd {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

uint32_t bulk_clusters_at_once(const GpuTraits& traits, int workgroups) {
  const int multiprocessors = std::max(16, traits.multiprocessors);
  const int clusters =
      workgroups <= 2 ? multiprocessors / workgroups : multiprocessors / 16 * (16 / workgroups);
  return static_cast<uint32_t>(clusters);
}

std::vector<BulkSplit> bulk_splits(const GpuTraits& traits, const TileShape& shape, const BulkExtent& extent,
                                   bool may_split) {
  std::vector<BulkSplit> out;
  const int64_t below = ceil_div(extent.rows, shape.block_m);
  const int64_t tiles = below * ceil_div(extent.columns, shape.block_n) * extent.layers;
  const int64_t steps = ceil_div(extent.depth, shape.block_k);
  for (const int sharers : {1, 2, 4})
    for (const int splits : {1, 2, 4, 8}) {
      if (sharers > below || sharers * splits > 8) continue;
      // Parts that fill the device about once; none is empty.
      if (splits > 1 && (!may_split || 2 * tiles * splits > 3LL * traits.multiprocessors)) continue;
      if (splits > 1 && (steps < 2 * splits || ceil_div(steps, ceil_div(steps, splits)) != splits)) continue;
      out.push_back({sharers, splits});
    }
  return out;
}

double bulk_ns(const GpuTraits& traits, const TileShape& shape, const BulkExtent& extent, BulkSplit split) {
  constexpr double kLaunch = 2200, kFill = 1100, kMultiply = 2.65, kLoads = 7200, kTail = 5000, kSum = 500;
  const int cluster = split.sharers * split.splits;
  const int64_t groups = ceil_div(extent.rows, shape.block_m * split.sharers) *
                         ceil_div(extent.columns, shape.block_n) * extent.layers;
  const int64_t steps = ceil_div(ceil_div(extent.depth, shape.block_k), split.splits);
  const int64_t at_once = std::min<int64_t>(groups, bulk_clusters_at_once(traits, cluster));
  const auto busy = static_cast<double>(at_once * cluster);
  const double multiply = kMultiply * std::max(shape.block_n, 96);
  const double bytes = 128.0 * (shape.block_m + static_cast<double>(shape.block_n) / split.sharers);
  const double load = bytes * busy / kLoads;
  const double tile = 4.0 * shape.block_m * shape.block_n, beside = 1 + 0.03 * (split.sharers - 1);
  double round =
      kFill +
      static_cast<double>(steps) * beside * (std::max(multiply, load) + 0.2 * std::min(multiply, load)) +
      tile * busy / split.splits / kTail;
  if (split.splits > 1) round += kSum + tile * (split.splits - 1) / split.splits / 100;
  return kLaunch + static_cast<double>(ceil_div(groups, at_once)) * round;
}

}  // namespace rocm_sd
