// Attention with an online softmax for any head_dim and type: the plain form behind the flash kernels.
// Problem   y = softmax(scale q k^T + mask) v for each query of each head
// Mapping   one wave per query, and one wave to a workgroup; per tile of keys a lane owns every lanes-th
//           score, then every lanes-th channel
// Traffic   k and v once per query, from cache; the weights of one tile in LDS
// Numerics  float; running maximum and sum (Milakov and Gimelshein, 2018)
// Limits    head_dim <= Cfg::kMaxDim
#pragma once

#include "composable_kernels/block.hpp"
#include "composable_kernels/tile/unrolled.hpp"

namespace rocm_sd {

template <class T>
struct AttentionParams {
  struct Rows {
    const T* data;
    int64_t image, row;  // strides
  };
  Rows q, k, v;
  T* y;               // [batch, queries, heads * head_dim]
  const float* mask;  // or null
  int64_t mask_strides[4];
  int64_t batch, heads, queries, keys, head_dim;
  float scale;
  bool causal;
  uint32_t workgroups;  // of the grid
};

// Cfg: T, the storage type; kTileKeys; kMaxDim. weights: LDS for kTileKeys floats.
template <class Arch, class Cfg>
ROCM_SD_DEVICE void attention_body(const AttentionParams<typename Cfg::T>& p, const Block<Arch>& block,
                                   float* weights) {
  constexpr int kPerLane = (Cfg::kMaxDim + Arch::lanes - 1) / Arch::lanes;
  constexpr float kHidden = -__builtin_inff();
  for (int64_t row = block.first_row(); row < p.batch * p.heads * p.queries; row += block.row_stride()) {
    const int64_t i = row % p.queries, h = row / p.queries % p.heads, b = row / p.queries / p.heads;
    const auto* q = p.q.data + b * p.q.image + i * p.q.row + h * p.head_dim;
    const auto* k = p.k.data + b * p.k.image + h * p.head_dim;
    const auto* v = p.v.data + b * p.v.image + h * p.head_dim;
    const float* mask =
        p.mask ? p.mask + b * p.mask_strides[0] + h * p.mask_strides[1] + i * p.mask_strides[2] : nullptr;
    float highest = kHidden, total = 0, sums[kPerLane] = {};
    const int64_t keys = p.causal && i + 1 < p.keys ? i + 1 : p.keys;
    for (int64_t first = 0; first < keys; first += Cfg::kTileKeys) {
      const int64_t tile = keys - first < Cfg::kTileKeys ? keys - first : Cfg::kTileKeys;
      float most = kHidden;
      for (int64_t j = block.lane(); j < tile; j += Arch::lanes) {
        float score = 0;
        for (int64_t d = 0; d < p.head_dim; ++d)
          score += to_float(q[d]) * to_float(k[(first + j) * p.k.row + d]);
        score *= p.scale;
        if (mask) score += mask[(first + j) * p.mask_strides[3]];
        weights[j] = score;
        most = score > most ? score : most;
      }
      const float old = highest;
      most = Arch::wave_max(most);
      highest = most > highest ? most : highest;
      const float base = highest == kHidden ? 0.0f : highest, shrink = Arch::exp(old - base);
      float sum = 0;
      for (int64_t j = block.lane(); j < tile; j += Arch::lanes)
        sum += weights[j] = Arch::exp(weights[j] - base);
      total = total * shrink + Arch::wave_sum(sum);
      block.barrier();
      unrolled<kPerLane>([&](int at) {
        const int64_t d = block.lane() + at * Arch::lanes;
        if (d >= p.head_dim) return;
        float channel = sums[at] * shrink;
        for (int64_t j = 0; j < tile; ++j) channel += weights[j] * to_float(v[(first + j) * p.v.row + d]);
        sums[at] = channel;
      });
      block.barrier();
    }
    const float share = highest == kHidden && total == 0 ? 0.0f : 1.0f / total;
    unrolled<kPerLane>([&](int at) {
      const int64_t d = block.lane() + at * Arch::lanes;
      if (d < p.head_dim) store(p.y[((b * p.queries + i) * p.heads + h) * p.head_dim + d], sums[at] * share);
    });
  }
}

}  // namespace rocm_sd
