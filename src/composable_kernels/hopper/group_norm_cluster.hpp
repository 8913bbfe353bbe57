// Group norm with one cluster of workgroups per slab of whole groups of one image.
// Problem   GroupNormParams
// Mapping   each workgroup of the cluster takes a piece of the pixels; a thread owns one pack of channels of
//           every rows-th of them and keeps them in registers
// Traffic   x once, y once; a mean and a sum of squares per workgroup and group between the workgroups
// Numerics  each thread measures its packs in two passes in float; threads are summed relative to the mean of
//           the group's first thread, workgroups to that of the first workgroup, in an order that depends on
//           the plan alone
// Limits    slab and border between the inputs are multiples of the pack; a pack touches at most two groups;
//           kMaxClusterGroups groups, kMaxClusterChannels channels per slab; slab / kVec <= kThreads; a piece
//           has at most kPacks packs a thread
#pragma once

#include "composable_kernels/fused/group_norm.hpp"

namespace rocm_sd {
namespace group_norms {

constexpr int kMaxClusterGroups = 32;
constexpr int kMaxClusterChannels = 512;
constexpr int kMaxCluster = 8;

template <int kThreads>
struct ClusterLds {
  Pack<float, 2> sums[2][kThreads];       // what a thread's packs add to their first, to their second group
  Pack<float, 2> shares[kThreads];        // [group, wave of the group]
  Pack<float, 2> own[kMaxClusterGroups];  // mean, squares: of this workgroup
  float base[kMaxClusterGroups], mean[kMaxClusterGroups], scale[kMaxClusterGroups];
  alignas(16) float gain[kMaxClusterChannels], bias[kMaxClusterChannels];
};

// A workgroup's image, slab and piece.
struct ClusterPlace {
  int image, slab, piece;
};

// What one thread does: a column of packs of the slab, every rows-th pixel of the piece from `row` on.
struct ClusterThread {
  int row, column, group, split, count;  // the first `split` channels of its packs belong to `group`
};

}  // namespace group_norms

// Cfg: T; kVec, channels of a pack; kThreads; kPacks of a thread; kPasses = kThreads / threads of the
// workgroup: 1 on a GPU. p.pieces is the size of the cluster.
template <class Arch, class Cfg>
ROCM_SD_DEVICE void group_norm_cluster_body(const GroupNormParams<typename Cfg::T>& p,
                                            const Block<Arch>& block, const group_norms::ClusterPlace& place,
                                            group_norms::ClusterLds<Cfg::kThreads>& lds) {
  using T = typename Cfg::T;
  constexpr int kVec = Cfg::kVec, kThreads = Cfg::kThreads, kPacks = Cfg::kPacks, kPasses = Cfg::kPasses;
  const int width = p.channels / p.groups, groups = p.slab / width;
  const int columns = p.slab / kVec, rows = kThreads / columns;
  const int first = place.piece * p.piece < p.pixels ? place.piece * p.piece : p.pixels;
  const int pixels = p.pixels - first < p.piece ? p.pixels - first : p.piece;
  const int slab_begin = place.slab * p.slab;

  Pack<T, kVec> kept[kPasses][kPacks];
  group_norms::ClusterThread threads[kPasses];
  // Calls body(pass, thread) for every pass that has pixels.
  const auto for_passes = [&](const auto& body) {
    unrolled<kPasses>([&](int pass) {
      if (threads[pass].count > 0) body(pass, threads[pass]);
    });
  };

  unrolled<kPasses>([&](int pass) {
    const int t = block.thread() + pass * block.threads(), row = t / columns, column = t - row * columns;
    auto& thread = threads[pass];
    thread = {row, column, 0, 0, 0};
    if (row >= rows || row >= pixels) return;
    const int channel = slab_begin + column * kVec;
    const auto from = group_norms::source(p, place.image, channel);
    const T* x = from.data + (first + row) * from.stride;
    unrolled<kPacks>([&](int k) {
      if (row + k * rows < pixels) {
        kept[pass][k] = load_pack<kVec>(x + k * rows * from.stride);
        ++thread.count;
      }
    });
    thread.group = column * kVec / width;
    const int left = (thread.group + 1) * width - column * kVec;
    thread.split = left < kVec ? left : kVec;
  });

  for (int c = block.thread(); c < p.slab; c += block.threads()) {
    lds.gain[c] = p.gain[slab_begin + c];
    lds.bias[c] = p.bias[slab_begin + c];
  }

  // What a thread's packs have in their first and their second group.
  float means[kPasses][2], squares[kPasses][2];
  for_passes([&](int pass, const group_norms::ClusterThread& thread) {
    float sums[kVec] = {}, both[2] = {}, all[2] = {};
    unrolled<kPacks>([&](int k) {
      if (k < thread.count)
        for (int j = 0; j < kVec; ++j) sums[j] += to_float(kept[pass][k].x[j]);
    });
    unrolled<kVec>([&](int j) { (j < thread.split ? both[0] : both[1]) += sums[j]; });
    means[pass][0] = both[0] / static_cast<float>(thread.count * thread.split);
    means[pass][1] = 0;
    if (thread.split < kVec)
      means[pass][1] = both[1] / static_cast<float>(thread.count * (kVec - thread.split));
    float mean[kVec], of[kVec] = {};
    unrolled<kVec>([&](int j) { mean[j] = j < thread.split ? means[pass][0] : means[pass][1]; });
    unrolled<kPacks>([&](int k) {
      if (k < thread.count)
        for (int j = 0; j < kVec; ++j) {
          const float d = to_float(kept[pass][k].x[j]) - mean[j];
          of[j] += d * d;
        }
    });
    unrolled<kVec>([&](int j) { (j < thread.split ? all[0] : all[1]) += of[j]; });
    squares[pass][0] = all[0];
    squares[pass][1] = all[1];
    if (thread.row > 0) return;  // the first threads' means are what all sums are relative to
    if (thread.column * kVec == thread.group * width) lds.base[thread.group] = means[pass][0];
    if (thread.split < kVec) lds.base[thread.group + 1] = means[pass][1];
  });
  block.barrier();
  for_passes([&](int pass, const group_norms::ClusterThread& thread) {
    unrolled<2>([&](int half) {
      if (half == 1 && thread.split == kVec) return;
      const int channels = half ? kVec - thread.split : thread.split;
      const float step = means[pass][half] - lds.base[thread.group + half];
      const float sum = static_cast<float>(thread.count * channels) * step;
      lds.sums[half][thread.row * columns + thread.column] = {{sum, squares[pass][half] + sum * step}};
    });
  });
  block.barrier();

  // Summed group by group; several waves share a group where there are enough.
  const int measured = rows < pixels ? rows : pixels;  // rows that have pixels
  const int sharing = groups < block.waves ? block.waves / groups : 1;
  for (int unit = block.wave(); unit < groups * sharing; unit += block.waves) {
    const int g = unit / sharing, share = unit - g * sharing;
    const int column = g * width / kVec, last = ((g + 1) * width - 1) / kVec;
    Pack<float, 2> sum{};
    for (int row = share * Arch::lanes + block.lane(); row < measured; row += sharing * Arch::lanes)
      for (int c = column; c <= last; ++c) {
        const auto part = lds.sums[c * kVec < g * width ? 1 : 0][row * columns + c];
        sum.x[0] += part.x[0];
        sum.x[1] += part.x[1];
      }
    sum.x[0] = Arch::wave_sum(sum.x[0]);
    sum.x[1] = Arch::wave_sum(sum.x[1]);
    if (block.lane() == 0) lds.shares[unit] = sum;
  }
  block.barrier();
  // Mean, and the sum of the squares of what differs from it, of `count` values that sum up to these.
  const auto moments_of = [](const Pack<float, 2>& sum, float count, float base) {
    const float step = sum.x[0] / count, rest = sum.x[1] - sum.x[0] * step;
    return Pack<float, 2>{{base + step, rest < 0 ? 0.0f : rest}};
  };
  for (int g = block.thread(); g < groups; g += block.threads()) {
    Pack<float, 2> sum{};
    for (int share = 0; share < sharing; ++share) {
      const auto part = lds.shares[g * sharing + share];
      sum.x[0] += part.x[0];
      sum.x[1] += part.x[1];
    }
    lds.own[g] = Pack<float, 2>{};
    if (pixels > 0) lds.own[g] = moments_of(sum, static_cast<float>(pixels * width), lds.base[g]);
  }
  Arch::cluster_barrier();
  for (int g = block.thread(); g < groups; g += block.threads()) {
    Pack<float, 2> parts[group_norms::kMaxCluster], sum{};
    unrolled<group_norms::kMaxCluster>([&](int i) {
      if (i < p.pieces) parts[i] = Arch::read_cluster(&lds.own[g], i);
    });
    unrolled<group_norms::kMaxCluster>([&](int i) {
      if (i < p.pieces) {
        const int rest = p.pixels - i * p.piece, some = rest < p.piece ? rest : p.piece;
        const float count = static_cast<float>(some > 0 ? some : 0) * static_cast<float>(width);
        const float step = parts[i].x[0] - parts[0].x[0];
        sum.x[0] += count * step;
        sum.x[1] += parts[i].x[1] + count * step * step;
      }
    });
    const float count = static_cast<float>(p.pixels) * static_cast<float>(width);
    const auto moments = moments_of(sum, count, parts[0].x[0]);
    lds.mean[g] = moments.x[0];
    lds.scale[g] = 1.0f / Arch::sqrt(moments.x[1] / count + p.eps);
  }
  Arch::cluster_arrive();  // has read the others' LDS
  block.barrier();

  for_passes([&](int pass, const group_norms::ClusterThread& thread) {
    group_norms::Affine<T, kVec> affine;
    affine.load(lds.gain + thread.column * kVec, lds.bias + thread.column * kVec);
    unrolled<kVec>([&](int j) {
      const int g = j < thread.split ? thread.group : thread.group + 1;
      affine.set(j, lds.mean[g], lds.scale[g]);
    });
    const int64_t y = (static_cast<int64_t>(place.image) * p.pixels + first + thread.row) * p.channels +
                      slab_begin + thread.column * kVec;
    unrolled<kPacks>([&](int k) {
      if (k < thread.count)
        group_norms::write<Arch>(p, y + static_cast<int64_t>(k * rows) * p.channels, kept[pass][k], affine);
    });
  });
  Arch::cluster_wait();  // the others have read this one's LDS
}

}  // namespace rocm_sd
