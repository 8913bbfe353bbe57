#include "models/original_weights.hpp"

#include <algorithm>

namespace rocm_sd {
namespace {

bool is_plain_float(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

// What a layer's matrix was loaded as, which its layout now may be wider than.
DType loaded_as(const ParameterSlot& slot, DType now) {
  return slot.weight && *slot.weight ? slot.weight->stored_as() : now;
}

// A contiguous tensor of a device, or of the host, in host memory.
Tensor on_host(const Tensor& x) {
  Device* device = x.storage()->device();
  if (!device || device == &host_device()) return x;
  const Tensor copy = make_tensor(host_device(), x.shape(), x.dtype());
  device->copy_to_host(copy.data(), x.data(), x.bytes());
  return copy;
}

}  // namespace

Tensor OriginalWeights::find(Component component, const std::string& name) const {
  const auto found = values_.find({component, name});
  return found == values_.end() ? Tensor() : found->second;
}

bool OriginalWeights::has_room(size_t bytes) const { return bytes <= host_device().memory().free / 2; }

void OriginalWeights::keep(Component component, const std::string& name, Tensor values) {
  values_[{component, name}] = std::move(values);
}

void OriginalWeights::drop(Component component, const std::string& name) { values_.erase({component, name}); }

void OriginalWeights::clear() { values_.clear(); }

uint64_t OriginalWeights::bytes() const {
  uint64_t bytes = 0;
  for (const auto& [key, tensor] : values_) bytes += tensor.bytes();
  return bytes;
}

bool OriginalSource::in_memory(const std::string& name) const {
  const StoredTensor& stored = store_.at(name);
  return stored.ref.file->in_memory(*stored.ref.entry) != nullptr;
}

// f32 is what merging reads; every other type must be the file's own.
bool OriginalSource::is_exact(const std::string& name, DType loaded_as) const {
  const StoredTensor& stored = store_.at(name);
  return loaded_as == DType::kF32 || (loaded_as == stored.dtype() && stored.scale == 1.0f);
}

void OriginalSource::keep(const std::string& name, const Shape& shape) const {
  if (in_memory(name) || kept_.find(store_.component(), name)) return;
  const StoredTensor& stored = store_.at(name);
  const bool plain = is_plain_float(stored.dtype()) && stored.scale == 1.0f;
  const DType dtype = plain ? stored.dtype() : DType::kF32;
  if (!kept_.has_room(static_cast<size_t>(shape.numel()) * dtype_size(dtype))) return;
  const Tensor values = make_tensor(host_device(), shape, dtype);
  file_.read(name, shape, dtype, values.data());
  kept_.keep(store_.component(), name, values);
}

void OriginalSource::keep_from(const ParameterSlot& slot, const Tensor& whole) const {
  if (!whole || slot.is_cut() || whole.shape() != slot.shape || !is_plain_float(whole.dtype())) return;
  const DType dtype = loaded_as(slot, whole.dtype());
  const auto known = [&](const ParameterSlot::Part& part) {
    return in_memory(part.name) || kept_.find(store_.component(), part.name) || !is_exact(part.name, dtype);
  };
  if (std::all_of(slot.parts.begin(), slot.parts.end(), known) || !kept_.has_room(whole.bytes())) return;
  const Tensor values = converted(on_host(whole), dtype);
  int64_t begin = 0;
  for (const ParameterSlot::Part& part : slot.parts) {
    const Tensor own = values.narrow(0, begin, part.shape[0]).reshape(part.shape);
    begin += part.shape[0];
    if (!known(part)) kept_.keep(store_.component(), part.name, own);
  }
}

void OriginalSource::release(const ParameterSlot& slot) const {
  for (const ParameterSlot::Part& part : slot.parts)
    if (slot.weight && *slot.weight && slot.weight->shape() == slot.shape &&
        is_exact(part.name, slot.weight->stored_as()))
      kept_.drop(store_.component(), part.name);
}

void OriginalSource::read(const std::string& name, const Shape& shape, DType dtype, void* dst) const {
  read_part(name, shape, 0, shape.numel(), dtype, dst);
}

void OriginalSource::read_part(const std::string& name, const Shape& shape, int64_t begin, int64_t count,
                               DType dtype, void* dst) const {
  const Tensor kept = kept_.find(store_.component(), name);
  if (kept) {
    store_.check(name, shape);
    const char* from =
        static_cast<const char*>(kept.data()) + static_cast<size_t>(begin) * dtype_size(kept.dtype());
    return convert_elements(from, kept.dtype(), dst, dtype, count);
  }
  if (count == shape.numel()) return file_.read(name, shape, dtype, dst);
  file_.read_part(name, shape, begin, count, dtype, dst);
}

// On the host a layer takes the kept tensor itself.
Tensor OriginalSource::ready(const ParameterSlot& slot, DType dtype, Device& device) const {
  if (slot.is_cut()) return {};
  if (&device == &host_device() && slot.parts.size() == 1)
    if (const Tensor kept = kept_.find(store_.component(), slot.parts.front().name);
        kept && kept.dtype() == dtype)
      return kept.reshape(slot.shape);
  return file_.ready(slot, dtype, device);
}

}  // namespace rocm_sd
