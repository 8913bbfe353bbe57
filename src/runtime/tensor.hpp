// Tensor: a typed, strided view of a block of device memory. Copies of a Tensor share the block.
#pragma once

#include <memory>
#include <vector>

#include "base/dtype.hpp"
#include "base/shape.hpp"
#include "runtime/device.hpp"

namespace rocm_sd {

// A block of memory with an owner who learns when the last Tensor on it is gone.
class Storage {
 public:
  Storage(void* data, size_t bytes) : data_(data), bytes_(bytes) {}
  virtual ~Storage() = default;
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  virtual Device* device() const { return nullptr; }  // whose memory it is, where the storage owns it
  virtual bool mapped() const { return false; }       // Device::allocate_mapped()'s

 protected:
  void* data_;  // null while a forward is being planned
  size_t bytes_;
};

class Tensor {
 public:
  Tensor() = default;
  // Row-major over the whole storage. storage must hold at least numel * dtype_size bytes.
  Tensor(std::shared_ptr<Storage> storage, const Shape& shape, DType dtype);
  // A view of memory that somebody else laid out: strides in elements, which must stay within the storage.
  Tensor(std::shared_ptr<Storage> storage, const Shape& shape, const Shape& strides, DType dtype);

  explicit operator bool() const { return storage_ != nullptr; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int rank() const { return shape_.rank(); }
  int64_t dim(int i) const { return shape_[i]; }       // negative counts from the end
  int64_t stride(int i) const { return strides_[i]; }  // in elements
  int64_t numel() const { return shape_.numel(); }
  size_t bytes() const { return static_cast<size_t>(numel()) * dtype_size(dtype_); }
  bool is_contiguous() const;

  // First element; null while planning. The typed form asserts the type's size.
  void* data() const {
    return storage_ && storage_->data() ? static_cast<char*>(storage_->data()) + offset_ : nullptr;
  }
  size_t offset_bytes() const { return offset_; }  // of the first element in the storage; also while planning
  template <class T>
  T* as() const {
    assert(sizeof(T) == dtype_size(dtype_));
    return static_cast<T*>(data());
  }

  // Views on the same storage. reshape needs a contiguous tensor and the same element count.
  Tensor reshape(const Shape& shape) const;
  // Elements [begin, begin + count) of dimension `axis`.
  Tensor narrow(int axis, int64_t begin, int64_t count) const;
  const std::shared_ptr<Storage>& storage() const { return storage_; }

 private:
  std::shared_ptr<Storage> storage_;
  size_t offset_ = 0;  // bytes
  Shape shape_, strides_;
  DType dtype_ = DType::kF32;
};

// A tensor with device memory of its own, outside any arena (weights, persistent inputs and outputs).
// Uninitialised.
Tensor make_tensor(Device& device, const Shape& shape, DType dtype);

// The same in mapped memory of the host's, or the device's own where there is none (Device::allocate_mapped).
Tensor make_mapped_tensor(Device& device, const Shape& shape, DType dtype);

// Copies host values into a new tensor on the device, converted to dtype.
Tensor tensor_from(Device& device, const Shape& shape, const float* values, DType dtype = DType::kF32);
// Overwrites a contiguous tensor with host values, converted to its type. count must equal numel.
void upload(Device& device, const Tensor& tensor, const float* values, int64_t count);
// The elements of a contiguous tensor as float, on the host.
std::vector<float> to_floats(Device& device, const Tensor& tensor);

}  // namespace rocm_sd
