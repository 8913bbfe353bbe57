#include "kernels/weight.hpp"

#include "base/error.hpp"
#include "kernels/eight_bit.hpp"

namespace rocm_sd {
namespace {

// Implementations for the host make their layouts with the host's instructions.
std::optional<DeviceAccess> access_to(const Tensor& tensor) {
  Device* device = tensor ? tensor.storage()->device() : nullptr;
  return device ? std::optional<DeviceAccess>(std::in_place, *device) : std::nullopt;
}

}  // namespace

Tensor converted(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  const Tensor out = make_tensor(host_device(), x.shape(), dtype);
  convert_elements(x.data(), x.dtype(), out.data(), dtype, x.numel());
  return out;
}

Tensor Weight::for_products(const Tensor& values) const {
  if (state_->scales) return dequantized(values, state_->scales, dtype_);
  return converted(values, dtype_);
}

Tensor Weight::plain() const {
  const std::lock_guard lock(state_->mutex);
  return for_products(state_->values());
}

StoredWeight Weight::stored() const {
  const std::lock_guard lock(state_->mutex);
  return {state_->values(), state_->scales, dtype_, products_};
}

Tensor Weight::scales() const {
  const std::lock_guard lock(state_->mutex);
  return state_->scales;
}

std::shared_ptr<const Weight::Pack> Weight::packed(const std::string& key, const MakePack& make,
                                                   bool keep_plain) const {
  const std::lock_guard lock(state_->mutex);
  for (const auto& [name, pack] : state_->packs)
    if (name == key) return pack;
  if (!state_->plain) state_->plain = state_->packs.front().second->unpack();
  const Tensor plain = for_products(state_->plain);
  const auto access = access_to(plain);
  auto pack = make(plain);
  // A layout in 8 bits, if there is one, is the first: then they stay.
  const bool eight_bit_stays = keep_plain || state_->keep_plain || !state_->packs.empty();
  state_->packs.emplace_back(key, pack);
  state_->keep_plain |= keep_plain;
  if (!state_->keep_plain) state_->plain = Tensor();
  if (!eight_bit_stays) state_->scales = Tensor();
  return pack;
}

std::shared_ptr<const Weight::Pack> Weight::packed_as_stored(const std::string& key,
                                                             const MakePack& make) const {
  const std::lock_guard lock(state_->mutex);
  for (const auto& [name, pack] : state_->packs)
    if (name == key) return pack;
  if (!state_->plain) state_->plain = state_->packs.front().second->unpack();
  const auto access = access_to(state_->plain);
  auto pack = make(state_->plain);
  // In front, so that it is the one that is unpacked where the others are in dtype().
  state_->packs.emplace(state_->packs.begin(), key, pack);
  if (!state_->keep_plain) state_->plain = Tensor();
  return pack;
}

std::shared_ptr<const Weight::Pack> Weight::find(const std::string& key) const {
  const std::lock_guard lock(state_->mutex);
  for (const auto& [name, pack] : state_->packs)
    if (name == key) return pack;
  return nullptr;
}

size_t Weight::stored_bytes() const {
  const std::lock_guard lock(state_->mutex);
  size_t bytes = state_->plain ? state_->plain.bytes() : 0;
  if (state_->scales) bytes += state_->scales.bytes();
  for (const auto& [name, pack] : state_->packs) bytes += pack->bytes();
  return bytes;
}

}  // namespace rocm_sd
