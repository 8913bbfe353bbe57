// LoRAs merged on a GPU: by its own products, from the weights as they were before, which stay on the device.
// Neither the model's file is read nor a weight brought to the host, so that a LoRA comes, changes or goes in
// little more time than its own file takes.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "models/adapter_use.hpp"
#include "models/parameters.hpp"

namespace rocm_sd {

// Weights as they were before adapters changed them. Tensors that nothing else holds: their bytes are the
// price.
class AdapterBases {
 public:
  Tensor find(Component component, const std::string& slot) const;  // empty: not kept
  void keep(Component component, const std::string& slot, Tensor base) {
    bases_[{component, slot}] = std::move(base);
  }
  void drop(Component component, const std::string& slot) { bases_.erase({component, slot}); }
  void drop(Component component);
  // What is changed then is read from the model's file when the next adapter comes.
  void clear() { bases_.clear(); }
  uint64_t bytes() const;

 private:
  std::map<std::pair<Component, std::string>, Tensor> bases_;  // by the first tensor of the slot
};

// The change of a loaded component from one set of adapters to another. bases must outlive it.
class DeviceMerge {
 public:
  DeviceMerge(AdapterBases& bases, Component component, std::vector<AdapterUse> before,
              std::vector<AdapterUse> after)
      : bases_(bases), component_(component), before_(std::move(before)), after_(std::move(after)) {}

  // The slot's tensor with the new adapters merged, or as it was before any where none of them changes it.
  // Empty where it cannot be made here and is to be read from the model's file: on the host, for adapters
  // that are no plain LoRA (up times down), in another type, and where what it was before is not known. Sums
  // in f32 of factors rounded to dtype. Throws OutOfMemoryError.
  Tensor ready(const ParameterSlot& slot, DType dtype, Device& device);

 private:
  Tensor merged(const ParameterSlot& slot, const Tensor& base, Tensor target, Device& device) const;

  AdapterBases& bases_;
  Component component_;
  std::vector<AdapterUse> before_, after_;
};

}  // namespace rocm_sd
