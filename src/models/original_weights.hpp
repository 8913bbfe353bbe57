// Tensors as a model's file has them, in host memory: those that LoRAs changed on the host or that are stored
// in fewer bits. With them a LoRA comes, changes or goes without a read of the model's file.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "models/store_source.hpp"

namespace rocm_sd {

// A cache of the file's tensors: what it has is always the file's value, whatever the weights in use are.
class OriginalWeights {
 public:
  Tensor find(Component component, const std::string& name) const;  // empty: not kept
  // Kept where the host has memory for it: at most half of what is free then.
  bool has_room(size_t bytes) const;
  void keep(Component component, const std::string& name, Tensor values);
  void drop(Component component, const std::string& name);
  void clear();
  uint64_t bytes() const;

 private:
  std::map<std::pair<Component, std::string>, Tensor> values_;
};

// A component's tensors from `kept`, else from its file. Both must outlive the source.
class OriginalSource final : public ParameterSource {
 public:
  OriginalSource(const WeightStore& store, OriginalWeights& kept)
      : store_(store), file_(store), kept_(kept) {}

  // Reads the tensor from the file for good, unless it is kept or lies in memory already.
  void keep(const std::string& name, const Shape& shape) const;
  // The same without the file: whole are the slot's values before any adapter, on the host or a device. Of
  // use only where they are the file's to the bit; else nothing happens.
  void keep_from(const ParameterSlot& slot, const Tensor& whole) const;
  // The slot's tensors are not changed by any adapter now: what its layer holds to the bit is not kept.
  void release(const ParameterSlot& slot) const;

  std::string title() const override { return file_.title(); }
  bool has(const std::string& name) const override { return file_.has(name); }
  void read(const std::string& name, const Shape& shape, DType dtype, void* dst) const override;
  void read_part(const std::string& name, const Shape& shape, int64_t begin, int64_t count, DType dtype,
                 void* dst) const override;
  Tensor ready(const ParameterSlot& slot, DType dtype, Device& device) const override;
  void ignore(const std::string& name) const override { file_.ignore(name); }

 private:
  bool in_memory(const std::string& name) const;
  bool is_exact(const std::string& name, DType loaded_as) const;

  const WeightStore& store_;
  StoreSource file_;
  OriginalWeights& kept_;
};

}  // namespace rocm_sd
