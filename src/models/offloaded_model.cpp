#include "models/offloaded_model.hpp"

#include <cstring>

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
  Restore(Device& device, std::vector<StoredWeight>& values) : device_(device), values_(values) {}

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
    else
      device_.copy_to_device(tensor.data(), value.data(), value.bytes());
    return tensor;
  }

  Device& device_;
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

void OffloadedModel::restore() {
  if (!offloaded_) return;
  try {
    Restore restore(device_, values_);
    visit_(restore);
  } catch (...) {
    Clear clear;
    visit_(clear);
    throw;
  }
  offloaded_ = false;
  if (&device_ == &host_device()) values_.clear();  // the same memory, which packed layouts replace
}

void OffloadedModel::to_host() {
  offload();
  HandBack hand_back(values_);
  visit_(hand_back);
  values_.clear();
  offloaded_ = false;
}

}  // namespace rocm_sd
