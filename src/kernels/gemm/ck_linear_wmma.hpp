// Composable Kernel's product for RDNA's matrix units: included by the ck_*_entries.hpp of products and
// convolutions only.
#pragma once

#include "kernels/ck_common.hpp"

#include <ck/tensor_operation/gpu/block/blockwise_gemm_pipeline_wmma_selector.hpp>

ROCM_SD_CK_BEGIN
#include <ck/tensor_operation/gpu/grid/gridwise_gemm_wmma_cshuffle_v3.hpp>
ROCM_SD_CK_END

namespace rocm_sd::ck_entries {

inline constexpr CkGemmTile kLinearTile = kCkGemmWmma;

// T: the 16-bit type. Ds: the tensors that Add gets beside the sum.
template <CkGemmTile kTile, class T, class Ds, class DsLayout, class Add>
struct Gemm {
  using Grid = ck::GridwiseGemm_wmma_cshuffle_v3<
      Rows, Columns, DsLayout, Rows, ck::Tuple<T>, ck::Tuple<T>, float, float, Ds, T, Same, Same, Add,
      kPadded, kTile.threads, kTile.m, kTile.n, kTile.k, 8, 8, 16, 16, kTile.m_repeats, kTile.n_repeats,  //
      S<4, 64, 1>, S<1, 0, 2>, S<1, 0, 2>, 2, 8, 8, false, true,  // x to LDS
      S<4, 64, 1>, S<1, 0, 2>, S<1, 0, 2>, 2, 8, 8, false, true,  // w to LDS
      1, 1, S<1, 32, 1, 8>, S<8, 8, 8>,                           // sums by LDS to y
      ck::BlockGemmPipelineScheduler::Intrawave, ck::BlockGemmPipelineVersion::v3, T, T, false, false>;

  template <size_t kTensors>
  __device__ static void run(const CkGemmParams& p, typename Grid::DsGridPointer ds,
                             const std::array<ck::index_t, kTensors>& strides) {
    using Epilogue = typename Grid::EpilogueCShuffle;
    __shared__ char lds[Grid::template GetSharedMemoryNumberOfByte<Epilogue>()];
    const typename Grid::Problem problem(p.rows, p.channels, p.depth, {p.x_stride}, {p.depth}, strides,
                                         p.channels, 1);
    typename Grid::AsGridPointer x(static_cast<const T*>(p.x));
    typename Grid::BsGridPointer w(static_cast<const T*>(p.w));
    Epilogue epilogue;
    Grid::template Run<true, ck::InMemoryDataOperationEnum::Set, ck::TailNumber::Full>(
        x, w, ds, static_cast<T*>(p.y), lds, problem, Same{}, Same{}, Add{}, epilogue);
  }

  // The same over rows of x that a descriptor [depth/8,rows,8], padded to whole tiles, finds.
  template <size_t kTensors, class XGrid>
  __device__ static void run_over(const XGrid& x_grid, const CkGemmParams& p, typename Grid::DsGridPointer ds,
                                  const std::array<ck::index_t, kTensors>& strides, const Add& add) {
    using Epilogue = typename Grid::EpilogueCShuffle;
    using Base = typename Grid::Base;
    __shared__ char lds[Grid::template GetSharedMemoryNumberOfByte<Epilogue>()];
    const typename Grid::Problem of(p.rows, p.channels, p.depth, {p.depth}, {p.depth}, strides, p.channels,
                                    1);
    const typename Grid::Block2CTileMap map(p.rows, p.channels, 4);
    const auto tile = map.CalculateBottomIndex(ck::make_multi_index(ck::get_block_1d_id()));
    if (!map.ValidCTileIndex(tile, ck::make_tuple(of.MBlock, of.NBlock))) return;
    const auto x_grids = ck::make_tuple(x_grid);
    const auto w_grids =
        Grid::MakeBsGridDescriptor_BK0_N_BK1(of.K, of.KPadded, of.N, of.NPadded, of.StrideBs, of.BK0);
    const auto ds_grid = Grid::MakeDsGridDescriptor_MBlock_MPerBlock_NBlock_NPerBlock(
        Grid::MakeDsGridDescriptor_M_N(of.M, of.MPadded, of.N, of.NPadded, of.StrideDs), of.MBlock,
        of.NBlock);
    const auto y_grid = Grid::MakeDEGridDescriptor_MBlock_MPerBlock_NBlock_NPerBlock(
        Base::template MakeDEGridDescriptor_M_N<Rows>(of.M, of.MPadded, of.N, of.NPadded, of.StrideE),
        of.MBlock, of.NBlock);
    using NoScale = typename Grid::BlockwiseGemmPipe::Empty;
    NoScale no_scale;
    Epilogue epilogue;
    Base::template Run<decltype(x_grids), decltype(w_grids), decltype(ds_grid), decltype(y_grid), NoScale,
                       Epilogue, true, ck::InMemoryDataOperationEnum::Set, ck::TailNumber::Full>(
        typename Grid::AsGridPointer(static_cast<const T*>(p.x)),
        typename Grid::BsGridPointer(static_cast<const T*>(p.w)), ds, static_cast<T*>(p.y), lds, x_grids,
        w_grids, ds_grid, y_grid, Same{}, Same{}, add, __builtin_amdgcn_readfirstlane(tile[ck::Number<0>{}]),
        __builtin_amdgcn_readfirstlane(tile[ck::Number<1>{}]), 1, no_scale, epilogue);
  }
};

}  // namespace rocm_sd::ck_entries
