#include "kernels/tma_plan.hpp"

namespace rocm_sd {
namespace {

constexpr int kRows = 128, kDepth = 64;  // of a tile, of a step

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

uint32_t tma_clusters_at_once(const GpuTraits& traits, int groups, int workgroups) {
  // Of 132 compute units 32 clusters of 4 did not run at once, nor 16 of 7: a cluster lies in one part of
  // the device, of 18 compute units at most, and some parts of an H200 are not whole.
  const int parts = traits.compute_units / 18;
  const int usable = workgroups <= 2
                         ? traits.compute_units
                         : std::min(traits.compute_units * 17 / 20, parts * (18 / workgroups) * workgroups);
  return static_cast<uint32_t>(std::max(1, groups * usable / workgroups));
}

std::vector<TmaSplit> tma_splits(const GpuTraits& traits, const TmaTile& tile, const TmaExtent& extent,
                                 bool may_split) {
  std::vector<TmaSplit> out;
  const int64_t below = ceil_div(extent.rows, kRows);
  const int64_t tiles = below * ceil_div(extent.columns, tile.columns) * extent.layers;
  const int64_t steps = ceil_div(extent.depth, kDepth);
  for (const int multicast_size : {1, 2})
    for (int splits = 1; splits * multicast_size <= 8; ++splits) {
      if (multicast_size > below || (splits > 1 && (!may_split || tile.groups > 1 || tile.ping_pong)))
        continue;
      // Parts that fill the device about once; none is empty.
      if (splits > 1 && tiles * splits > traits.compute_units) break;
      if (splits > 1 && (steps < 2 * splits || ceil_div(steps, ceil_div(steps, splits)) != splits)) continue;
      out.push_back({multicast_size, splits});
    }
  return out;
}

namespace {

// Nanoseconds. A workgroup takes its tiles in rounds; each costs its steps, which the matrix units or the
// copies into LDS bind, and what comes before and after them.
struct Costs {
  double step[4];           // of 64 of depth, by columns as in class_of()
  double epilogue, column;  // of a tile's begin and end: always, and per column
  double shared;            // a step's part where two tiles share weights
  double part;              // per part of k beyond the first: barriers of a larger cluster
  double byte;              // per byte of sums that change workgroups
};
// Fitted to the times of all configurations for the products of SD1.5, SDXL, the VAE and CLIP on an H200. The
// choices took 0.8%, 0.1%, 0.2% and 1.7% more in all than the best (convolutions 0.1%); fitted to SD1.5
// alone, 2.5% more for SDXL, and the reverse 1.1%. Boxes and halos: fitted to the convolutions of SD1.5,
// SDXL, the VAE and TAESD, whose choices took 1%, 0.5%, 0.6% and 0.5% more than the best. Pixels one by one
// are a little slower than boxes; by how much, a forward of SD1.5 says.
constexpr Costs kMatrix = {{218, 311, 405, 600}, 0, 10, 0.985, 500, 0.04};
constexpr Costs kGathered = {{300, 370, 440, 640}, 925, 11.2, 0.985, 370, 0.024};
constexpr Costs kBoxes = {{229, 321, 404, 624}, 925, 11.2, 0.998, 370, 0.024};
constexpr Costs kHalo = {{230, 307, 393, 610}, 880, 17.4, 0.994, 511, 0.01};
const Costs& costs_of(TmaRows from) {
  switch (from) {
    case TmaRows::kMatrix: return kMatrix;
    case TmaRows::kGathered: return kGathered;
    case TmaRows::kBoxes: return kBoxes;
    case TmaRows::kHalo: return kHalo;
  }
  return kMatrix;
}
constexpr double kGatedEpilogue[4] = {1200, 1840, 2200, 3200};
constexpr double kLaunch = 1800, kShare = 150, kGatheredShare = 100;

int class_of(int columns) { return columns <= 64 ? 0 : columns <= 128 ? 1 : columns <= 160 ? 2 : 3; }

// The same in ping-pong, where a consumer group's epilogue is beside the other's steps: a step, and a
// epilogue by half the threads; by columns as in class_of(). With these among them the choices took 0.9%
// (SD1.5) and 1.1% (SDXL) more than the best; of the latter 1% is 2048x3840x1280, which in a forward, where
// weights come from memory, is faster by turns. Of convolutions 0.9% and 0.2%.
struct PingPongCosts {
  double step, epilogue;
  double tile = 0;  // that no other tile's steps hide
};
constexpr PingPongCosts kGatedPingPong = {317, 0, 1414};
constexpr PingPongCosts kMatrixPingPong[] = {{240, 600}, {355, 1270}, {415, 2170, 350}},
                        kGatheredPingPong[] = {{310, 600}, {400, 1500}, {400, 3500}},
                        kBoxesPingPong[] = {{290, 600}, {375, 1500}, {430, 2750}},
                        kHaloPingPong[] = {{225, 600}, {330, 1500}, {390, 5000}};
constexpr double kPingPongShared = 0.985;

// Rounds of tiles in turns: either the steps of all follow each other, or each consumer group is busy all the
// time.
double turns_ns(const TmaTile& tile, const TmaExtent& extent, double steps, bool shared, int64_t rounds) {
  const int width = class_of(tile.columns);
  const PingPongCosts& of = extent.gated                        ? kGatedPingPong
                            : extent.from == TmaRows::kMatrix   ? kMatrixPingPong[width]
                            : extent.from == TmaRows::kGathered ? kGatheredPingPong[width]
                            : extent.from == TmaRows::kBoxes    ? kBoxesPingPong[width]
                                                                : kHaloPingPong[width];
  const double products = steps * of.step * (shared ? kPingPongShared : 1.0) + of.tile;
  const double wait = rounds % 2 == 0 ? products : 0;  // of the second consumer group, whose tile is the last
  return std::max(static_cast<double>(rounds) * products + of.epilogue,
                  wait + static_cast<double>(ceil_div(rounds, 2)) * (products + of.epilogue));
}

}  // namespace

double tma_ns(const GpuTraits& traits, const TmaTile& tile, const TmaExtent& extent, TmaSplit split) {
  const Costs& of = costs_of(extent.from);
  const int64_t clusters = ceil_div(extent.rows, kRows * split.multicast_size) *
                           ceil_div(extent.columns, tile.columns) * extent.layers;
  const auto steps = static_cast<double>(ceil_div(ceil_div(extent.depth, kDepth), split.splits));
  const int64_t at_once = std::min<int64_t>(
      clusters, tma_clusters_at_once(traits, tile.groups, split.multicast_size * split.splits));
  const int64_t rounds = ceil_div(clusters, at_once);
  if (tile.ping_pong) return kLaunch + turns_ns(tile, extent, steps, split.multicast_size > 1, rounds);
  double round = steps * of.step[class_of(tile.columns)] * (split.multicast_size > 1 ? of.shared : 1.0);
  round += extent.gated ? kGatedEpilogue[class_of(tile.columns)] : of.epilogue + of.column * tile.columns;
  if (split.multicast_size > 1) round += extent.from != TmaRows::kMatrix ? kGatheredShare : kShare;
  if (split.splits > 1)
    round +=
        of.part * (split.splits - 1) + of.byte * 4 * kRows * tile.columns * (split.splits - 1) / split.splits;
  // Two that share a multiprocessor share its matrix units; what else they do is beside each other.
  if (tile.groups > 1) round = std::max(round, 2 * steps * of.step[class_of(tile.columns)]);
  return kLaunch + static_cast<double>(rounds) * round;
}

}  // namespace rocm_sd
