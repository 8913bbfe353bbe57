#include "models/parked.hpp"

namespace rocm_sd {
namespace {

class Park final : public Visitor {
 public:
  Park(Device& device, std::vector<Tensor>& values) : device_(device), values_(values) {}

 protected:
  void slot(const ParameterSlot& slot) override {
    const Tensor plain = slot.fetch();
    if (plain.storage()->device() == &host_device()) {  // loaded or unpacked there
      values_.push_back(plain);
      return;
    }
    const Tensor value = make_tensor(host_device(), plain.shape(), plain.dtype());
    device_.copy_to_host(value.data(), plain.data(), plain.bytes());
    values_.push_back(value);
  }

 private:
  Device& device_;
  std::vector<Tensor>& values_;
};

class Restore final : public Visitor {
 public:
  Restore(Device& device, const std::vector<Tensor>& values) : device_(device), values_(values) {}

 protected:
  void slot(const ParameterSlot& slot) override {
    const Tensor& value = values_.at(next_++);
    if (&device_ == &host_device()) return slot.store(value);
    const Tensor tensor = make_tensor(device_, value.shape(), value.dtype());
    device_.copy_to_device(tensor.data(), value.data(), value.bytes());
    slot.store(tensor);
  }

 private:
  Device& device_;
  const std::vector<Tensor>& values_;
  size_t next_ = 0;
};

class Clear final : public Visitor {
 protected:
  void slot(const ParameterSlot& slot) override { slot.store(Tensor()); }
};

}  // namespace

void ParkedModel::park() {
  if (parked_) return;
  bytes_ = bytes_held(visit_);
  if (values_.empty()) {
    std::vector<Tensor> values;
    Park park(device_, values);
    visit_(park);  // where the host runs out of memory the model is still whole
    values_ = std::move(values);
  }
  Clear clear;
  visit_(clear);
  parked_ = true;
}

void ParkedModel::restore() {
  if (!parked_) return;
  try {
    Restore restore(device_, values_);
    visit_(restore);
  } catch (...) {
    Clear clear;
    visit_(clear);
    throw;
  }
  parked_ = false;
  if (&device_ == &host_device()) values_.clear();  // the same memory, which packed layouts replace
}

}  // namespace rocm_sd
