// Filters on a GPU: from the checkpoint's layout to the gather's, and back.
#include "base/checked.hpp"
#include "composable_kernels/fused/conv_params.hpp"
#include "composable_kernels/fused/dequantize.hpp"
#include "kernels/conv/conv2d_gpu.hpp"
#include "kernels/dequantize/dequantize.hpp"
#include "kernels/eight_bit.hpp"
#include "kernels/gpu_launch.hpp"
#include "kernels/memory_bound_threads.hpp"

namespace rocm_sd {
namespace {

FilterLayout ordered_layout_of(const Shape& shape, int64_t first_channels, DType dtype,
                               GpuFilter::Order order) {
  FilterLayout layout = conv_packed_layout(shape, first_channels, dtype);
  if (order == GpuFilter::Order::kDense)
    for (int i : {0, 1}) layout.block[i] = layout.padded[i];
  return layout;
}

// Starts conv_pack, conv_phases or conv_unpack over `count` lanes. Outside any Exec: filters are laid out
// while planning, when nothing else runs.
template <class T>
void launch(GpuDevice& device, const char* verb, const FilterLayout& layout, DType dtype, const Tensor& from,
            const Tensor& to, int64_t count) {
  const std::string name = concat("conv_", verb, "_", is_eight_bit(dtype) ? "bytes" : dtype_name(dtype));
  const GpuKernel* kernel = device.find_kernel(name);
  require<UsageError>(kernel != nullptr, "conv2d: the kernel archive for ", device.traits().arch, " has no ",
                      name);
  FilterParams<T> params{layout, static_cast<const T*>(from.data()), static_cast<T*>(to.data())};
  const auto workgroups = static_cast<uint32_t>((count + kConvSmallThreads - 1) / kConvSmallThreads);
  clear_padding(params);
  device.launch(*kernel, {workgroups, 1, 1}, kConvSmallThreads, 0, &params, sizeof(params));
}

void launch(GpuDevice& device, const char* verb, const FilterLayout& layout, DType dtype, const Tensor& from,
            const Tensor& to, int64_t count) {
  switch (dtype) {
    case DType::kI8:
    case DType::kF8E4M3: return launch<uint8_t>(device, verb, layout, dtype, from, to, count);
    case DType::kF32: return launch<float>(device, verb, layout, dtype, from, to, count);
    case DType::kBF16: return launch<Bf16>(device, verb, layout, dtype, from, to, count);
    default: return launch<Half>(device, verb, layout, dtype, from, to, count);
  }
}

}  // namespace

FilterLayout conv_packed_layout(const Shape& shape, int64_t first_channels, DType dtype) {
  const auto small = [](int64_t extent) { return static_cast<int32_t>(extent); };
  return conv_filter_layout({.channels = small(first_channels),
                             .second_channels = small(shape[1] - first_channels),
                             .outputs = small(shape[0]),
                             .filter_h = small(shape[2]),
                             .filter_w = small(shape[3])},
                            static_cast<int>(dtype_size(dtype)));
}

int64_t conv_padded_channels(int64_t channels, DType dtype) {
  return conv_padded(channels, static_cast<int>(dtype_size(dtype)));
}

GpuFilter::GpuFilter(GpuDevice& device, const Tensor& plain, int64_t first_channels, DType dtype, Order order)
    : device_(device), shape_(plain.shape()), first_channels_(first_channels), dtype_(dtype), order_(order) {
  const FilterLayout layout = this->layout();
  data_ = make_tensor(device, {layout.outputs, layout.depth()}, plain.dtype());
  // Of bytes a lane lays out one, of other types 16 bytes.
  const auto piece = is_eight_bit(plain.dtype()) ? 1 : static_cast<int64_t>(16 / dtype_size(plain.dtype()));
  launch(device, "pack", layout, plain.dtype(), plain, data_, data_.numel() / piece);
  device.synchronize();  // the plain filter may be freed after this
}

FilterLayout GpuFilter::layout() const { return ordered_layout_of(shape_, first_channels_, dtype_, order_); }

Tensor GpuFilter::unpack() const {
  const Tensor plain = make_tensor(device_, shape_, data_.dtype());
  launch(device_, "unpack", layout(), data_.dtype(), data_, plain, plain.numel());
  device_.synchronize();
  return plain;
}

GpuPhaseFilter::GpuPhaseFilter(GpuDevice& device, const Tensor& plain) {
  const FilterLayout layout = conv_packed_layout(plain.shape(), plain.dim(1), plain.dtype());
  data_ = make_tensor(device, {4, layout.outputs, 4 * layout.padded[0]}, plain.dtype());
  const auto piece = static_cast<int64_t>(16 / dtype_size(plain.dtype()));
  launch(device, "phases", layout, plain.dtype(), plain, data_, data_.numel() / piece);
  device.synchronize();
}

Tensor GpuPhaseFilter::unpack() const { throw InternalError("the phases of a filter do not give it back"); }

Tensor dequantize_phases(Exec& ex, const GpuFilter& filter, const Tensor& scales, DType dtype) {
  const FilterLayout layout = filter.layout();
  const Tensor& from = filter.packed();
  const std::string name = concat("dequantize_phases_", from.dtype(), "_", dtype);
  GpuDevice& device = *gpu_device(ex);
  const GpuKernel* kernel = device.find_kernel(name);
  require<UsageError>(kernel != nullptr, "conv2d: the kernel archive for ", device.traits().arch, " has no ",
                      name);
  const Tensor y = ex.alloc({4, layout.outputs, 4 * layout.padded[0]}, dtype);
  const int64_t pieces = y.numel() * static_cast<int64_t>(dtype_size(dtype)) / 16;
  const auto workgroups = static_cast<uint32_t>((pieces + kMemoryBoundThreads - 1) / kMemoryBoundThreads);
  const OpInfo info{"dequantize", concat("gpu phases ", from.dtype(), " to ", y.shape(), " ", dtype), 0,
                    static_cast<double>(from.bytes() + y.bytes())};
  with_storages(DequantizeKernels{}, {from.dtype(), dtype}, [&]<class From, class To>() {
    launch_kernel(ex, info, *kernel, {workgroups}, kMemoryBoundThreads, 0,
                  DequantizePhasesParams<From, To>{layout, static_cast<const From*>(from.data()),
                                                   scales.as<float>(), static_cast<To*>(y.data())});
  });
  return y;
}

}  // namespace rocm_sd
