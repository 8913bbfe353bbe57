#include "kernels/norm/norm_plan.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "composable_kernels/fused/group_norm_parts.hpp"
#include "composable_kernels/hopper/group_norm_cluster.hpp"
#include "kernels/norm/norm_configs.hpp"

namespace rocm_sd {
namespace {

using namespace norm_configs;

int element_bytes(const GroupNormProblem& p) { return static_cast<int>(dtype_size(p.dtype)); }
int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The widest pack that divides all of `extents`.
int widest_pack(const GroupNormProblem& p, std::initializer_list<int64_t> extents) {
  if (!p.aligned) return 1;
  for (int vec = full_pack(element_bytes(p)); vec > 1; vec /= 2)
    if (std::ranges::all_of(extents, [vec](int64_t e) { return e % vec == 0; })) return vec;
  return 1;
}

// Packs of 16 bytes or single elements: what the kernels in parts are compiled for.
int parts_pack(const GroupNormProblem& p) {
  const int full = full_pack(element_bytes(p));
  return p.aligned && p.first_channels() % full == 0 && p.second_channels % full == 0 ? full : 1;
}

int64_t slab_of(const GroupNormProblem& p, int vec) { return group_norm_slab(p.channels, p.groups, vec); }

GroupNormPlan in_parts(const GroupNormProblem& p, int compute_units, int parts_per_compute_unit,
                       int pieces_per_compute_unit = 8) {
  GroupNormPlan plan;
  plan.vec = parts_pack(p);
  plan.slab = slab_of(p, plan.vec);
  const int64_t slabs = p.images * (p.channels / plan.slab), rows = kPartsThreads / (plan.slab / plan.vec);
  // Each workgroup gets at least as many pixels as fill its threads once.
  const auto cut = [&](int64_t workgroups, int64_t least, int64_t& size, int64_t& count) {
    const int64_t wanted = std::max<int64_t>(divide_up(workgroups, slabs), 1);
    size = divide_up(std::max(divide_up(p.pixels, wanted), std::min(least, p.pixels)), rows) * rows;
    count = divide_up(p.pixels, size);
  };
  cut(int64_t{compute_units} * parts_per_compute_unit, 2 * rows, plan.part, plan.parts);
  cut(int64_t{compute_units} * pieces_per_compute_unit, 4 * rows, plan.piece, plan.pieces);
  plan.merge = plan.parts > kMaxMergedParts;
  return plan;
}

// The least threads that keep a group of one image in registers; nothing if none do.
std::optional<GroupNormPlan> whole(const GroupNormProblem& p) {
  const int64_t width = p.channels / p.groups;
  GroupNormPlan plan;
  plan.vec = widest_pack(p, {width, p.first_channels(), p.second_channels});
  if (plan.vec == 1) return std::nullopt;
  const int64_t columns = width / plan.vec;
  for (const int threads : kWholeThreads) {
    if (threads / columns * whole_packs(plan.vec, element_bytes(p)) < p.pixels) continue;
    plan.whole_threads = threads;
    return plan;
  }
  return std::nullopt;
}

// The parts that a device with clusters takes by default: two workgroups of a compute unit in both passes,
// for each that normalises merges the parts first.
GroupNormPlan few_parts(const GroupNormProblem& p, int compute_units) {
  return in_parts(p, compute_units, 2, 2);
}

// Estimates of microseconds, fitted to an H200's in f16. A turn of clusters takes longer by the packs of a
// thread, used or not; clusters of four and more find room on half of the device only.
double cluster_time(const GroupNormProblem& p, const GroupNormPlan& plan, const GpuTraits& device) {
  const auto workgroups = static_cast<double>(p.images * (p.channels / plan.slab) * plan.pieces);
  const double room = device.compute_units / (plan.pieces <= 2 ? 1.0 : 2.0);
  return 3 + 0.55 * plan.cluster_packs * std::max(workgroups / room, 1.0);
}
double resident_time(const GroupNormProblem& p) { return 8.2 + p.bytes() / 3.05e6; }
// A second turn of few workgroups costs as much as more; x is read again, from memory where it is large.
double parts_time(const GroupNormProblem& p, const GpuTraits& device) {
  constexpr double kCached = 18e6;  // bytes of x
  const GroupNormPlan plan = few_parts(p, device.compute_units);
  const bool turns = p.images * (p.channels / plan.slab) * plan.pieces > 2 * device.compute_units;
  return 5.5 + p.bytes() / 2.7e6 * (turns ? 1.35 : 1) * (p.bytes() / 2 > kCached ? 1.3 : 1);
}

}  // namespace

std::vector<GroupNormPlan> group_norm_clusters(const GroupNormProblem& p, uint32_t cluster) {
  std::vector<GroupNormPlan> plans;
  const int vec = full_pack(element_bytes(p));
  if (parts_pack(p) != vec) return plans;
  const int64_t width = p.channels / p.groups, unit = std::lcm(width, static_cast<int64_t>(vec));
  if (width < vec && 2 * width != vec) return plans;  // a pack would touch three groups
  for (int64_t slab = unit; slab <= p.channels; slab += unit) {
    if (p.channels % slab || slab / width > group_norms::kMaxClusterGroups || slab / vec > kClusterThreads ||
        slab > group_norms::kMaxClusterChannels)
      continue;
    const int64_t rows = kClusterThreads / (slab / vec);
    for (int64_t pieces = 1; pieces <= cluster; pieces *= 2) {
      const int64_t piece = divide_up(p.pixels, pieces);
      const auto* packs = std::ranges::find_if(kClusterPacks, [&](int n) { return n * rows >= piece; });
      if (packs == std::end(kClusterPacks)) continue;
      GroupNormPlan plan;
      plan.vec = vec;
      plan.cluster_packs = *packs;
      plan.slab = slab;
      plan.piece = piece;
      plan.pieces = pieces;
      plans.push_back(plan);
    }
  }
  return plans;
}

int64_t resident_bytes(const GroupNormProblem& p, const GroupNormPlan& plan) {
  const int64_t columns = p.channels / plan.vec;
  return plan.resident_packs * (kResidentThreads / columns * columns) * plan.vec * element_bytes(p);
}

std::optional<GroupNormPlan> group_norm_resident(const GroupNormProblem& p, const GpuTraits& device,
                                                 int64_t parts, int packs) {
  GroupNormPlan plan;
  plan.vec = full_pack(element_bytes(p));
  const int64_t width = p.channels / p.groups, columns = p.channels / plan.vec;
  if (parts == 0) parts = device.compute_units / p.images;
  if (parts_pack(p) != plan.vec || p.channels % plan.vec || columns > kResidentThreads || parts == 0 ||
      p.images * parts > device.compute_units || p.groups > group_norms::kMaxSlabGroups ||
      (width < plan.vec && 2 * width != plan.vec))  // a pack would touch three groups
    return std::nullopt;
  const int64_t rows = kResidentThreads / columns;
  plan.slab = p.channels;
  plan.part = divide_up(p.pixels, std::min(parts, divide_up(p.pixels, rows)));
  plan.parts = divide_up(p.pixels, plan.part);
  plan.resident_packs = 1;
  const int64_t most = (static_cast<int64_t>(device.lds_per_group) -
                        static_cast<int64_t>(sizeof(group_norms::ResidentLds<kResidentThreads>))) /
                       resident_bytes(p, plan),
                needed = divide_up(plan.part, rows), kept = std::min(packs ? packs : most, needed);
  if (kept > most || (kept < needed && kept <= group_norms::kResidentAhead)) return std::nullopt;
  plan.resident_packs = static_cast<int>(kept);
  return plan;
}

// Few idle threads, and no more channels than that takes, for a workgroup that normalises merges the moments
// of its slab's groups first.
int64_t group_norm_slab(int64_t channels, int64_t groups, int vec) {
  const int64_t width = channels / groups, unit = std::lcm(width, static_cast<int64_t>(vec));
  constexpr int64_t kWide = 128;  // channels: pieces of memory long enough to be read at full rate
  int64_t best = 0;
  double best_share = 0;
  for (int64_t slab = unit; slab <= channels; slab += unit) {
    const int64_t columns = slab / vec;
    if (channels % slab || columns > kPartsThreads || slab / width > group_norms::kMaxSlabGroups) continue;
    const double used = static_cast<double>(kPartsThreads / columns * columns) / kPartsThreads;
    const double share = used * static_cast<double>(std::min(slab, kWide)) / kWide;
    if (best == 0 || share > best_share + 0.02) best_share = share, best = slab;
  }
  return best;
}

std::string GroupNormPlan::describe() const {
  if (whole_threads) return concat("whole v", vec, " t", whole_threads);
  if (resident_packs) return concat("resident parts ", parts, " packs ", resident_packs);
  if (cluster_packs) return concat("cluster of ", pieces, " p", cluster_packs, " slab ", slab);
  return concat("parts v", vec, " slab ", slab, " parts ", parts, " pieces ", pieces, merge ? " merge" : "");
}

Refusal refuse_group_norm(const GroupNormProblem& p) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max() / 2;
  if (p.images > kMax || p.pixels > kMax || p.channels > kMax) return concat("takes no extent above ", kMax);
  if (p.images * p.pixels * p.channels > 0 && slab_of(p, parts_pack(p)) == 0)
    return concat("takes groups of at most ", kPartsThreads * parts_pack(p), " channels");
  return std::nullopt;
}

