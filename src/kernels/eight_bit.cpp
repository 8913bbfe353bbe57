#include "kernels/eight_bit.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.hpp"
#include "composable_kernels/eight_bit.hpp"

namespace rocm_sd {
namespace {

template <class T>
void quantise_as(const float* from, int64_t rows, int64_t columns, T* values, float* scales) {
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = from + r * columns;
    float most = 0, poison = 0;  // poison: 0, or NaN where an element is not finite
    for (int64_t k = 0; k < columns; ++k) {
      most = std::max(most, std::fabs(row[k]));
      poison += row[k] * 0.0f;
    }
    scales[r] = most > kEightBitLeast ? most / kEightBitMost<T> : 1.0f;
    if (poison != 0) {
      scales[r] = std::numeric_limits<float>::quiet_NaN();
      std::fill_n(values + r * columns, columns, T{});
      continue;
    }
    // A product, as fused/gemm_eight_bit.hpp has it: the same bits for activations, too.
    const float inverse = most > kEightBitLeast ? kEightBitMost<T> / most : 0.0f;
    for (int64_t k = 0; k < columns; ++k) store(values[r * columns + k], row[k] * inverse);
  }
}

template <class From, class To>
void dequantize_as(const From* from, const float* scales, int64_t rows, int64_t columns, To* to) {
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t k = r * columns; k < (r + 1) * columns; ++k) store(to[k], to_float(from[k]) * scales[r]);
}

template <class From>
void dequantize_from(const void* values, const float* scales, int64_t rows, int64_t columns, void* to,
                     DType dtype) {
  const auto* from = static_cast<const From*>(values);
  switch (dtype) {
    case DType::kF32: return dequantize_as(from, scales, rows, columns, static_cast<float*>(to));
    case DType::kBF16: return dequantize_as(from, scales, rows, columns, static_cast<Bf16*>(to));
    default: return dequantize_as(from, scales, rows, columns, static_cast<Half*>(to));
  }
}

void dequantize_host(const void* values, DType type, const float* scales, int64_t rows, int64_t columns,
                     void* to, DType dtype) {
  if (type == DType::kI8)
    dequantize_from<Int8>(values, scales, rows, columns, to, dtype);
  else
    dequantize_from<Fp8>(values, scales, rows, columns, to, dtype);
}

}  // namespace

void quantise_rows(const float* from, int64_t rows, int64_t columns, DType type, void* values,
                   float* scales) {
  require<InternalError>(is_eight_bit(type), "quantise_rows: expected i8 or f8e4m3, got ", type);
  if (type == DType::kI8)
    quantise_as(from, rows, columns, static_cast<Int8*>(values), scales);
  else
    quantise_as(from, rows, columns, static_cast<Fp8*>(values), scales);
}

Tensor dequantized(const Tensor& values, const Tensor& scales, DType dtype) {
  require<InternalError>(is_eight_bit(values.dtype()) && values.is_contiguous() &&
                             scales.dtype() == DType::kF32 && scales.shape() == Shape{values.dim(0)},
                         "dequantized: values ", values.dtype(), " ", values.shape(), " with scales ",
                         scales.shape(), " of ", scales.dtype());
  Device& device = *values.storage()->device();
  const int64_t rows = values.dim(0), columns = rows ? values.numel() / rows : 0;
  Tensor wide = make_tensor(device, values.shape(), dtype);
  if (device.kind() == DeviceKind::kHost) {
    const DeviceAccess access(device);
    dequantize_host(values.data(), values.dtype(), scales.as<float>(), rows, columns, wide.data(), dtype);
    return wide;
  }
  std::vector<char> bytes(values.bytes()), out(wide.bytes());
  std::vector<float> factors(static_cast<size_t>(rows));
  device.copy_to_host(bytes.data(), values.data(), bytes.size());
  device.copy_to_host(factors.data(), scales.data(), scales.bytes());
  dequantize_host(bytes.data(), values.dtype(), factors.data(), rows, columns, out.data(), dtype);
  device.copy_to_device(wide.data(), out.data(), out.size());
  return wide;
}

}  // namespace rocm_sd
