// StoreSource: a checkpoint's component as the source of a model's parameters.
#pragma once

#include "models/parameters.hpp"
#include "weights/store.hpp"

namespace rocm_sd {

// The store must outlive the source.
class StoreSource final : public ParameterSource {
 public:
  explicit StoreSource(const WeightStore& store) : store_(store) {}
  std::string title() const override { return store_.title(); }
  bool has(const std::string& name) const override { return store_.has(name); }
  void read(const std::string& name, const Shape& shape, DType dtype, void* dst) const override {
    store_.read(name, shape, dtype, dst);
  }
  void read_part(const std::string& name, const Shape& shape, int64_t begin, int64_t count, DType dtype,
                 void* dst) const override {
    store_.read_part(name, shape, begin, count, dtype, dst);
  }
  bool concurrent() const override { return true; }
  Tensor ready(const ParameterSlot& slot, DType dtype, Device& device) const override;
  void ignore(const std::string& name) const override {
    if (store_.has(name)) store_.mark_used(name);
  }

 private:
  const WeightStore& store_;
};

}  // namespace rocm_sd
