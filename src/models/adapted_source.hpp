// AdaptedSource: a model's parameters with the changes of LoRAs merged into them as they are read.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "models/adapter_use.hpp"
#include "models/device_merge.hpp"
#include "models/original_weights.hpp"
#include "models/parameters.hpp"

namespace rocm_sd {

// weight [out,in,...] of `shape` in f32, changed in place. Products in f32, scales in double. DoRA's
// normalisation sees the weight as it is then: adapters before it have changed it.
void merge_adapter(const AdapterFile& file, const AdapterModule& module, double strength, const Shape& shape,
                   float* weight);

// The base must outlive the source. Adapters act in their order.
class AdaptedSource final : public ParameterSource {
 public:
  // merge: makes what it can of a loaded model on its GPU, and knows what slots were before; null: everything
  // is read from the base. originals: the base itself, where it keeps what adapters change; null: it does
  // not.
  AdaptedSource(const ParameterSource& base, Component component, std::vector<AdapterUse> uses,
                DeviceMerge* merge = nullptr, const OriginalSource* originals = nullptr)
      : base_(base), component_(component), uses_(std::move(uses)), merge_(merge), originals_(originals) {}

  // Whether any adapter changes this tensor.
  bool changes(const std::string& name) const { return any_changes(uses_, component_, name); }

  std::string title() const override { return base_.title(); }
  bool has(const std::string& name) const override { return base_.has(name); }
  void read(const std::string& name, const Shape& shape, DType dtype, void* dst) const override;
  void read_part(const std::string& name, const Shape& shape, int64_t begin, int64_t count, DType dtype,
                 void* dst) const override;
  bool readable() const override { return base_.readable(); }
  Tensor ready(const ParameterSlot& slot, DType dtype, Device& device) const override;
  void ignore(const std::string& name) const override { base_.ignore(name); }

 private:
  // The merged tensor; kept until another is asked for, because large ones are read in parts.
  const std::vector<float>& merged(const std::string& name, const Shape& shape) const;

  const ParameterSource& base_;
  Component component_;
  std::vector<AdapterUse> uses_;
  DeviceMerge* merge_;
  const OriginalSource* originals_;
  mutable std::mutex mutex_;
  mutable std::string last_name_;
  mutable std::vector<float> last_;
};

}  // namespace rocm_sd
