// Group norm with one cluster of workgroups per slab of whole groups of one image.
// Problem   GroupNormParams
// Mapping   each workgroup of the cluster takes a piece of the pixels; a thread owns one pack of channels of
//           every rows-th of them and keeps them in LDS
// Traffic   x once, y once; a mean and a sum of squares per workgroup and group between the workgroups
// Numerics  each thread measures its packs in two passes in float; threads, then workgroups, are merged
//           relative to the first of them, in an order that depends on the plan alone
// Limits    slab and border between the inputs are multiples of the pack; a pack touches at most two groups;
//           kMaxClusterGroups groups per slab; slab / kVec <= kThreads; a piece fits in LDS
#pragma once

#include "composable_kernels/fused/group_norm_parts.hpp"

namespace rocm_sd {
namespace group_norms {

constexpr int kMaxClusterGroups = 16;
constexpr int kMaxCluster = 8;

// LDS in front of the kept packs.
template <int kThreads>
struct alignas(16) ClusterLds {
  Pack<float, 2> moments[2][kThreads];    // of a thread's packs: those of their first, of their second group
  Merge shares[kMaxClusterGroups * 32];   // [group, wave of the group]
  Pack<float, 2> own[kMaxClusterGroups];  // mean, squares: of this workgroup
  float mean[kMaxClusterGroups], scale[kMaxClusterGroups];
};

}  // namespace group_norms

// Bytes of LDS that a workgroup needs which keeps `packs` packs of every thread.
template <int kThreads>
constexpr int64_t group_norm_cluster_lds(int64_t packs) {
  return static_cast<int64_t>(sizeof(group_norms::ClusterLds<kThreads>)) + packs * kThreads * 16;
}

// Cfg: T; kVec, elements of 16 bytes; kThreads, of a workgroup on a GPU. p.pieces is the size of the cluster.
// lds: group_norm_cluster_lds bytes.
template <class Arch, class Cfg>
ROCM_SD_DEVICE void group_norm_cluster_body(const GroupNormParams<typename Cfg::T>& p,
                                            const Block<Arch>& block, char* lds_bytes) {
  using T = typename Cfg::T;
  constexpr int kVec = Cfg::kVec, kThreads = Cfg::kThreads;
  auto& lds = *reinterpret_cast<group_norms::ClusterLds<kThreads>*>(lds_bytes);
  auto* kept = reinterpret_cast<Pack<T, kVec>*>(lds_bytes + sizeof(lds));  // [pack, thread]
  const int slabs = p.channels / p.slab, width = p.channels / p.groups, groups = p.slab / width;
  const int columns = p.slab / kVec, rows = kThreads / columns, used = rows * columns;
  const auto [image, slab, piece] = group_norms::place(block.group(), slabs, p.pieces);
  const int first = piece * p.piece < p.pixels ? piece * p.piece : p.pixels;
  const int end = p.pixels - first < p.piece ? p.pixels : first + p.piece;
  const int slab_begin = slab * p.slab, pixels = end - first;
  const auto count_of = [&](int row) { return row < pixels ? (pixels - row + rows - 1) / rows : 0; };
  // Of the pack in column c: the channels that belong to its first group, the others to the next.
  const auto split_of = [&](int c) {
    const int left = width - c * kVec % width;
    return left < kVec ? left : kVec;
  };

  group_norms::Affine<kVec> affine;
  const auto load_affine = [&](int t) {
    const int channel = slab_begin + t % columns * kVec;
    affine.scale = load_pack<kVec>(p.gain + channel);
    affine.bias = load_pack<kVec>(p.bias + channel);
  };
  const int own = block.thread();
  for (int t = own; t < used; t += block.threads()) {
    const auto from = group_norms::source(p, image, slab_begin + t % columns * kVec);
    const int row = t / columns, count = count_of(row);
    const T* x = from.data + (first + row) * from.stride;
    for (int k = 0; k < count; ++k, x += rows * from.stride)
      Arch::copy_async(&kept[k * kThreads + t], x, true);
  }
  Arch::commit_copies();
  Arch::template wait_copies<0>();

  // A thread reads what it copied itself: no barrier.
  for (int t = own; t < used; t += block.threads()) {
    const int count = count_of(t / columns), split = split_of(t % columns);
    float steps[kVec] = {}, mean[kVec], squares[kVec] = {};
    for (int k = 0; k < count; ++k) {
      const Pack<T, kVec> pack = kept[k * kThreads + t];
      ROCM_SD_UNROLL
      for (int j = 0; j < kVec; ++j) steps[j] += to_float(pack.x[j]);
    }
    float sums[2] = {};
    ROCM_SD_UNROLL
    for (int j = 0; j < kVec; ++j) (j < split ? sums[0] : sums[1]) += steps[j];
    const float means[2] = {sums[0] / static_cast<float>(count * split),
                            sums[1] / static_cast<float>(count * (kVec - split))};
    ROCM_SD_UNROLL
    for (int j = 0; j < kVec; ++j) mean[j] = j < split ? means[0] : means[1];
    for (int k = 0; k < count; ++k) {
      const Pack<T, kVec> pack = kept[k * kThreads + t];
      ROCM_SD_UNROLL
      for (int j = 0; j < kVec; ++j) {
        const float d = to_float(pack.x[j]) - mean[j];
        squares[j] += d * d;
      }
    }
    float all[2] = {};
    ROCM_SD_UNROLL
    for (int j = 0; j < kVec; ++j) (j < split ? all[0] : all[1]) += squares[j];
    ROCM_SD_UNROLL
    for (int half = 0; half < 2; ++half) lds.moments[half][t] = {{means[half], all[half]}};
  }
  if (own < used) load_affine(own);
  block.barrier();

  // The threads' moments, group by group; several waves share a group where there are enough.
  const int measured = rows < pixels ? rows : pixels;  // rows that have pixels
  const int sharing = groups < block.waves ? block.waves / groups : 1;
  for (int unit = block.wave(); unit < groups * sharing; unit += block.waves) {
    const int g = unit / sharing, share = unit % sharing;
    const int column = g * width / kVec, last = ((g + 1) * width - 1) / kVec, wide = last - column + 1;
    const auto half_of = [&](int c) { return c * kVec < g * width ? 1 : 0; };
    const float base = lds.moments[half_of(column)][column].x[0];
    group_norms::Merge merge{};
    for (int i = share * Arch::lanes + block.lane(); i < measured * wide; i += sharing * Arch::lanes) {
      const int row = i / wide, c = column + i % wide, half = half_of(c), split = split_of(c);
      const auto moments = lds.moments[half][row * columns + c];
      merge.add(static_cast<float>(count_of(row) * (half ? kVec - split : split)), moments.x[0] - base,
                moments.x[1]);
    }
    merge.count = Arch::wave_sum(merge.count);
    merge.steps = Arch::wave_sum(merge.steps);
    merge.squares = Arch::wave_sum(merge.squares);
    if (block.lane() == 0) lds.shares[unit] = merge;
  }
  block.barrier();
  for (int g = own; g < groups; g += block.threads()) {
    group_norms::Merge merge = lds.shares[g * sharing];
    for (int share = 1; share < sharing; ++share) merge.add(lds.shares[g * sharing + share]);
    const float base = lds.moments[g * width % kVec ? 1 : 0][g * width / kVec].x[0];
    lds.own[g] = pixels ? Pack<float, 2>{{merge.mean(base), merge.central()}} : Pack<float, 2>{};
  }
  Arch::cluster_barrier();
  for (int g = own; g < groups; g += block.threads()) {
    Pack<float, 2> moments[group_norms::kMaxCluster];
    ROCM_SD_UNROLL
    for (int i = 0; i < group_norms::kMaxCluster; ++i)
      if (i < p.pieces) moments[i] = Arch::read_cluster(&lds.own[g], i);
    group_norms::Merge merge{};
    ROCM_SD_UNROLL
    for (int i = 0; i < group_norms::kMaxCluster; ++i)
      if (i < p.pieces) {
        const int rest = p.pixels - i * p.piece, some = rest < p.piece ? rest : p.piece;
        merge.add(static_cast<float>(some > 0 ? some : 0) * static_cast<float>(width),
                  moments[i].x[0] - moments[0].x[0], moments[i].x[1]);
      }
    lds.mean[g] = merge.mean(moments[0].x[0]);
    lds.scale[g] = 1.0f / Arch::sqrt(merge.central() / merge.count + p.eps);
  }
  Arch::cluster_arrive();  // has read the others' LDS
  block.barrier();

  for (int t = own; t < used; t += block.threads()) {
    if (t != own) load_affine(t);
    const int c = t % columns, g = c * kVec / width, split = split_of(c), count = count_of(t / columns);
    ROCM_SD_UNROLL
    for (int j = 0; j < kVec; ++j) {
      const int of = j < split ? g : g + 1;
      affine.mean[j] = lds.mean[of];
      affine.scale.x[j] *= lds.scale[of];
    }
    T* y = p.y + (static_cast<int64_t>(image) * p.pixels + first + t / columns) * p.channels + slab_begin +
           c * kVec;
    for (int k = 0; k < count; ++k, y += static_cast<int64_t>(rows) * p.channels)
      store_pack(y, group_norms::normalise<Arch, kVec>(kept[k * kThreads + t], affine, p.silu != 0));
  }
  Arch::cluster_wait();  // the others have read this one's LDS
}

}  // namespace rocm_sd
