#include "pytorch_integration/torch_tensor.hpp"

#include <fmt/format.h>

#include <dlfcn.h>

#include <limits>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"

namespace rocm_sd::torch_ops {
namespace {

using torch::headeronly::ScalarType;

// Keeps the tensor whose memory it names.
class TorchStorage final : public Storage {
 public:
  TorchStorage(AtTensor tensor, size_t bytes)
      : Storage(tensor.data_ptr(), bytes), tensor_(std::move(tensor)) {}

 private:
  AtTensor tensor_;
};

// Kernels and BLAS count the elements of a row in 32 bits; rows that lie further apart are copied.
constexpr int64_t kMaxRowStride = std::numeric_limits<int32_t>::max();

Shape shape_of(torch::headeronly::IntHeaderOnlyArrayRef dims) {
  require(dims.size() <= Shape::kMaxRank, "a tensor of ", dims.size(), " dimensions: at most ",
          Shape::kMaxRank, " are taken");
  return Shape(std::span<const int64_t>(dims.data(), dims.size()));
}

int32_t code_of(DType dtype) {
  return dtype == DType::kF32   ? aoti_torch_dtype_float32()
         : dtype == DType::kF16 ? aoti_torch_dtype_float16()
                                : aoti_torch_dtype_bfloat16();
}

// dtype: PyTorch's number.
AtTensor empty_beside(const AtTensor& x, int32_t dtype, const Shape& sizes, const Shape& strides) {
  int32_t device_type = 0, device_index = 0;
  AtenTensorHandle made = nullptr;
  check_torch(aoti_torch_get_device_type(x.get(), &device_type), "get_device_type");
  check_torch(aoti_torch_get_device_index(x.get(), &device_index), "get_device_index");
  try {
    check_torch(aoti_torch_empty_strided(sizes.rank(), sizes.begin(), strides.begin(), dtype, device_type,
                                         device_index, &made),
                "empty_strided");
  } catch (const TorchRefused& refused) {  // for want of memory, if nobody says otherwise
    throw OutOfMemoryError(
        concat("out of memory: PyTorch's allocator gave no block for ", sizes, ": ", refused.what()));
  }
  return AtTensor(made);
}

// What PyTorch says of the failure that this thread met last, or "".
std::string torch_says() {
  static const auto ask =
      reinterpret_cast<const char* (*)()>(dlsym(RTLD_DEFAULT, "torch_exception_get_what_without_backtrace"));
  const char* said = ask ? ask() : nullptr;
  return said ? said : "";
}

}  // namespace

void check_torch(AOTITorchError status, const char* call) {
  if (status == AOTI_TORCH_SUCCESS) [[likely]]
    return;
  const std::string said = torch_says();
  require<OutOfMemoryError>(said.find("out of memory") == std::string::npos, said);
  throw TorchRefused(said.empty() ? concat(call, " failed; PyTorch says why from version 2.13 on") : said);
}

std::optional<DType> dtype_of(const AtTensor& x) {
  switch (x.scalar_type()) {
    case ScalarType::Float: return DType::kF32;
    case ScalarType::Half: return DType::kF16;
    case ScalarType::BFloat16: return DType::kBF16;
    default: return std::nullopt;
  }
}

std::optional<DType> stored_dtype_of(const AtTensor& x) {
  switch (x.scalar_type()) {
    case ScalarType::Char: return DType::kI8;
    case ScalarType::Float8_e4m3fn: return DType::kF8E4M3;
    case ScalarType::Int: return DType::kI32;
    default: return dtype_of(x);
  }
}

std::string describe(const AtTensor& x) {
  const auto dtype = dtype_of(x);
  const auto sizes = x.sizes();
  return fmt::format("{}[{}]",
                     dtype ? std::string(dtype_name(*dtype)) : torch::headeronly::toString(x.scalar_type()),
                     fmt::join(sizes.data(), sizes.data() + sizes.size(), ","));
}

bool same_device(const AtTensor& a, const AtTensor& b) { return a.device() == b.device(); }
bool same_sizes(const AtTensor& a, const AtTensor& b) { return sizes_of(a) == sizes_of(b); }

Shape sizes_of(const AtTensor& x) { return shape_of(x.sizes()); }
Shape strides_of(const AtTensor& x) { return shape_of(x.strides()); }

Shape row_major(const Shape& sizes) {
  Shape strides = sizes;
  int64_t step = 1;
  for (int i = sizes.rank() - 1; i >= 0; --i) {
    strides[i] = step;
    step *= std::max<int64_t>(sizes[i], 1);
  }
  return strides;
}

Shape channels_last(const Shape& sizes) {
  const int64_t c = std::max<int64_t>(sizes[1], 1), h = std::max<int64_t>(sizes[2], 1),
                w = std::max<int64_t>(sizes[3], 1);
  return {h * w * c, 1, w * c, c};
}

Tensor view_as(const AtTensor& x, const Shape& shape) {
  const DType dtype = *stored_dtype_of(x);
  const size_t bytes = static_cast<size_t>(shape.numel()) * dtype_size(dtype);
  return Tensor(std::make_shared<TorchStorage>(x, bytes), shape, dtype);
}

std::optional<Tensor> rows_view(const AtTensor& x, const Shape& shape, int64_t image, int64_t row) {
  const int64_t images = shape[0], rows = shape[1], columns = shape[2];
  if (rows <= 1) row = images <= 1 ? columns : image;
  if (images <= 1) image = rows * row;
  if (row < columns || row < 1 || image % row != 0 || image / row < rows) return std::nullopt;
  if (row > kMaxRowStride) return std::nullopt;
  // The storage is said to reach to the end of the last whole row; nobody reads beyond the last element.
  return view_as(x, {images, image / row, row}).narrow(1, 0, rows).narrow(2, 0, columns);
}

AtTensor empty_strided_like(const AtTensor& x, const Shape& sizes, const Shape& strides) {
  int32_t dtype = 0;
  check_torch(aoti_torch_get_dtype(x.get(), &dtype), "get_dtype");
  return empty_beside(x, dtype, sizes, strides);
}

AtTensor empty_strided_of(const AtTensor& x, DType dtype, const Shape& sizes, const Shape& strides) {
  return empty_beside(x, code_of(dtype), sizes, strides);
}

AtTensor seen_by_torch(const Tensor& x, const Shape& sizes, const Shape& strides, const AtTensor& beside) {
  int32_t device_type = 0, device_index = 0;
  AtenTensorHandle made = nullptr;
  check_torch(aoti_torch_get_device_type(beside.get(), &device_type), "get_device_type");
  check_torch(aoti_torch_get_device_index(beside.get(), &device_index), "get_device_index");
  check_torch(aoti_torch_create_tensor_from_blob(x.data(), sizes.rank(), sizes.begin(), strides.begin(), 0,
                                                 code_of(x.dtype()), device_type, device_index, &made),
              "create_tensor_from_blob");
  return AtTensor(made);
}

AtTensor with_strides(const AtTensor& x, const Shape& strides) {
  const Shape sizes = sizes_of(x), have = strides_of(x);
  bool same = true;
  for (int i = 0; i < sizes.rank(); ++i) same = same && (sizes[i] <= 1 || have[i] == strides[i]);
  if (same || sizes.numel() == 0) return x;
  AtTensor copy = empty_strided_like(x, sizes, strides);
  check_torch(aoti_torch_copy_(copy.get(), x.get(), 1), "copy_");
  return copy;
}

Tensor nhwc_of(const AtTensor& x) {
  const Shape sizes = sizes_of(x);
  const Shape shape = {sizes[0], sizes[2], sizes[3], sizes[1]};  // [N,H,W,C]
  return view_as(with_strides(x, channels_last(sizes)), shape);
}

Tensor row_major_of(const AtTensor& x) {
  const Shape sizes = sizes_of(x);
  return view_as(with_strides(x, row_major(sizes)), sizes);
}

}  // namespace rocm_sd::torch_ops
