// The ops of token merging (Bolya and Hoffman, "Token Merging for Fast Stable Diffusion", 2023): which pixels
// of a map are destinations, and the bodies that compare, choose, merge and take apart again.
// Problem   unit rows, the greatest of each row, the places of all tokens, means of groups of rows, rows by
//           their groups: each body says its own
// Mapping   a wave takes a row, the grid's waves in turn; lanes own its channels or the numbers they count
// Traffic   each row once; of the places, all for every merged row, and of the matches, all for every
//           source, from cache
// Numerics  float, rounded once; sums in the order of the tokens, whatever the grid is
// Limits    fewer than 2^24 tokens of an image: their numbers are stored as floats
#pragma once

#include "composable_kernels/block.hpp"
#include "composable_kernels/fused/token_grid.hpp"
#include "composable_kernels/tile/unrolled.hpp"

namespace rocm_sd {

inline constexpr int kTokenMergeWaves = 4;  // of a workgroup: rows at a time

// y[b, sorted(t)] = x[b, t] / |x[b, t]|, zeros where x is zero.
template <class X, class Y>
struct UnitTokensParams {
  const X* x;  // [images, grid.tokens(), channels]
  Y* y;        // as x
  int64_t images, channels;
  TokenGrid grid;
  uint32_t workgroups;  // of the launch
};

template <class Arch, class X, class Y>
ROCM_SD_DEVICE void unit_tokens_body(const UnitTokensParams<X, Y>& p, const Block<Arch>& block) {
  const int64_t tokens = p.grid.tokens();
  for (int64_t row = block.first_row(); row < p.images * tokens; row += block.row_stride()) {
    const X* x = p.x + row * p.channels;
    Y* y = p.y + (row / tokens * tokens + p.grid.sorted(row % tokens)) * p.channels;
    const float squares = wave_sum_over(block, p.channels, [&](int64_t c) {
      const float v = to_float(x[c]);
      return v * v;
    });
    const float share = squares > 0 ? 1.0f / Arch::sqrt(squares) : 0.0f;
    for (int64_t c = block.lane(); c < p.channels; c += Arch::lanes) store(y[c], to_float(x[c]) * share);
  }
}

// y[r] = (the greatest of x[r], its column): the first of equals, (-inf, 0) in a row of NaNs.
template <class T>
struct RowArgmaxParams {
  const T* x;  // [rows, cols]
  float* y;    // [rows, 2]
  int64_t rows, cols;
  uint32_t workgroups;
};

template <class Arch, class T>
ROCM_SD_DEVICE void row_argmax_body(const RowArgmaxParams<T>& p, const Block<Arch>& block) {
  for (int64_t row = block.first_row(); row < p.rows; row += block.row_stride()) {
    const T* x = p.x + row * p.cols;
    float most = -__builtin_inff(), at = 0;
    for (int64_t c = block.lane(); c < p.cols; c += Arch::lanes) {
      const float v = to_float(x[c]);
      at = v > most ? static_cast<float>(c) : at;
      most = v > most ? v : most;
    }
    const float highest = Arch::wave_max(most);
    const float first = -Arch::wave_max(most == highest && highest > -__builtin_inff() ? -at : -0x1p30f);
    if (block.lane() != 0) continue;
    p.y[row * 2] = highest;
    p.y[row * 2 + 1] = first < 0x1p30f ? first : 0.0f;
  }
}

// Where each token goes: destinations in their order, behind them the sources that stay, from the most
// similar of them on. The `merged` most similar sources go where their destination does; of equals the first.
struct TokenPlacesParams {
  const float* matches;  // [images, grid.sources(), 2]: similarity, number of the destination
  float* y;              // [images, grid.tokens()]
  int64_t images, merged;
  TokenGrid grid;
  uint32_t workgroups;
};

template <class Arch>
ROCM_SD_DEVICE void token_places_body(const TokenPlacesParams& p, const Block<Arch>& block) {
  const int64_t tokens = p.grid.tokens(), sources = p.grid.sources(), kept = p.grid.destinations();
  for (int64_t row = block.first_row(); row < p.images * tokens; row += block.row_stride()) {
    const int64_t token = row % tokens, before = p.grid.destinations_before(token);
    float place = static_cast<float>(before);
    if (!p.grid.is_destination(token)) {
      const int64_t own = token - before;
      const float* matches = p.matches + row / tokens * sources * 2;
      const float similarity = matches[own * 2];
      const float rank = wave_sum_over(block, sources, [&](int64_t s) {
        const float other = matches[s * 2];
        return other > similarity || (other == similarity && s < own) ? 1.0f : 0.0f;
      });
      const auto ahead = static_cast<int64_t>(rank);
      place = ahead < p.merged ? matches[own * 2 + 1] : static_cast<float>(kept + ahead - p.merged);
    }
    if (block.lane() == 0) p.y[row] = static_cast<float>(static_cast<int64_t>(place));
  }
}

// y[b, g] = the mean of x[b, t] over the tokens t whose place is g; zeros where there are none.
template <class T>
struct MergeTokensParams {
  const T* x;           // [images, tokens, channels]
  const float* places;  // [images, tokens]
  T* y;                 // [images, groups, channels]
  int64_t images, tokens, groups, channels;
  uint32_t workgroups;
};

template <class Arch, class T>
ROCM_SD_DEVICE void merge_tokens_body(const MergeTokensParams<T>& p, const Block<Arch>& block) {
  constexpr int kChannels = Arch::lanes == 1 ? 320 : 10;  // of a lane; what is wider takes further passes
  for (int64_t row = block.first_row(); row < p.images * p.groups; row += block.row_stride()) {
    const int64_t image = row / p.groups, group = row % p.groups;
    const float* places = p.places + image * p.tokens;
    for (int64_t first = 0; first < p.channels; first += kChannels * Arch::lanes) {
      float sums[kChannels] = {};
      int count = 0;
      for (int64_t begin = 0; begin < p.tokens; begin += Arch::lanes) {
        const int64_t own = begin + block.lane();
        if (!Arch::any(own < p.tokens && static_cast<int64_t>(places[own]) == group)) continue;
        for (int64_t t = begin; t < begin + Arch::lanes && t < p.tokens; ++t) {
          if (static_cast<int64_t>(places[t]) != group) continue;
          ++count;
          const T* x = p.x + (image * p.tokens + t) * p.channels + first;
          unrolled<kChannels>([&](int i) {
            const int64_t c = block.lane() + i * Arch::lanes;
            if (first + c < p.channels) sums[i] += to_float(x[c]);
          });
        }
      }
      const float share = count > 0 ? 1.0f / static_cast<float>(count) : 0.0f;
      T* y = p.y + row * p.channels + first;
      unrolled<kChannels>([&](int i) {
        const int64_t c = block.lane() + i * Arch::lanes;
        if (first + c < p.channels) store(y[c], sums[i] * share);
      });
    }
  }
}

// y[b, t] = residual[b, t] + x[b, place of t].
template <class T, class R>
struct UnmergeTokensParams {
  const T* x;           // [images, groups, channels]
  const float* places;  // [images, tokens]
  const R* residual;    // [images, tokens, channels]
  R* y;                 // as residual
  int64_t images, tokens, groups, channels;
  uint32_t workgroups;
};

template <class Arch, class T, class R>
ROCM_SD_DEVICE void unmerge_tokens_body(const UnmergeTokensParams<T, R>& p, const Block<Arch>& block) {
  for (int64_t row = block.first_row(); row < p.images * p.tokens; row += block.row_stride()) {
    const auto group = static_cast<int64_t>(p.places[row]);
    const T* x = p.x + (row / p.tokens * p.groups + group) * p.channels;
    const R* residual = p.residual + row * p.channels;
    R* y = p.y + row * p.channels;
    for (int64_t c = block.lane(); c < p.channels; c += Arch::lanes)
      store(y[c], to_float(residual[c]) + to_float(x[c]));
  }
}

}  // namespace rocm_sd
