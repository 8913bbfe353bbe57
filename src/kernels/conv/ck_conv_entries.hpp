// The entry points of conv2d by Composable Kernel, for one storage type: for the ck_conv_*.hip files.
// Problem    y = act(conv(x, w) + bias + residual), images as pixels x channels
// Mapping    CK's "universal" GEMM over windows: 256 lanes for a tile of ck_conv_params.hpp
// Traffic    x once for each place of the filter, from caches as far as they hold it; w; sums through LDS
// Numerics   products in float, everything added in float, one rounding
// Limits     channels and outputs multiples of 8; depth beyond two tiles; operands below 2 GiB
#pragma once

#include "kernels/conv/ck_conv_params.hpp"
#if defined(__GFX9__)
#include "kernels/gemm/ck_linear_xdl.hpp"
#else
#include "kernels/gemm/ck_linear_wmma.hpp"
#endif

#include <ck/tensor_operation/gpu/device/matrix_padder.hpp>

namespace rocm_sd::ck_entries {

#if defined(__GFX9__)
inline constexpr CkGemmTile kConvTile = kCkConvXdl;
#else
inline constexpr CkGemmTile kConvTile = kCkConvWmma;
#endif

// The sum in float, its activation, and one rounding.
struct AddAndActivate {
  int act = 0;
  template <class E, class C, class... Ds>
  __host__ __device__ constexpr void operator()(E& e, const C& c, const Ds&... ds) const {
    float sum = (static_cast<float>(c) + ... + ck::type_convert<float>(ds));
    if (act == 1) sum = sum / (1.0f + __expf(-sum));
    if (act == 2) sum = sum > 0 ? sum : 0;
    e = ck::type_convert<E>(sum);
  }
};

// The windows of the image as rows of a matrix [rows,depth], padded to whole tiles.
__device__ auto windows(const CkConvParams& p) {
  const auto same = [](int extent) { return ck::make_pass_through_transform(extent); };
  const auto image = ck::make_naive_tensor_descriptor(
      ck::make_tuple(p.batch, p.height, p.width, p.channels),
      ck::make_tuple(p.height * p.width * p.channels, p.width * p.channels, p.channels, ck::Number<1>{}));
  const auto framed = ck::transform_tensor_descriptor(
      image,
      ck::make_tuple(same(p.batch), ck::make_pad_transform(p.height, p.pad_top, p.pad_bottom),
                     ck::make_pad_transform(p.width, p.pad_left, p.pad_right), same(p.channels)),
      ck::make_tuple(S<0>{}, S<1>{}, S<2>{}, S<3>{}), ck::make_tuple(S<0>{}, S<1>{}, S<2>{}, S<3>{}));
  const auto moved = ck::transform_tensor_descriptor(  // [batch, filter_h,out_h, filter_w,out_w, channels]
      framed,
      ck::make_tuple(
          same(p.batch),
          ck::make_embed_transform(ck::make_tuple(p.filter_h, p.out_h), ck::make_tuple(1, p.stride)),
          ck::make_embed_transform(ck::make_tuple(p.filter_w, p.out_w), ck::make_tuple(1, p.stride)),
          same(p.channels)),
      ck::make_tuple(S<0>{}, S<1>{}, S<2>{}, S<3>{}), ck::make_tuple(S<0>{}, S<1, 2>{}, S<3, 4>{}, S<5>{}));
  const auto matrix = ck::transform_tensor_descriptor(
      moved,
      ck::make_tuple(ck::make_merge_transform(ck::make_tuple(p.batch, p.out_h, p.out_w)),
                     ck::make_merge_transform(ck::make_tuple(p.filter_h, p.filter_w, p.channels))),
      ck::make_tuple(S<0, 2, 4>{}, S<1, 3, 5>{}), ck::make_tuple(S<0>{}, S<1>{}));
  const ck::tensor_operation::device::MatrixPadder<kPadded, ck::index_t, ck::index_t, ck::index_t> padder{
      {kConvTile.m, kConvTile.n, kConvTile.k}};
  return pieces<8>(padder.PadADescriptor_M_K(matrix));
}

}  // namespace rocm_sd::ck_entries

// T: as Composable Kernel names the type.
#define ROCM_SD_CK_CONV(suffix, T)                                                                           \
  extern "C" __global__ void __launch_bounds__(256) ck_conv_##suffix##_bias(const rocm_sd::CkConvParams p) { \
    using namespace rocm_sd::ck_entries;                                                                     \
    using Product = Gemm<kConvTile, T, ck::Tuple<float>, ck::Tuple<Rows>, AddAndActivate>;                   \
    Product::run_over<1>(windows(p), p.gemm, {p.gemm.bias}, {0}, AddAndActivate{p.act});                     \
  }                                                                                                          \
  extern "C" __global__ void __launch_bounds__(256)                                                          \
      ck_conv_##suffix##_bias_residual(const rocm_sd::CkConvParams p) {                                      \
    using namespace rocm_sd::ck_entries;                                                                     \
    using Product = Gemm<kConvTile, T, ck::Tuple<float, T>, ck::Tuple<Rows, Rows>, AddAndActivate>;          \
    Product::run_over<2>(windows(p), p.gemm, {p.gemm.bias, static_cast<const T*>(p.gemm.residual)},          \
                         {0, p.gemm.channels}, AddAndActivate{p.act});                                       \
  }
