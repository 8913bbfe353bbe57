// Composable Kernel's product for RDNA's matrix units: included by ck_linear_entries.hpp only.
#pragma once

#include "kernels/ck_common.hpp"

#include <ck/tensor_operation/gpu/block/blockwise_gemm_pipeline_wmma_selector.hpp>

ROCM_SD_CK_BEGIN
#include <ck/tensor_operation/gpu/grid/gridwise_gemm_wmma_cshuffle_v3.hpp>
ROCM_SD_CK_END

namespace rocm_sd::ck_entries {

inline constexpr CkGemmTile kTile = kCkGemmWmma;

// T: the 16-bit type. Ds: the tensors that Add gets beside the sum.
template <class T, class Ds, class DsLayout, class Add>
struct Gemm {
  using Grid = ck::GridwiseGemm_wmma_cshuffle_v3<
      Rows, Columns, DsLayout, Rows, ck::Tuple<T>, ck::Tuple<T>, float, float, Ds, T, Same, Same, Add,
      kPadded, kTile.threads, kTile.m, kTile.n, kTile.k, 8, 8, 16, 16, 4, 2,  //
      S<4, 64, 1>, S<1, 0, 2>, S<1, 0, 2>, 2, 8, 8, false, true,              // x to LDS
      S<4, 64, 1>, S<1, 0, 2>, S<1, 0, 2>, 2, 8, 8, false, true,              // w to LDS
      1, 1, S<1, 32, 1, 8>, S<8, 8, 8>,                                       // sums by LDS to y
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
};

}  // namespace rocm_sd::ck_entries
