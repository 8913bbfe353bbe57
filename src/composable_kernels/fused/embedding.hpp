// Embeddings of tokens with positions, and of timesteps.
// Problem   y[r] = table[id[r]] + positions[r % tokens];  y[b] = [cos, sin](t[b] * frequency[i]), or sines
// first Mapping   one wave per row; a lane owns every lanes-th column Traffic   each operand once Numerics
// float      Limits  ids outside the table read row 0
#pragma once

#include "composable_kernels/block.hpp"

namespace rocm_sd {

template <class Table, class Positions, class Y>
struct EmbedTokensParams {
  const int32_t* ids;          // [rows]
  const Table* table;          // [vocabulary, width]
  const Positions* positions;  // [tokens, width]
  Y* y;                        // [rows, width]
  int64_t rows, tokens, width, vocabulary;
};

// Cfg: Table, Positions and Y, the storage types.
template <class Arch, class Cfg>
ROCM_SD_DEVICE void embed_tokens_body(
    const EmbedTokensParams<typename Cfg::Table, typename Cfg::Positions, typename Cfg::Y>& p,
    const Block<Arch>& block) {
  for (int64_t row = block.first_row(); row < p.rows; row += block.row_stride()) {
    const int64_t id = p.ids[row] >= 0 && p.ids[row] < p.vocabulary ? p.ids[row] : 0;
    for (int64_t c = block.lane(); c < p.width; c += Arch::lanes)
      store(p.y[row * p.width + c],
            to_float(p.table[id * p.width + c]) + to_float(p.positions[row % p.tokens * p.width + c]));
  }
}

template <class Y>
struct TimestepEmbeddingParams {
  const float* t;  // [count]
  Y* y;            // [count, dim]
  int64_t count, dim;
  bool flip_sin_to_cos;
  float downscale_freq_shift, max_period;
};

// Cfg: Y, the storage type.
template <class Arch, class Cfg>
ROCM_SD_DEVICE void timestep_embedding_body(const TimestepEmbeddingParams<typename Cfg::Y>& p,
                                            const Block<Arch>& block) {
  const int64_t half = p.dim / 2;
  const float decay = -Arch::log(p.max_period);
  const int64_t sines = p.flip_sin_to_cos ? half : 0, cosines = half - sines;
  for (int64_t row = block.first_row(); row < p.count; row += block.row_stride()) {
    for (int64_t i = block.lane(); i < half; i += Arch::lanes) {
      const float exponent =
          decay * static_cast<float>(i) / (static_cast<float>(half) - p.downscale_freq_shift);
      const float angle = p.t[row] * Arch::exp(exponent);
      store(p.y[row * p.dim + sines + i], Arch::sin(angle));
      store(p.y[row * p.dim + cosines + i], Arch::cos(angle));
    }
    for (int64_t i = 2 * half + block.lane(); i < p.dim; i += Arch::lanes) store(p.y[row * p.dim + i], 0.0f);
  }
}

}  // namespace rocm_sd
