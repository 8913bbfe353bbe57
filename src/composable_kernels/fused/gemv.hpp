// A linear layer of a few rows: what the embeddings of time have, and any depth or alignment.
// Problem   as fused/gemm.hpp
// Mapping   a workgroup per 8 channels (grid x) and per kPassRows rows (grid y); its lanes share the depth, a
//           chunk of 16 bytes at a time
// Traffic   w once per pass of rows, x from cache; LDS for the sums of the waves
// Numerics  a lane sums its chunks k ascending, then lanes, then waves in order; float
// Limits    none
#pragma once

#include "composable_kernels/fused/gemm.hpp"
#include "composable_kernels/tile/dot_sums.hpp"

namespace rocm_sd {

// Storage: Half, Bf16 or float. kWavesOf: waves of a workgroup.
template <class Storage, int kWavesOf>
struct GemvCfg {
  using T = Storage;
  static constexpr int kWaves = kWavesOf, kPassRows = 4, kChannels = 8;
  static constexpr int kChunk = 16 / static_cast<int>(sizeof(T));
  static constexpr int kLdsBytes = kWaves * kPassRows * kChannels * static_cast<int>(sizeof(float));
};

// The products of rows first_row .. + 3 and w's rows first .. + 7 (those beyond `limit` repeat the last):
// thread r (Scalar: its one thread in turn) gets row r's.
template <class Arch, class Cfg, class Take>
ROCM_SD_DEVICE void gemv_products(const GemmParams<typename Cfg::T>& p, int first_row, int first, int limit,
                                  char* lds, const Take& take) {
  using T = typename Cfg::T;
  using Sums = DotSums<Cfg::kPassRows, Cfg::kChannels>;
  constexpr int kLanes = Cfg::kWaves * Arch::lanes;
  const RowPointers<T, Cfg::kPassRows> x(p.x, p.x_stride, first_row, p.epilogue.rows);
  const RowPointers<T, Cfg::kChannels> w(p.w, p.w_stride, first, limit);
  const bool wide = p.depth % Cfg::kChunk == 0 && p.x_stride % Cfg::kChunk == 0 &&
                    p.w_stride % Cfg::kChunk == 0 && p.aligned;
  Sums sums = {};
  if (wide) {
    for (int k = Arch::thread() * Cfg::kChunk; k < p.depth; k += kLanes * Cfg::kChunk)
      add_dots<Arch, Cfg::kChunk>(sums, x, w, k);
  } else {
    for (int k = Arch::thread(); k < p.depth; k += kLanes) add_dots<Arch, 1>(sums, x, w, k);
  }
  Arch::barrier();
  auto* const shared = reinterpret_cast<Sums*>(lds);  // of each wave
  sum_lanes<Arch>(shared[Arch::uniform(Arch::thread() / Arch::lanes)], sums);
  Arch::barrier();
  for (int r = Arch::thread(); r < Cfg::kPassRows; r += kLanes) {
    Channels v = {};
    for (int s = 0; s < Cfg::kWaves; ++s) add(v, shared[s].x[r]);
    take(r, v);
  }
}

// piece: of 8 channels; pass: of kPassRows rows. lds: Cfg::kLdsBytes.
template <class Arch, class Cfg>
ROCM_SD_DEVICE void gemv_body(const GemmParams<typename Cfg::T>& p, int piece, int pass, char* lds) {
  const int channel = piece * Cfg::kChannels, first_row = pass * Cfg::kPassRows;
  gemv_products<Arch, Cfg>(p, first_row, channel, p.epilogue.channels, lds, [&](int r, Channels& v) {
    finish_epilogue<Arch>(p.epilogue, first_row + r, channel, v);
  });
}

// The gated form: the thread that finishes a row keeps its values while the gates are computed.
template <class Arch, class Cfg>
ROCM_SD_DEVICE void gemv_gated_body(const GemmParams<typename Cfg::T>& p, int piece, int pass, char* lds) {
  const int channel = piece * Cfg::kChannels, first_row = pass * Cfg::kPassRows,
            outputs = p.epilogue.channels;
  constexpr int kKept = Cfg::kWaves * Arch::lanes >= Cfg::kPassRows ? 1 : Cfg::kPassRows;
  Channels values[kKept];
  gemv_products<Arch, Cfg>(p, first_row, channel, outputs, lds,
                           [&](int r, const Channels& v) { copy(values[r % kKept], v); });
  gemv_products<Arch, Cfg>(p, first_row, outputs + channel, 2 * outputs, lds, [&](int r, Channels& gate) {
    finish_gated<Arch>(p.epilogue, first_row + r, channel, values[r % kKept], gate);
  });
}

}  // namespace rocm_sd
