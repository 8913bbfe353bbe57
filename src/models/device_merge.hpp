// LoRAs merged on a GPU: by its own products, from the weights as they were before, which stay on the device.
// Neither the model's file is read nor a weight brought to the host, so that a LoRA comes, changes or goes in
// little more time than its own file takes.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "models/adapter_use.hpp"
#include "models/device_factors.hpp"
#include "models/parameters.hpp"
#include "runtime/exec.hpp"

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
  void clear();
  uint64_t bytes() const;  // of the weights and of the adapters' factors
  uint64_t bytes(Component component) const;

  // The file's factors, brought to the device once. Those of files that no use names are given back.
  const DeviceFactors& factors(Device& device, const std::shared_ptr<const AdapterFile>& file,
                               Component component, DType dtype);
  void keep_factors(Component component, const std::vector<AdapterUse>& uses);
  // Memory of a merged weight: a piece of a larger one, because a driver's allocations take long.
  Tensor allocate(Device& device, const Shape& shape, DType dtype);

 private:
  std::map<std::pair<Component, std::string>, Tensor> bases_;  // by the first tensor of the slot
  std::map<std::tuple<std::shared_ptr<const AdapterFile>, Component, DType>, std::unique_ptr<DeviceFactors>>
      factors_;
  // And how many of its elements are given away.
  std::map<std::pair<Device*, DType>, std::pair<Tensor, int64_t>> slabs_;
};

// The change of a loaded component from one set of adapters to another. bases must outlive it.
class DeviceMerge {
 public:
  // device: that the component lies on.
  DeviceMerge(AdapterBases& bases, Component component, std::vector<AdapterUse> before,
              std::vector<AdapterUse> after, Device& device);

  // The slot's tensor with the new adapters merged, or as it was before any where none of them changes it.
  // Empty where it cannot be made here and is to be read from the model's file: on the host, for adapters
  // that are no plain LoRA (up times down), in another type, for slots that are cut from their tensors, and
  // where what it was before is not known. Sums
  // in f32 of factors rounded to dtype. Throws OutOfMemoryError.
  Tensor ready(const ParameterSlot& slot, DType dtype, Device& device);
  // Where ready() gave nothing: what its slot was before any adapter, if that is known.
  const Tensor& base() const { return base_; }

 private:
  Tensor find_base(const ParameterSlot& slot) const;
  Tensor merged(const ParameterSlot& slot, const Tensor& base, Tensor target, Device& device);
  Tensor changed(Exec& ex, const std::string& name, const Tensor& before);

  AdapterBases& bases_;
  Component component_;
  std::vector<AdapterUse> before_, after_;
  Arena scratch_;
  Tensor base_;
};

}  // namespace rocm_sd
