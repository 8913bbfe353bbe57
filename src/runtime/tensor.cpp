#include "runtime/tensor.hpp"

#include "base/error.hpp"
#include "runtime/streamed_storage.hpp"

namespace rocm_sd {
namespace {

class OwnedStorage final : public Storage {
 public:
  OwnedStorage(Device& device, size_t bytes) : Storage(device.allocate(bytes), bytes), device_(device) {}
  ~OwnedStorage() override { device_.free(data_, bytes_); }
  Device* device() const override { return &device_; }

 private:
  Device& device_;
};

class MappedStorage final : public Storage {
 public:
  MappedStorage(Device& device, void* data, size_t bytes) : Storage(data, bytes), device_(device) {}
  ~MappedStorage() override { device_.free_mapped(data_); }
  Device* device() const override { return &device_; }
  bool mapped() const override { return true; }

 private:
  Device& device_;
};

Shape contiguous_strides(const Shape& shape) {
  Shape strides = shape;
  int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = step;
    step *= shape[i];
  }
  return strides;
}

}  // namespace

Tensor::Tensor(std::shared_ptr<Storage> storage, const Shape& shape, DType dtype)
    : storage_(std::move(storage)), shape_(shape), strides_(contiguous_strides(shape)), dtype_(dtype) {
  assert(storage_->bytes() >= bytes());
}

Tensor::Tensor(std::shared_ptr<Storage> storage, const Shape& shape, const Shape& strides, DType dtype)
    : storage_(std::move(storage)), shape_(shape), strides_(strides), dtype_(dtype) {
  assert(shape.rank() == strides.rank());
}

bool Tensor::is_contiguous() const {
  int64_t step = 1;
  for (int i = rank() - 1; i >= 0; --i) {
    if (shape_[i] != 1 && strides_[i] != step) return false;
    step *= shape_[i];
  }
  return true;
}

Tensor Tensor::reshape(const Shape& shape) const {
  require(is_contiguous() && shape.numel() == numel(), "reshape: cannot view ", shape_, " as ", shape);
  Tensor out = *this;
  out.shape_ = shape;
  out.strides_ = contiguous_strides(shape);
  return out;
}

Tensor Tensor::narrow(int axis, int64_t begin, int64_t count) const {
  if (axis < 0) axis += rank();
  require(axis >= 0 && axis < rank() && begin >= 0 && count >= 0 && begin + count <= shape_[axis],
          "narrow: [", begin, ",", begin + count, ") of dimension ", axis, " is outside ", shape_);
  Tensor out = *this;
  out.offset_ += static_cast<size_t>(begin * strides_[axis]) * dtype_size(dtype_);
  out.shape_[axis] = count;
  return out;
}

Tensor make_tensor(Device& device, const Shape& shape, DType dtype) {
  const size_t bytes = static_cast<size_t>(shape.numel()) * dtype_size(dtype);
  if (std::shared_ptr<Storage> storage = StreamedMaking::storage_for(device, bytes))
    return Tensor(std::move(storage), shape, dtype);
  return Tensor(std::make_shared<OwnedStorage>(device, bytes), shape, dtype);
}

Tensor make_mapped_tensor(Device& device, const Shape& shape, DType dtype) {
  const size_t bytes = static_cast<size_t>(shape.numel()) * dtype_size(dtype);
  void* data = device.allocate_mapped(bytes);
  if (!data) return make_tensor(device, shape, dtype);
  return Tensor(std::make_shared<MappedStorage>(device, data, bytes), shape, dtype);
}

Tensor tensor_from(Device& device, const Shape& shape, const float* values, DType dtype) {
  Tensor out = make_tensor(device, shape, dtype);
  upload(device, out, values, shape.numel());
  return out;
}

void upload(Device& device, const Tensor& tensor, const float* values, int64_t count) {
  require(tensor.is_contiguous() && tensor.numel() == count, "upload: ", tensor.shape(), " does not hold ",
          count, " values");
  if (tensor.dtype() == DType::kF32) return device.copy_to_device(tensor.data(), values, tensor.bytes());
  std::vector<char> converted(tensor.bytes());
  convert_elements(values, DType::kF32, converted.data(), tensor.dtype(), count);
  device.copy_to_device(tensor.data(), converted.data(), converted.size());
}

std::vector<float> to_floats(Device& device, const Tensor& tensor) {
  require(tensor.is_contiguous(), "to_floats: the tensor must be contiguous");
  std::vector<float> out(static_cast<size_t>(tensor.numel()));
  if (tensor.dtype() == DType::kF32) {
    device.copy_to_host(out.data(), tensor.data(), tensor.bytes());
    return out;
  }
  std::vector<char> raw(tensor.bytes());
  device.copy_to_host(raw.data(), tensor.data(), raw.size());
  convert_elements(raw.data(), tensor.dtype(), out.data(), DType::kF32, tensor.numel());
  return out;
}

}  // namespace rocm_sd
