// StreamedStorage: memory of a device whose values also lie in host memory, so that they can leave the device
// and be copied to any place of it for the launches that read them (WeightStream).
#pragma once

#include <memory>
#include <vector>

#include "runtime/side_copies.hpp"
#include "runtime/tensor.hpp"

namespace rocm_sd {

class StreamedStorage final : public Storage {
 public:
  // On the device, uninitialised.
  StreamedStorage(Device& device, size_t bytes);
  // In host memory alone, with these values.
  StreamedStorage(Device& device, const void* values, size_t bytes);
  ~StreamedStorage() override;
  Device* device() const override { return &device_; }

  const void* host() const { return host_; }  // null until the values have left the device
  bool on_device() const { return own_ != nullptr; }
  // Into device memory of its own: when it returns, or by a copy beside launches. Throws OutOfMemoryError.
  void enter(SideCopies* side = nullptr);
  // The same into bytes() of device memory that somebody else keeps until leave().
  void enter_at(void* at, SideCopies* side);
  // Out of it; values that are not in host memory are copied there first: into memory of its own, or that of
  // another of the same size whose values nobody reads any more.
  void leave(StreamedStorage* spent = nullptr);
  // It takes no turns with others while the stream is at work.
  void set_stays() { stays_ = true; }
  bool stays() const { return stays_; }
  // Where launches find the values from now on: a copy of them that somebody else keeps.
  void place(void* at) { data_ = at; }

 private:
  void allocate_host();
  void copy_in(SideCopies* side);

  Device& device_;
  void* own_ = nullptr;
  void* host_ = nullptr;
  bool pinned_ = false, stays_ = false;
  bool borrowed_ = false;  // own_ is somebody else's to free
};

// The storage where it is a StreamedStorage, else null.
std::shared_ptr<StreamedStorage> streamed(const Tensor& tensor);

// While it lives on the thread, tensors that are made on the device, or on the host where the device computes
// there, have streamed storages: layouts that are made of streamed weights.
class StreamedMaking {
 public:
  explicit StreamedMaking(Device& device);
  ~StreamedMaking();
  StreamedMaking(const StreamedMaking&) = delete;
  StreamedMaking& operator=(const StreamedMaking&) = delete;

  // Those made since the last take() that somebody else holds.
  std::vector<std::shared_ptr<StreamedStorage>> take();
  // A storage for a tensor that is made on this device; null where none is making, or for another device.
  static std::shared_ptr<Storage> storage_for(Device& device, size_t bytes);

 private:
  Device& device_;
  StreamedMaking* outer_;
  std::vector<std::shared_ptr<StreamedStorage>> made_;
};

// Values on the device while this lives.
class EnteredStorage {
 public:
  explicit EnteredStorage(std::shared_ptr<StreamedStorage> storage);
  ~EnteredStorage();
  const std::shared_ptr<StreamedStorage>& get() const { return storage_; }  // null: it was there before
  EnteredStorage(EnteredStorage&&) = default;
  EnteredStorage& operator=(EnteredStorage&&) = delete;

 private:
  std::shared_ptr<StreamedStorage> storage_;  // null: it was there before
};

}  // namespace rocm_sd
