// Composable Kernel's product for CDNA's matrix units: included by the ck_*_entries.hpp of products and
// convolutions only.
#pragma once

#include "kernels/ck_common.hpp"

#include <ck/tensor_operation/gpu/block/blockwise_gemm_pipeline_xdlops_selector.hpp>
#include <ck/tensor_operation/gpu/block/thread_group_tensor_slice_transfer_direct_load.hpp>
#include <ck/tensor_operation/gpu/block/thread_group_tensor_slice_transfer_v6r1.hpp>

ROCM_SD_CK_BEGIN
#include <ck/tensor_operation/gpu/grid/gridwise_gemm_xdl_cshuffle_v3_multi_d.hpp>
ROCM_SD_CK_END

namespace rocm_sd::ck_entries {

inline constexpr CkGemmTile kLinearTile = kCkGemmXdl;

// T: the 16-bit type. Ds: the tensors that Add gets beside the sum.
template <CkGemmTile kTile, class T, class Ds, class DsLayout, class Add>
struct Gemm {
  using Grid = ck::GridwiseGemmMultiD_xdl_cshuffle_v3<
      Rows, Columns, DsLayout, Rows, T, T, float, float, Ds, T, Same, Same, Add, kPadded, kTile.threads,
      kTile.m, kTile.n, kTile.k, 8, 8, 32, 32, kTile.m_repeats, kTile.n_repeats,  //
      S<8, 32, 1>, S<1, 0, 2>, S<1, 0, 2>, 2, 8, 8, false, 0,                     // x to LDS
      S<8, 32, 1>, S<1, 0, 2>, S<1, 0, 2>, 2, 8, 8, false, 0,                     // w to LDS
      1, 1, S<1, 32, 1, 8>, S<8, 8, 8>,                                           // sums by LDS to y
      ck::BlockGemmPipelineScheduler::Intrawave, ck::BlockGemmPipelineVersion::v3>;

  template <size_t kTensors>
  __device__ static void run(const CkGemmParams& p, typename Grid::DsGridPointer ds,
                             const std::array<ck::index_t, kTensors>& strides) {
    __shared__ char lds[Grid::GetSharedMemoryNumberOfByte()];
    const typename Grid::Problem problem(p.rows, p.channels, p.depth, p.x_stride, p.depth, strides,
                                         p.channels, 1);
    Grid::template Run<true, ck::InMemoryDataOperationEnum::Set, ck::TailNumber::Full>(
        static_cast<const T*>(p.x), static_cast<const T*>(p.w), ds, static_cast<T*>(p.y), lds, problem,
        Same{}, Same{}, Add{});
  }

  // The same over rows of x that a descriptor [depth/8,rows,8], padded to whole tiles, finds.
  template <size_t kTensors, class XGrid>
  __device__ static void run_over(const XGrid& x_grid, const CkGemmParams& p, typename Grid::DsGridPointer ds,
                                  const std::array<ck::index_t, kTensors>& strides, const Add& add) {
    __shared__ char lds[Grid::GetSharedMemoryNumberOfByte()];
    const typename Grid::Problem of(p.rows, p.channels, p.depth, p.depth, p.depth, strides, p.channels, 1);
    using Map = typename Grid::Block2CTileMapDefault;
    Grid::template Run<true, ck::InMemoryDataOperationEnum::Set, ck::TailNumber::Full, Map>(
        static_cast<const T*>(p.x), static_cast<const T*>(p.w), ds, static_cast<T*>(p.y), lds, of, Same{},
        Same{}, add, Map{p.rows, p.channels, 4}, x_grid,
        Grid::MakeBGridDescriptor_BK0_N_BK1(p.depth, of.KPadded, p.channels, of.NPadded, p.depth, of.BK0),
        Grid::MakeDsGridDescriptor_M_N(p.rows, of.MPadded, p.channels, of.NPadded, strides),
        Grid::template MakeCGridDescriptor_M_N<Rows>(p.rows, of.MPadded, p.channels, of.NPadded, p.channels));
  }
};

}  // namespace rocm_sd::ck_entries
