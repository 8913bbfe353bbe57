// What every way of convolving on a GPU needs beside its product: whole pieces of pixels, and the epilogue.
#pragma once

#include "composable_kernels/fused/conv_params.hpp"
#include "kernels/conv/conv2d_gpu.hpp"
#include "kernels/gpu_launch.hpp"

namespace rocm_sd {

// Workgroups of the small kernels beside the products.
inline uint32_t conv_groups_of(int64_t lanes) {
  return static_cast<uint32_t>((lanes + kConvSmallThreads - 1) / kConvSmallThreads);
}

// The kernel of the device's archive. Throws UsageError where it has none of that name.
inline const GpuKernel& conv_kernel(Exec& ex, const std::string& name) {
  GpuDevice& device = *gpu_device(ex);
  const GpuKernel* kernel = device.find_kernel(name);
  require<UsageError>(kernel != nullptr, "conv2d: the kernel archive for ", device.traits().arch, " has no ",
                      name);
  return *kernel;
}

// x itself, or a copy whose pixels are whole pieces of 16 bytes: latents of 4 channels, pictures of 3.
template <class T>
Tensor conv_whole_pieces(Exec& ex, const Tensor& x) {
  const int64_t channels = x.dim(3), padded = conv_padded_channels(channels, x.dtype());
  if (padded == channels) return x;
  const Tensor y = ex.alloc({x.dim(0), x.dim(1), x.dim(2), padded}, x.dtype());
  const PadParams<T> params{static_cast<const T*>(x.data()), static_cast<T*>(y.data()), x.numel() / channels,
                            static_cast<int32_t>(channels), static_cast<int32_t>(padded)};
  const auto bytes = static_cast<double>(x.bytes() + y.bytes());
  launch_kernel(ex, {"conv2d", concat("gpu pad ", x.shape(), " ", x.dtype()), 0, bytes},
                conv_kernel(ex, concat("conv_pad_", dtype_name(x.dtype()))),
                {conv_groups_of(y.numel() * static_cast<int64_t>(sizeof(T)) / 16), 1, 1}, kConvSmallThreads,
                0, params);
  return y;
}

// What the kernels do to a sum before it is stored.
template <class T>
EpilogueParams<T> conv_epilogue(const ConvProblem& p) {
  const Epilogue& e = p.args.epilogue;
  EpilogueParams<T> out{};
  out.y = static_cast<T*>(p.y.data());
  out.rows = static_cast<int>(p.batch() * p.out_h() * p.out_w());
  out.channels = static_cast<int>(p.out_channels());
  out.y_stride = p.y.stride(2);
  out.rows_per_image = static_cast<int>(p.out_h() * p.out_w());
  if (p.w.bias) out.bias = p.w.bias->as<float>();
  out.float_result = p.out_dtype() != p.dtype();
  if (e.residual) out.residual = static_cast<const T*>(e.residual->data());
  if (e.channel_shift) {
    out.shift = e.channel_shift->data();
    out.shift_stride = e.channel_shift->stride(0);
    out.shift_is_float = e.channel_shift->dtype() == DType::kF32;
  }
  if (e.channel_scale) {
    out.scale = e.channel_scale->as<float>();
    out.rows_per_scale = out.rows / static_cast<int>(e.channel_scale->dim(0));
    out.factors_per_scale = static_cast<int>(e.channel_scale->dim(1));
  }
  static_assert(static_cast<int>(EpilogueActivation::kRelu) == static_cast<int>(Activation::kRelu) &&
                static_cast<int>(EpilogueActivation::kGelu) == static_cast<int>(Activation::kGelu));
  out.act = static_cast<EpilogueActivation>(e.act);
  if (e.slopes) out.slopes = e.slopes->as<float>();
  return out;
}

}  // namespace rocm_sd
