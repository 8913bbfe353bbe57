// AMD's Composable Kernel as our kernels' entry points use it: its grid-wide templates, called from extern
// "C" kernels that take one plain struct, so that the loader, the emulator and the kernel report treat them
// as our own. The tensors' descriptors, which its host code would compute, are computed by each workgroup
// from the extents, as its own attention for RDNA does. Included by the ck_*.hip files only, which need
// -DROCM_SD_WITH_CK=ON.
#pragma once

#include <iostream>  // which its headers leave to their callers

#include <ck/ck.hpp>
#include <ck/tensor_description/multi_index_transform_helper.hpp>
#include <ck/tensor_description/tensor_descriptor.hpp>
#include <ck/tensor_description/tensor_descriptor_helper.hpp>
#include <ck/tensor_operation/gpu/block/thread_group_tensor_slice_transfer_v4r1.hpp>
#include <ck/tensor_operation/gpu/block/thread_group_tensor_slice_transfer_v7r3.hpp>
#include <ck/tensor_operation/gpu/device/device_base.hpp>
#include <ck/tensor_operation/gpu/device/gemm_specialization.hpp>
#include <ck/tensor_operation/gpu/device/tensor_layout.hpp>
#include <ck/tensor_operation/gpu/element/element_wise_operation.hpp>
#include <ck/tensor_operation/gpu/grid/block_to_ctile_map.hpp>
#include <ck/utility/common_header.hpp>
#include <ck/utility/env.hpp>

// Around headers whose host functions (sizes, descriptors) a kernel calls: they are compiled for the device
// as well.
#define ROCM_SD_CK_BEGIN _Pragma("clang force_cuda_host_device begin")
#define ROCM_SD_CK_END _Pragma("clang force_cuda_host_device end")

namespace rocm_sd::ck_entries {

template <ck::index_t... kNumbers>
using S = ck::Sequence<kNumbers...>;
using Rows = ck::tensor_layout::gemm::RowMajor;
using Columns = ck::tensor_layout::gemm::ColumnMajor;
using Same = ck::tensor_operation::element_wise::PassThrough;
using Scaled = ck::tensor_operation::element_wise::Scale;
inline constexpr auto kPadded = ck::tensor_operation::device::GemmSpecialization::MNKPadding;

// The sum in float, and one rounding.
struct AddAll {
  template <class E, class C, class... Ds>
  __host__ __device__ constexpr void operator()(E& e, const C& c, const Ds&... ds) const {
    e = ck::type_convert<E>((static_cast<float>(c) + ... + ck::type_convert<float>(ds)));
  }
};

// [rows,columns] as [columns/kPiece,rows,kPiece].
template <int kPiece, class Desc>
__device__ auto pieces(const Desc& desc) {
  const auto rows = desc.GetLength(ck::Number<0>{});
  const auto columns = desc.GetLength(ck::Number<1>{});
  return ck::transform_tensor_descriptor(
      desc,
      ck::make_tuple(
          ck::make_unmerge_transform(ck::make_tuple(columns / ck::Number<kPiece>{}, ck::Number<kPiece>{})),
          ck::make_pass_through_transform(rows)),
      ck::make_tuple(S<1>{}, S<0>{}), ck::make_tuple(S<0, 2>{}, S<1>{}));
}

}  // namespace rocm_sd::ck_entries