GroupNormPlan default_group_norm(const GroupNormProblem& p, const GpuTraits& device) {
  const auto small = whole(p);
  if (device.cluster == 1) return small ? *small : in_parts(p, device.compute_units, 2);
  if (small && small->whole_threads == kWholeThreads[0]) return *small;
  std::optional<GroupNormPlan> best = small;
  double least = small ? 7 : parts_time(p, device);
  for (const GroupNormPlan& plan : group_norm_clusters(p, device.cluster))  // of equals the widest slab
    if (const double time = cluster_time(p, plan, device); time <= least) least = time, best = plan;
  if (const auto plan = group_norm_resident(p, device); plan && resident_time(p) < least) best = plan;
  return best ? *best : few_parts(p, device.compute_units);
}

std::vector<GroupNormPlan> group_norm_candidates(const GroupNormProblem& p, const GpuTraits& device) {
  std::vector<GroupNormPlan> plans = {default_group_norm(p, device)};
  if (const auto plan = whole(p)) plans.push_back(*plan);
  for (const int parts : {1, 2, 4, 8}) plans.push_back(in_parts(p, device.compute_units, parts));
  if (device.cluster == 1) return plans;
  for (const int pieces : {1, 2, 4}) plans.push_back(in_parts(p, device.compute_units, 2, pieces));
  for (const GroupNormPlan& plan : group_norm_clusters(p, device.cluster)) plans.push_back(plan);
  if (const auto plan = group_norm_resident(p, device)) plans.push_back(*plan);
  return plans;
}

}  // namespace rocm_sd
