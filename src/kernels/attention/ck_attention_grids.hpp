// What both families' attentions of Composable Kernel share: included by them only.
#pragma once

#include "kernels/attention/ck_attention_params.hpp"
#include "kernels/ck_common.hpp"

#include <ck/tensor_operation/gpu/block/blockwise_softmax.hpp>
#include <ck/tensor_operation/gpu/block/thread_group_tensor_slice_transfer_v6r1.hpp>
#include <ck/tensor_operation/gpu/device/masking_specialization.hpp>
#include <ck/tensor_operation/gpu/device/matrix_padder.hpp>
#include <ck/tensor_operation/gpu/grid/gridwise_gemm_pipeline_selector.hpp>

namespace rocm_sd::ck_entries {

namespace ckd = ck::tensor_operation::device;
inline constexpr auto kPaddedTwice = ckd::GemmSpecialization::MNKOPadding;
// What of the scores' rectangle counts, besides its extents.
template <bool kCausal>
using Mask = ckd::C0MatrixMask_impl<
    std::conditional_t<kCausal, ckd::MaskOutUpperTrianglePredicate, ckd::MaskDisabledPredicate>>;

// [rows,columns], rows `stride` elements apart; and a matrix whose columns are.
inline __device__ auto matrix(int rows, int columns, int stride) {
  return ck::make_naive_tensor_descriptor(ck::make_tuple(rows, columns),
                                          ck::make_tuple(stride, ck::Number<1>{}));
}
inline __device__ auto transposed(int rows, int columns, int stride) {
  return ck::make_naive_tensor_descriptor(ck::make_tuple(rows, columns),
                                          ck::make_tuple(ck::Number<1>{}, stride));
}

}  // namespace rocm_sd::ck_entries
