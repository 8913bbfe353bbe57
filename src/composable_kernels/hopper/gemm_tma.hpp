// GEMM on Hopper with tiles fetched by TMA.
// Problem   as fused/gemm.hpp, without partial sums in memory
// Mapping   hopper/tma_body.hpp
// Traffic   hopper/tma_body.hpp
// Numerics  as fused/gemm.hpp
// Limits    16-bit types, one matrix; channels (gated: of the output) in whole blocks of 32
#pragma once

#include "composable_kernels/hopper/tma_body.hpp"

namespace rocm_sd {

template <class Cfg, bool kIsGated>
struct TmaGemm {
  using T = typename Cfg::T;
  static constexpr bool kGated = kIsGated;
  const TmaGemmParams<T>& p;

  ROCM_SD_DEVICE int rows() const { return p.gemm.epilogue.rows; }
  ROCM_SD_DEVICE int columns() const { return (kGated ? 2 : 1) * p.gemm.epilogue.channels; }
  ROCM_SD_DEVICE int product_steps() const { return (p.gemm.depth + Cfg::kBlockK - 1) / Cfg::kBlockK; }
  ROCM_SD_DEVICE int steps() const {
    return product_steps() + (p.gemm.term.rank + Cfg::kBlockK - 1) / Cfg::kBlockK;
  }
  ROCM_SD_DEVICE int layers() const { return 1; }
  ROCM_SD_DEVICE const TensorMap& weights() const { return p.w; }
  // The steps from product_steps() on are the term's: of other operands.
  ROCM_SD_DEVICE const TensorMap& term_weights() const { return p.up; }
  ROCM_SD_DEVICE void prefetch_maps() const {
    Tma::prefetch(p.w);
    Tma::prefetch(p.x);
    if (p.gemm.term.rank == 0) return;
    Tma::prefetch(p.up);
    Tma::prefetch(p.d);
  }
  ROCM_SD_DEVICE int weight_row(int, int column) const { return column; }
  struct Rows {
    const TmaGemmParams<T>& p;
    int row, step, product_steps;
    ROCM_SD_DEVICE void fetch(char* to, TmaBarrier full) {
      const bool of_term = step >= product_steps;
      Tma::fetch(to, of_term ? p.d : p.x, full, (of_term ? step - product_steps : step) * Cfg::kBlockK, row);
      ++step;
    }
  };
  ROCM_SD_DEVICE Rows rows_of(int, int first_row, int step) const {
    return {p, first_row, step, product_steps()};
  }
  ROCM_SD_DEVICE int row(int, int row) const { return row < rows() ? row : -1; }
  ROCM_SD_DEVICE bool pdl_wait_weights() const { return p.pdl_wait_weights; }
  ROCM_SD_DEVICE bool pdl_wait_late() const { return p.pdl_wait_late; }
  ROCM_SD_DEVICE const float* bias() const { return p.gemm.epilogue.bias; }
  ROCM_SD_DEVICE TmaOutput<Cfg, kGated> output(int row, int other_row, int first_channel) const {
    return {p.gemm.epilogue, {row, other_row}, first_channel};
  }
};

// workgroups: workgroups in the grid, whole clusters. lds: Cfg::kLdsBytes.
template <class Cfg, bool kGated>
ROCM_SD_DEVICE void gemm_tma_body(const TmaGemmParams<typename Cfg::T>& p, int group, int workgroups,
                                  char* lds) {
  tma_body<Cfg>(TmaGemm<Cfg, kGated>{p}, p.multicast_size, p.gemm.splits, p.gemm.split_steps, group,
                workgroups, lds);
}

}  // namespace rocm_sd
