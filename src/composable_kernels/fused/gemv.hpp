// A linear layer of a few rows: what the embeddings of time have, and any depth or alignment.
// Problem   as fused/gemm.hpp
// Mapping   a workgroup per 8 channels (grid x) and per kPassRows rows (grid y); its lanes share the depth, a
//           chunk of 16 bytes at a time
// Traffic   w once per pass of rows, x from cache; LDS for the sums of the waves
// Numerics  a lane sums its chunks k ascending, then lanes, then waves in order; float
// Limits    none
#pragma once

#include "composable_kernels/fused/gemm.hpp"

namespace rocm_sd {

// Storage: Half, Bf16 or float. kWavesOf: waves of a workgroup.
template <class Storage, int kWavesOf>
struct GemvCfg {
  using T = Storage;
  static constexpr int kWaves = kWavesOf, kPassRows = 4, kChannels = 8;
  static constexpr int kChunk = 16 / static_cast<int>(sizeof(T));
  static constexpr int kLdsBytes = kWaves * kPassRows * kChannels * static_cast<int>(sizeof(float));
};

// sums[row][channel] over this lane's share of the depth.
template <class Arch, class Cfg>
ROCM_SD_DEVICE void gemv_lane_sums(const GemmParams<typename Cfg::T>& p, const typename Cfg::T* const (&x)[4],
                                   const typename Cfg::T* const (&w)[8], bool wide, float (&sums)[4][8]) {
  using T = typename Cfg::T;
  constexpr int kLanes = Cfg::kWaves * Arch::lanes;
  if (wide) {
    struct alignas(16) Piece {
      T x[Cfg::kChunk];
    };
    for (int k = Arch::thread() * Cfg::kChunk; k < p.depth; k += kLanes * Cfg::kChunk) {
      Piece weights[Cfg::kChannels], row;
      ROCM_SD_UNROLL
      for (int c = 0; c < Cfg::kChannels; ++c) weights[c] = *reinterpret_cast<const Piece*>(w[c] + k);
      ROCM_SD_UNROLL
      for (int r = 0; r < Cfg::kPassRows; ++r) {
        row = *reinterpret_cast<const Piece*>(x[r] + k);
        Arch::fence_schedule();  // rows one by one: widened all at once they are too many registers
        ROCM_SD_UNROLL
        for (int c = 0; c < Cfg::kChannels; ++c) ROCM_SD_UNROLL
        for (int i = 0; i < Cfg::kChunk; ++i) sums[r][c] += to_float(row.x[i]) * to_float(weights[c].x[i]);
      }
    }
  } else {
    for (int k = Arch::thread(); k < p.depth; k += kLanes) ROCM_SD_UNROLL
    for (int r = 0; r < Cfg::kPassRows; ++r) ROCM_SD_UNROLL
    for (int c = 0; c < Cfg::kChannels; ++c) sums[r][c] += to_float(x[r][k]) * to_float(w[c][k]);
  }
}

// The products of rows first_row .. + 3 and w's rows first .. + 7 (those beyond `limit` repeat the last):
// thread r (Scalar: its one thread in turn) gets row r's.
template <class Arch, class Cfg, class Take>
ROCM_SD_DEVICE void gemv_products(const GemmParams<typename Cfg::T>& p, int first_row, int first, int limit,
                                  char* lds, const Take& take) {
  using T = typename Cfg::T;
  const T *x[4], *w[8];
  ROCM_SD_UNROLL
  for (int r = 0; r < Cfg::kPassRows; ++r) {
    const int row = first_row + r < p.epilogue.rows ? first_row + r : p.epilogue.rows - 1;
    x[r] = p.x + row * p.x_stride;
  }
  ROCM_SD_UNROLL
  for (int c = 0; c < Cfg::kChannels; ++c)
    w[c] = p.w + (first + c < limit ? first + c : limit - 1) * p.w_stride;
  const bool wide = p.depth % Cfg::kChunk == 0 && p.x_stride % Cfg::kChunk == 0 &&
                    p.w_stride % Cfg::kChunk == 0 && p.aligned;
  float sums[4][8] = {};
  gemv_lane_sums<Arch, Cfg>(p, x, w, wide, sums);
  auto* const shared = reinterpret_cast<float*>(lds);  // [waves][4][8]
  Arch::barrier();
  const int wave = Arch::uniform(Arch::thread() / Arch::lanes);
  ROCM_SD_UNROLL
  for (int r = 0; r < Cfg::kPassRows; ++r) ROCM_SD_UNROLL
  for (int c = 0; c < Cfg::kChannels; ++c) {
    const float sum = Arch::wave_sum(sums[r][c]);
    if (Arch::lane() == 0) shared[(wave * Cfg::kPassRows + r) * Cfg::kChannels + c] = sum;
  }
  Arch::barrier();
  for (int r = Arch::thread(); r < Cfg::kPassRows; r += Cfg::kWaves * Arch::lanes) {
    float v[8] = {};
    for (int s = 0; s < Cfg::kWaves; ++s) ROCM_SD_UNROLL
    for (int c = 0; c < Cfg::kChannels; ++c) v[c] += shared[(s * Cfg::kPassRows + r) * Cfg::kChannels + c];
    take(r, v);
  }
}

// piece: of 8 channels; pass: of kPassRows rows. lds: Cfg::kLdsBytes.
template <class Arch, class Cfg>
ROCM_SD_DEVICE void gemv_body(const GemmParams<typename Cfg::T>& p, int piece, int pass, char* lds) {
  const int channel = piece * Cfg::kChannels, first_row = pass * Cfg::kPassRows;
  gemv_products<Arch, Cfg>(p, first_row, channel, p.epilogue.channels, lds, [&](int r, float(&v)[8]) {
    finish_epilogue<Arch>(p.epilogue, first_row + r, channel, v);
  });
}

// The gated form: the thread that finishes a row keeps its values while the gates are computed.
template <class Arch, class Cfg>
ROCM_SD_DEVICE void gemv_gated_body(const GemmParams<typename Cfg::T>& p, int piece, int pass, char* lds) {
  const int channel = piece * Cfg::kChannels, first_row = pass * Cfg::kPassRows,
            outputs = p.epilogue.channels;
  constexpr int kKept = Cfg::kWaves * Arch::lanes >= Cfg::kPassRows ? 1 : Cfg::kPassRows;
  float values[kKept][8];
  gemv_products<Arch, Cfg>(p, first_row, channel, outputs, lds, [&](int r, float(&v)[8]) {
    ROCM_SD_UNROLL
    for (int c = 0; c < Cfg::kChannels; ++c) values[r % kKept][c] = v[c];
  });
  gemv_products<Arch, Cfg>(p, first_row, outputs + channel, 2 * outputs, lds, [&](int r, float(&gate)[8]) {
    finish_gated<Arch>(p.epilogue, first_row + r, channel, values[r % kKept], gate);
  });
}

}  // namespace rocm_sd
