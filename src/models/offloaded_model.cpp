#include "models/offloaded_model.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "models/bytes_to_load.hpp"
#include "models/parallel_upload.hpp"

namespace rocm_sd {
namespace {

class Offload final : public Visitor {
 public:
  Offload(Device& device, std::vector<StoredWeight>& values) : device_(device), values_(values) {}

 protected:
  void slot(const ParameterSlot& slot) override {
    const StoredWeight stored = slot.fetch();
    values_.push_back({to_host(stored.values), to_host(stored.scales), stored.dtype, stored.products});
  }

 private:
  Tensor to_host(const Tensor& there) {
    if (!there || there.storage()->mapped()) return there;
    if (const auto storage = streamed(there); storage && storage->host()) {
      const Tensor value = make_tensor(host_device(), there.shape(), there.dtype());
      std::memcpy(value.data(), storage->host(), value.bytes());
      return value;
    }
    if (there.storage()->device() == &host_device()) return there;  // loaded or unpacked there
    const Tensor value = make_tensor(host_device(), there.shape(), there.dtype());
    device_.copy_to_host(value.data(), there.data(), there.bytes());
    return value;
  }

  Device& device_;
  std::vector<StoredWeight>& values_;
};

class Restore final : public Visitor {
 public:
  Restore(Device& device, std::vector<StoredWeight>& values) : device_(device), values_(values) {
    if (SideCopies* const side = side_copies(device)) upload_.emplace(*side);
  }
  // Once every copy is before whatever the device is given next.
  void finish() {
    if (upload_) upload_->finish();
  }

 protected:
  void slot(const ParameterSlot& slot) override {
    StoredWeight& value = values_.at(next_++);
    const Tensor values = to_device(slot, value.values);
    if (values && values.storage()->mapped()) value.values = values;  // stays where it is from now on
    slot.store({values, to_device(slot, value.scales), value.dtype, value.products});
  }

 private:
  Tensor to_device(const ParameterSlot& slot, const Tensor& value) {
    if (!value || &device_ == &host_device() || value.storage()->mapped()) return value;
    const Tensor tensor = value.shape() == slot.shape ? make_parameter(device_, slot, value.dtype())
                                                      : make_tensor(device_, value.shape(), value.dtype());
    if (tensor.storage()->mapped())
      std::memcpy(tensor.data(), value.data(), value.bytes());
    else if (upload_)
      upload(tensor.as<char>(), value.as<char>(), value.bytes());
    else
      device_.copy_to_device(tensor.data(), value.data(), value.bytes());
    return tensor;
  }
  void upload(char* to, const char* from, size_t bytes) {
    for (size_t begin = 0; begin < bytes; begin += kMadeBytes) {
      const size_t piece = std::min(kMadeBytes, bytes - begin);
      upload_->add(to + begin, piece,
                   [from = from + begin, piece](char* dst) { std::memcpy(dst, from, piece); });
    }
  }

  Device& device_;
  std::vector<StoredWeight>& values_;
  size_t next_ = 0;
  std::optional<ParallelUpload> upload_;
};

class RestoreToStream final : public Visitor {
 public:
  RestoreToStream(WeightStream& stream, std::vector<StoredWeight>& values)
      : stream_(stream), values_(values) {}

 protected:
  void slot(const ParameterSlot& slot) override {
    using Kind = WeightStream::Kind;
    StoredWeight value = std::exchange(values_.at(next_++), StoredWeight());
    if (value.values && value.values.storage()->mapped()) return slot.store(std::move(value));
    value.values = stream_.add(value.values, slot.weight ? Kind::kTurns : Kind::kAlways);
    value.scales = stream_.add(value.scales, Kind::kAlways);
    slot.store(std::move(value));
  }

 private:
  WeightStream& stream_;
  std::vector<StoredWeight>& values_;
  size_t next_ = 0;
};

class HandBack final : public Visitor {
 public:
  explicit HandBack(std::vector<StoredWeight>& values) : values_(values) {}

 protected:
  void slot(const ParameterSlot& slot) override { slot.store(std::move(values_.at(next_++))); }

 private:
  std::vector<StoredWeight>& values_;
  size_t next_ = 0;
};

class BytesToRestore final : public Visitor {
 public:
  BytesToRestore(const std::vector<StoredWeight>& values, uint64_t& bytes) : values_(values), bytes_(bytes) {}

 protected:
  void slot(const ParameterSlot& slot) override {
    const StoredWeight& value = values_.at(next_++);
    if (lies_in_mapped_memory(slot)) return;
    bytes_ += value.values ? value.values.bytes() : 0;
    bytes_ += value.scales ? value.scales.bytes() : 0;
  }

 private:
  const std::vector<StoredWeight>& values_;
  uint64_t& bytes_;
  size_t next_ = 0;
};

class Clear final : public Visitor {
 protected:
  void slot(const ParameterSlot& slot) override { slot.store(StoredWeight()); }
};

}  // namespace

void OffloadedModel::offload() {
  if (offloaded_) return;
  bytes_ = resident_bytes(visit_);
  if (values_.empty()) {
    std::vector<StoredWeight> values;
    Offload offload(device_, values);
    visit_(offload);  // where the host runs out of memory the model is still whole
    values_ = std::move(values);
  }
  Clear clear;
  visit_(clear);
  offloaded_ = true;
}

uint64_t OffloadedModel::bytes_to_restore() const {
  if (!offloaded_) return 0;
  uint64_t bytes = 0;
  BytesToRestore count(values_, bytes);
  visit_(count);
  return bytes;
}

void OffloadedModel::restore() {
  if (!offloaded_) return;
  try {
    Restore restore(device_, values_);
    visit_(restore);
    restore.finish();
  } catch (...) {
    Clear clear;
    visit_(clear);
    throw;
  }
  offloaded_ = false;
  if (&device_ == &host_device()) values_.clear();  // the same memory, which packed layouts replace
}

void OffloadedModel::restore_to(WeightStream& stream) {
  require<InternalError>(offloaded_, "a model is streamed from host memory");
  RestoreToStream restore(stream, values_);
  visit_(restore);
  values_.clear();
  offloaded_ = false;
}

void OffloadedModel::to_host() {
  offload();
  HandBack hand_back(values_);
  visit_(hand_back);
  values_.clear();
  offloaded_ = false;
}

}  // namespace rocm_sd
