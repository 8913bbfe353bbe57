// Embeddings of tokens with positions, and of timesteps.
// Problem   y[r] = table[id[r]] + positions[r % tokens];  y[b] = [cos, sin](t[b] * frequency[i]), or sines
//           first
// Mapping   tokens: one wave per row, a lane owns every lanes-th pack of columns; timesteps: a thread per
//           angle
// Traffic   each operand once
// Numerics  float; frequencies by a double exponential, for an angle of 999 leaves no digit to spare
// Limits    ids outside the table read row 0; packs where the width allows
#pragma once

#include "composable_kernels/block.hpp"
#include "composable_kernels/pack.hpp"
#include "composable_kernels/tile/unrolled.hpp"

namespace rocm_sd {

template <class Table, class Positions, class Y>
struct EmbedTokensParams {
  const int32_t* ids;          // [rows]
  const Table* table;          // [vocabulary, width]
  const Positions* positions;  // [tokens, width]
  Y* y;                        // [rows, width]
  int64_t rows, tokens, width, vocabulary;
  uint32_t workgroups;  // of the grid
};

// Cfg: Table, Positions and Y, the storage types.
template <class Arch, class Cfg>
ROCM_SD_DEVICE void embed_tokens_body(
    const EmbedTokensParams<typename Cfg::Table, typename Cfg::Positions, typename Cfg::Y>& p,
    const Block<Arch>& block) {
  constexpr int kVec = 8;
  for (int64_t row = block.first_row(); row < p.rows; row += block.row_stride()) {
    const int64_t id = p.ids[row] >= 0 && p.ids[row] < p.vocabulary ? p.ids[row] : 0;
    const auto* table = p.table + id * p.width;
    const auto* position = p.positions + static_cast<int32_t>(row) % static_cast<int32_t>(p.tokens) * p.width;
    auto* y = p.y + row * p.width;
    if (p.width % kVec == 0) {
      for (int64_t c = block.lane() * kVec; c < p.width; c += Arch::lanes * kVec) {
        const auto a = load_pack<kVec>(table + c);
        const auto b = load_pack<kVec>(position + c);
        Pack<typename Cfg::Y, kVec> sum;
        unrolled<kVec>([&](int j) { store(sum.x[j], to_float(a.x[j]) + to_float(b.x[j])); });
        store_pack(y + c, sum);
      }
    } else {
      for (int64_t c = block.lane(); c < p.width; c += Arch::lanes)
        store(y[c], to_float(table[c]) + to_float(position[c]));
    }
  }
}

template <class Y>
struct TimestepEmbeddingParams {
  const float* t;  // [count]
  Y* y;            // [count, dim]
  int32_t count, dim;
  int32_t flip_sin_to_cos;
  float downscale_freq_shift;
  float decay;          // -log(max_period)
  uint32_t workgroups;  // of the grid
};

// e^x for -700 < x < 700 to about 1e-15: 2^k times the Taylor series of the rest, which lies within log(2)
// / 2.
ROCM_SD_DEVICE double exp_double(double x) {
  const double turns = x * 1.4426950408889634;
  const auto k = static_cast<int64_t>(turns < 0 ? turns - 0.5 : turns + 0.5);
  const double rest =
      x - static_cast<double>(k) * 0.6931471803691238 - static_cast<double>(k) * 1.9082149292705877e-10;
  double sum = 1;
  for (int n = 13; n > 0; --n) sum = 1 + sum * rest / n;
  return sum * __builtin_bit_cast(double, static_cast<uint64_t>(k + 1023) << 52);
}

// Cfg: Y, the storage type.
template <class Arch, class Cfg>
ROCM_SD_DEVICE void timestep_embedding_body(const TimestepEmbeddingParams<typename Cfg::Y>& p,
                                            const Block<Arch>& block) {
  const int32_t half = p.dim / 2, columns = half + p.dim % 2;  // the last of an odd width is the zero
  const int32_t sines = p.flip_sin_to_cos ? half : 0, cosines = half - sines;
  for (int64_t item = block.first_item(); item < static_cast<int64_t>(p.count) * columns;
       item += block.item_stride()) {
    const auto row = static_cast<int32_t>(item) / columns, i = static_cast<int32_t>(item) % columns;
    auto* y = p.y + static_cast<int64_t>(row) * p.dim;
    if (i == half) {
      store(y[2 * half], 0.0f);
      continue;
    }
    const float exponent =
        p.decay * static_cast<float>(i) / (static_cast<float>(half) - p.downscale_freq_shift);
    const float angle = p.t[row] * static_cast<float>(exp_double(static_cast<double>(exponent)));
    store(y[sines + i], Arch::sin(angle));
    store(y[cosines + i], Arch::cos(angle));
  }
}

}  // namespace rocm_sd
