#include "kernels/tma_plan.hpp"

#include "kernels/family/kernel_tables.hpp"

namespace rocm_sd {
namespace {

constexpr int kRows = 128, kDepth = 64;  // of a tile, of a step

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

uint32_t tma_clusters_at_once(const GpuTraits& traits, int occupancy, int workgroups) {
  // Of 132 compute units 32 clusters of 4 did not run at once, nor 16 of 7: a cluster lies in one part of
  // the device, of 18 compute units at most, and some parts of an H200 are not whole.
  const int parts = traits.compute_units / 18;
  const int usable = workgroups <= 2
                         ? traits.compute_units
                         : std::min(traits.compute_units * 17 / 20, parts * (18 / workgroups) * workgroups);
  return static_cast<uint32_t>(std::max(1, occupancy * usable / workgroups));
}

std::vector<TmaSplit> tma_splits(const GpuTraits& traits, const GemmConfig& tile, const TmaExtent& extent,
                                 bool may_split) {
  std::vector<TmaSplit> out;
  const int64_t below = ceil_div(extent.rows, kRows);
  const int64_t tiles = below * ceil_div(extent.columns, tile.shape.block_n) * extent.layers;
  const int64_t steps = ceil_div(extent.depth, kDepth);
  for (const int multicast_size : {1, 2})
    for (int splits = 1; splits * multicast_size <= 8; ++splits) {
      if (multicast_size > below ||
          (splits > 1 && (!may_split || tile.occupancy > 1 || is_ping_pong(tile.algorithm))))
        continue;
      // Parts that fill the device about once; none is empty.
      if (splits > 1 && tiles * splits > traits.compute_units) break;
      if (splits > 1 && (steps < 2 * splits || ceil_div(steps, ceil_div(steps, splits)) != splits)) continue;
      out.push_back({multicast_size, splits});
    }
  return out;
}

uint32_t resident_workgroups(const GpuTraits& traits, const GemmConfig& tile, const TmaExtent& extent) {
  const int64_t kinds = extent.layers * ceil_div(extent.columns, tile.shape.block_n);
  const int64_t each = std::max<int64_t>(1, traits.compute_units / kinds);
  return static_cast<uint32_t>(kinds * std::min(each, ceil_div(extent.rows, kRows)));
}

double resident_ns(const GpuTraits& traits, const GemmConfig& tile, const TmaExtent& extent) {
  const TmaResidentCosts& of = cost_model(kernel_tables(traits).name).tma_resident.value();
  const int columns = tile.shape.block_n;
  const int64_t kinds = extent.layers * ceil_div(extent.columns, columns);
  const int64_t each = resident_workgroups(traits, tile, extent) / kinds;
  const auto boxes = static_cast<double>(ceil_div(ceil_div(extent.rows, kRows), each));
  const double steps = static_cast<double>(extent.depth) / kDepth;
  const size_t width = columns <= 32 ? 0 : 1;
  return of.launch_ns + of.filter_byte_ns * 2 * columns * static_cast<double>(extent.depth) +
         boxes * (steps * of.step_ns[width] + of.box_ns[width]);
}

namespace {

// Costs are by the columns of a tile: 64, 128, 160, 256.
size_t class_of(int columns) { return columns <= 64 ? 0 : columns <= 128 ? 1 : columns <= 160 ? 2 : 3; }

// Rounds of tiles of which two are under way: either the steps of all follow each other, or each consumer
// group is busy all the time.
double ping_pong_ns(const TmaPingPongCosts& costs, const TmaExtent& extent, int columns, double steps,
                    bool multicast, int64_t rounds) {
  const TmaPingPongCosts::Tile& of =
      extent.gated ? costs.geglu : costs.rows[static_cast<size_t>(extent.from)][class_of(columns)];
  const double multiply = steps * of.step_ns * (multicast ? costs.multicast_factor : 1.0) + of.tile_ns;
  const double wait = rounds % 2 == 0 ? multiply : 0;  // of the second consumer group, whose tile is the last
  return std::max(static_cast<double>(rounds) * multiply + of.epilogue_ns,
                  wait + static_cast<double>(ceil_div(rounds, 2)) * (multiply + of.epilogue_ns));
}

}  // namespace

// A workgroup takes its tiles in rounds; each costs its steps, which the matrix units or the copies into LDS
// bind, and what comes before and after them.
double tma_ns(const GpuTraits& traits, const GemmConfig& tile, const TmaExtent& extent, TmaSplit split) {
  const CostModel& model = cost_model(kernel_tables(traits).name);
  const TmaCosts& costs = model.tma.value();
  const TmaCosts::Rows& of = costs.rows[static_cast<size_t>(extent.from)];
  const int columns = tile.shape.block_n;
  const double step_ns = of.step_ns[class_of(columns)];
  const bool multicast = split.multicast_size > 1;
  const int64_t clusters =
      ceil_div(extent.rows, kRows * split.multicast_size) * ceil_div(extent.columns, columns) * extent.layers;
  const auto steps = static_cast<double>(ceil_div(ceil_div(extent.depth, kDepth), split.splits));
  const int64_t at_once = std::min<int64_t>(
      clusters, tma_clusters_at_once(traits, tile.occupancy, split.multicast_size * split.splits));
  const int64_t rounds = ceil_div(clusters, at_once);
  if (is_ping_pong(tile.algorithm))
    return costs.launch_ns +
           ping_pong_ns(model.tma_ping_pong.value(), extent, columns, steps, multicast, rounds);
  double round = steps * step_ns * (multicast ? of.multicast_factor : 1.0);
  round += extent.gated ? costs.geglu_tile_ns[class_of(columns)] : of.tile_ns + of.column_ns * columns;
  if (multicast) round += extent.from != TmaRows::kMatrix ? costs.gathered_multicast_ns : costs.multicast_ns;
  if (split.splits > 1)
    round += of.split_ns * (split.splits - 1) +
             of.exchanged_byte_ns * 4 * kRows * columns * (split.splits - 1) / split.splits;
  // Two that share a compute unit share its matrix units; what else they do is beside each other.
  if (tile.occupancy > 1) round = std::max(round, 2 * steps * step_ns);
  return costs.launch_ns + static_cast<double>(rounds) * round;
}

}  // namespace rocm_sd
