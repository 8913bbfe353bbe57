#include "models/store_source.hpp"

namespace rocm_sd {
namespace {

// Memory of a live model's owner, who keeps it for as long as the model is used.
class BorrowedStorage final : public Storage {
 public:
  using Storage::Storage;
};

}  // namespace

// A live model's tensor on the host is used where it lies, if it is whole and of the type that is asked for.
Tensor StoreSource::ready(const ParameterSlot& slot, DType dtype, Device& device) const {
  if (device.kind() != DeviceKind::kHost || slot.parts.size() != 1) return {};
  const StoredTensor& stored = store_.at(slot.parts[0].name);
  const void* data = stored.ref.file->in_memory(*stored.ref.entry);
  const bool as_is = data != nullptr && stored.dtype() == dtype && !stored.transposed &&
                     stored.row_begin == 0 && stored.scale == 1.0f &&
                     shapes_compatible(stored.shape, slot.shape) &&
                     stored.shape.numel() == stored.ref.entry->numel();
  if (!as_is) return {};
  store_.mark_used(slot.parts[0].name);
  const size_t bytes = static_cast<size_t>(slot.shape.numel()) * dtype_size(dtype);
  return Tensor(std::make_shared<BorrowedStorage>(const_cast<void*>(data), bytes), slot.shape, dtype);
}

}  // namespace rocm_sd
