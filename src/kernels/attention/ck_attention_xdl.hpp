// Composable Kernel's attention for CDNA's matrix units: included by ck_attention_entries.hpp only.
#pragma once

#include "kernels/attention/ck_attention_grids.hpp"

#include <ck/tensor_operation/gpu/block/blockwise_gemm_xdlops.hpp>

ROCM_SD_CK_BEGIN
#include <ck/tensor_operation/gpu/grid/gridwise_batched_gemm_softmax_gemm_xdl_cshuffle_v1.hpp>
ROCM_SD_CK_END

namespace rocm_sd::ck_entries {

inline constexpr CkAttentionTile kAttentionTile = kCkAttentionXdl;

// CK's own instances for heads of 64 and of 128 (device_batched_gemm_softmax_gemm_permute_xdl_cshuffle), with
// padding.
template <class T, int kColumns, bool kCausal>
struct Attention {
  static constexpr int kKeys = 128;  // of one step
  static constexpr __device__ auto padded() {
    return ckd::GemmGemmPadder<kPaddedTwice, ck::index_t, ck::index_t, ck::index_t, ck::index_t>{
        kAttentionTile.queries, kKeys, kAttentionTile.depth, kColumns};
  }

  // q and k: 8 of a row at once; v: 2 keys side by side.
  static __device__ auto q_grid(int queries, int depth, int stride) {
    return pieces<8>(padded().PadADescriptor_M_K(matrix(queries, depth, stride)));
  }
  static __device__ auto k_grid(int keys, int depth, int stride) {
    return pieces<8>(padded().PadBDescriptor_N_K(matrix(keys, depth, stride)));
  }
  static __device__ auto v_grid(int keys, int columns, int stride) {
    return pieces<2>(padded().PadB1Descriptor_N_K(transposed(columns, keys, stride)));
  }
  static __device__ auto y_grid(int queries, int columns, int stride) {
    return padded().PadCDescriptor_M_N(matrix(queries, columns, stride));
  }

  using Grid = ck::GridwiseBatchedGemmSoftmaxGemm_Xdl_CShuffle<
      T, float, float, T, Same, Same, Scaled, Same, Same, ck::InMemoryDataOperationEnum::Set,  //
      decltype(q_grid(1, 1, 1)), decltype(k_grid(1, 1, 1)), decltype(v_grid(1, 1, 1)),
      decltype(y_grid(1, 1, 1)), 1, kAttentionTile.threads, kAttentionTile.queries, kKeys,
      kAttentionTile.depth, kColumns, 32, 8, 8, 2, 32, 32, 1, 4, kColumns / 32,        //
      S<4, 64, 1>, S<1, 0, 2>, S<1, 0, 2>, 2, 8, 8, true, 1,                           // q to LDS
      S<4, 64, 1>, S<1, 0, 2>, S<1, 0, 2>, 2, 8, 8, true, 1,                           // k to LDS
      S<1024 / kColumns, kColumns / 4, 1>, S<0, 2, 1>, S<0, 2, 1>, 1, 4, 2, false, 0,  // v to LDS
      1, 2, S<1, 32, 1, 8>, 8, ck::make_default_loop_scheduler(), true, kCausal>;

  template <bool kLoop>
  static __device__ void run(const CkAttentionParams& p, const T* q, const T* k, const T* v, T* y) {
    __shared__ char lds[Grid::GetSharedMemoryNumberOfByte()];
    const auto out = y_grid(p.queries, p.head_dim, p.heads * p.head_dim);
    Grid::template Run<kLoop>(q, k, v, y, lds, Same{}, Same{}, Scaled{p.scale}, Same{}, Same{},
                              q_grid(p.queries, p.head_dim, p.q.row), k_grid(p.keys, p.head_dim, p.k.row),
                              v_grid(p.keys, p.head_dim, p.v.row),
                              Grid::MakeCGridDescriptor_MBlock_MPerBlock_NBlock_NPerBlock(out),
                              Grid::MakeDefaultBlock2CTileMap(out), Mask<kCausal>(p.keys));
  }
};

}  // namespace rocm_sd::ck_entries
