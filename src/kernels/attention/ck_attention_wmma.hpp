// Composable Kernel's attention for RDNA's matrix units: included by ck_attention_entries.hpp only.
#pragma once

#include "kernels/attention/ck_attention_grids.hpp"

#include <ck/tensor_operation/gpu/block/blockwise_gemm_wmma.hpp>

ROCM_SD_CK_BEGIN
#include <ck/tensor_operation/gpu/grid/gridwise_batched_gemm_softmax_gemm_wmma_cshuffle.hpp>
ROCM_SD_CK_END

namespace rocm_sd::ck_entries {

inline constexpr CkAttentionTile kAttentionTile = kCkAttentionWmma;

template <class T, int kColumns, bool kCausal>
struct Attention {
  static constexpr int kKeys = 64;  // of one step: 128 would spill
  static constexpr int kWaves = 8;
  static constexpr int kTile = 16;  // a matrix instruction's side
  static constexpr __device__ auto padded() {
    return ckd::GemmGemmPadder<kPaddedTwice, ck::index_t, ck::index_t, ck::index_t, ck::index_t>{
        kAttentionTile.queries, kKeys, kAttentionTile.depth, kColumns};
  }

  // q does not pass LDS: its descriptor goes down to a lane's share. k: 8 of a row at once; v: 8 keys side by
  // side.
  static __device__ auto q_grid(int queries, int depth, int stride) {
    const auto rows = padded().PadADescriptor_M_K(matrix(queries, depth, stride));
    const int blocks = rows.GetLength(ck::Number<0>{}) / kAttentionTile.queries;
    const int steps = rows.GetLength(ck::Number<1>{}) / kTile;
    return ck::transform_tensor_descriptor(
        rows,
        ck::make_tuple(
            ck::make_unmerge_transform(
                ck::make_tuple(steps, ck::Number<1>{}, ck::Number<2>{}, ck::Number<8>{})),
            ck::make_unmerge_transform(ck::make_tuple(blocks, ck::Number<kWaves>{}, ck::Number<kTile>{}))),
        ck::make_tuple(S<1>{}, S<0>{}), ck::make_tuple(S<0, 3, 4, 6>{}, S<1, 2, 5>{}));
  }
  static __device__ auto k_grid(int keys, int depth, int stride) {
    return pieces<8>(padded().PadBDescriptor_N_K(matrix(keys, depth, stride)));
  }
  static __device__ auto v_grid(int keys, int columns, int stride) {
    return pieces<8>(padded().PadB1Descriptor_N_K(transposed(columns, keys, stride)));
  }
  static __device__ auto y_grid(int queries, int columns, int stride) {
    return padded().PadCDescriptor_M_N(matrix(queries, columns, stride));
  }

  using Grid = ck::GridwiseBatchedGemmSoftmaxGemm_Wmma<
      T, T, float, T, float, float, T, Same, Same, Scaled, Same, Same, ck::InMemoryDataOperationEnum::Set,  //
      decltype(q_grid(1, 1, 1)), decltype(k_grid(1, 1, 1)), decltype(v_grid(1, 1, 1)),
      decltype(y_grid(1, 1, 1)), kAttentionTile.queries, kKeys, kAttentionTile.depth, 8, 8, kColumns, 64, 8,
      kTile, kTile, kTile, 1, kKeys / kTile, kColumns / kTile,
      kAttentionTile.threads,                                            //
      S<2, 128, 1>, S<1, 0, 2>, S<1, 0, 2>, 2, 8, 8, true, false, true,  // q to registers
      S<8, 32, 1>, S<1, 0, 2>, S<1, 0, 2>, 2, 8, 8, true, true, true,    // k to LDS
      S<2, 16, 8>, S<0, 2, 1>, S<0, 2, 1>, 1, 1, 1, false, true, false,  // v to LDS
      1, 1, S<1, 128, 1, 2>, 8, true, kCausal>;

  template <bool kLoop>
  static __device__ void run(const CkAttentionParams& p, const T* q, const T* k, const T* v, T* y) {
    __shared__ char lds[Grid::GetSharedMemoryNumberOfByte()];
    const auto out = y_grid(p.queries, p.head_dim, p.heads * p.head_dim);
    Grid::template Run<kLoop>(q, k, v, y, lds, q_grid(p.queries, p.head_dim, p.q.row),
                              k_grid(p.keys, p.head_dim, p.k.row), v_grid(p.keys, p.head_dim, p.v.row),
                              Grid::MakeCGridDescriptor_MBlock_MPerBlock_NBlock_NPerBlock(out), Same{},
                              Same{}, Scaled{p.scale}, Same{}, Same{}, Mask<kCausal>(p.keys),
                              Grid::MakeDefaultBlock2CTileMap(out, 1, 1));
  }
};

}  // namespace rocm_sd::ck_entries
