// Group norm with one workgroup per group of one image.
// Problem   GroupNormParams
// Mapping   a thread owns one pack of channels of every rows-th pixel and keeps them in registers
// Traffic   x once, y once
// Numerics  two passes over the registers in float, the first relative to the group's first element; lanes
//           summed as a tree, waves in order
// Limits    the group's width and the border between the inputs are multiples of the pack; a group has at
//           most kThreads / columns * kPacks pixels
#pragma once

#include "composable_kernels/fused/group_norm.hpp"

namespace rocm_sd {

// Cfg: T; kVec, channels of a pack; kThreads; kPacks of a thread; kPasses = kThreads / threads of the
// workgroup: 1 on a GPU, where lds has one float per wave.
template <class Arch, class Cfg>
ROCM_SD_DEVICE void group_norm_whole_body(const GroupNormParams<typename Cfg::T>& p, const Block<Arch>& block,
                                          float* lds) {
  using T = typename Cfg::T;
  constexpr int kVec = Cfg::kVec, kPacks = Cfg::kPacks, kPasses = Cfg::kPasses;
  const int width = p.channels / p.groups, columns = width / kVec, rows = Cfg::kThreads / columns;
  const int image = static_cast<int>(block.group() / p.groups);
  const int begin = static_cast<int>(block.group() % p.groups) * width;
  const float share = 1.0f / (static_cast<float>(p.pixels) * static_cast<float>(width));
  const float base = to_float(*group_norms::source(p, image, begin).data);

  Pack<T, kVec> kept[kPasses][kPacks];
  // Calls body(pass, row, channel) for every pass of this thread that has pixels to do with.
  const auto for_passes = [&](const auto& body) {
    unrolled<kPasses>([&](int pass) {
      const int t = block.thread() + pass * block.threads(), row = t / columns;
      if (row < rows) body(pass, row, begin + t % columns * kVec);
    });
  };
  // Calls body(pack, pixel) for every pack of the pass.
  const auto for_packs = [&](int pass, int row, const auto& body) {
    unrolled<kPacks>([&](int k) {
      if (row + k * rows < p.pixels) body(kept[pass][k], row + k * rows);
    });
  };

  float sum = 0, squares = 0;
  for_passes([&](int pass, int row, int channel) {
    const auto from = group_norms::source(p, image, channel);
    for_packs(pass, row, [&](Pack<T, kVec>& pack, int pixel) {
      pack = load_pack<kVec>(from.data + pixel * from.stride);
    });
    for_packs(pass, row, [&](const Pack<T, kVec>& pack, int) {
      for (int j = 0; j < kVec; ++j) sum += to_float(pack.x[j]) - base;
    });
  });
  const float mean = base + group_sum(block, sum, lds) * share;
  for_passes([&](int pass, int row, int) {
    for_packs(pass, row, [&](const Pack<T, kVec>& pack, int) {
      for (int j = 0; j < kVec; ++j) {
        const float d = to_float(pack.x[j]) - mean;
        squares += d * d;
      }
    });
  });
  const float scale = 1.0f / Arch::sqrt(group_sum(block, squares, lds) * share + p.eps);

  const int64_t y = static_cast<int64_t>(image) * p.pixels * p.channels;
  for_passes([&](int pass, int row, int channel) {
    group_norms::Affine<T, kVec> affine;
    affine.load(p.gain + channel, p.bias + channel);
    for (int j = 0; j < kVec; ++j) affine.set(j, mean, scale);
    for_packs(pass, row, [&](const Pack<T, kVec>& pack, int pixel) {
      group_norms::write<Arch>(p, y + static_cast<int64_t>(pixel) * p.channels + channel, pack, affine);
    });
  });
}

}  // namespace rocm_sd
