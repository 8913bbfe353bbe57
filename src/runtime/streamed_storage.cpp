#include "runtime/streamed_storage.hpp"

#include <utility>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

thread_local StreamedMaking* making = nullptr;

}  // namespace

StreamedStorage::StreamedStorage(Device& device, size_t bytes) : Storage(nullptr, bytes), device_(device) {
  data_ = own_ = device_.allocate(bytes);
}

StreamedStorage::StreamedStorage(Device& device, const void* values, size_t bytes)
    : Storage(nullptr, bytes), device_(device) {
  allocate_host();
  copy_by_threads(host_, values, bytes);
}

StreamedStorage::~StreamedStorage() {
  if (own_ && !borrowed_) device_.free(own_, bytes_);
  if (!host_) return;
  if (pinned_)
    side_copies(device_)->free_host(host_);
  else
    host_device().free(host_, bytes_);
}

// A copy beside launches reads pinned memory only.
void StreamedStorage::allocate_host() {
  SideCopies* const side = side_copies(device_);
  host_ = side ? side->allocate_host(bytes_) : nullptr;
  pinned_ = host_ != nullptr;
  const bool card = device_.kind() == DeviceKind::kHip || device_.kind() == DeviceKind::kCuda;
  require<OutOfMemoryError>(pinned_ || !card, device_.name(), ": no pinned host memory for ", bytes_,
                            " bytes of weights");
  if (!pinned_) host_ = host_device().allocate(bytes_);
}

void StreamedStorage::enter(SideCopies* side) {
  if (own_) return;
  own_ = device_.allocate(bytes_);
  copy_in(side);
}

void StreamedStorage::enter_at(void* at, SideCopies* side) {
  if (own_) return;
  own_ = at;
  borrowed_ = true;
  copy_in(side);
}

void StreamedStorage::copy_in(SideCopies* side) {
  if (side)
    side->copy_beside(own_, host_, bytes_);
  else
    device_.copy_to_device(own_, host_, bytes_);
  data_ = own_;
}

void StreamedStorage::leave(StreamedStorage* spent) {
  if (!own_) {
    data_ = nullptr;
    return;
  }
  if (!host_) {
    if (spent && spent->host_ && spent->bytes_ == bytes_) {
      host_ = std::exchange(spent->host_, nullptr);
      pinned_ = spent->pinned_;
    } else {
      allocate_host();
    }
    device_.copy_to_host(host_, own_, bytes_);
  }
  if (!std::exchange(borrowed_, false)) device_.free(own_, bytes_);
  own_ = nullptr;
  data_ = nullptr;
}

std::shared_ptr<StreamedStorage> streamed(const Tensor& tensor) {
  return tensor ? std::dynamic_pointer_cast<StreamedStorage>(tensor.storage()) : nullptr;
}

StreamedMaking::StreamedMaking(Device& device) : device_(device), outer_(std::exchange(making, this)) {}
StreamedMaking::~StreamedMaking() { making = outer_; }

std::vector<std::shared_ptr<StreamedStorage>> StreamedMaking::take() {
  std::vector<std::shared_ptr<StreamedStorage>> out = std::exchange(made_, {});
  std::erase_if(out, [](const auto& storage) { return storage.use_count() == 1; });
  return out;
}

std::shared_ptr<Storage> StreamedMaking::storage_for(Device& device, size_t bytes) {
  if (!making) return nullptr;
  const bool on_host = making->device_.kind() == DeviceKind::kHost && device.kind() == DeviceKind::kHost;
  if (&device != &making->device_ && !on_host) return nullptr;
  making->made_.push_back(std::make_shared<StreamedStorage>(making->device_, bytes));
  return making->made_.back();
}

EnteredStorage::EnteredStorage(std::shared_ptr<StreamedStorage> storage) {
  if (!storage || storage->on_device()) return;
  storage->enter();
  storage_ = std::move(storage);
}

EnteredStorage::~EnteredStorage() {
  // What nobody else holds need not be kept: it may have given its host memory away.
  if (storage_ && storage_.use_count() > 1) storage_->leave();
}

}  // namespace rocm_sd
