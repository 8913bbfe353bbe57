#include "kernels/weight.hpp"

#include "base/error.hpp"

namespace rocm_sd {
namespace {

// Implementations for the host make their layouts with the host's instructions.
std::optional<DeviceAccess> access_to(const Tensor& tensor) {
  Device* device = tensor ? tensor.storage()->device() : nullptr;
  return device ? std::optional<DeviceAccess>(std::in_place, *device) : std::nullopt;
}

}  // namespace

Tensor Weight::plain() const {
  const std::lock_guard lock(state_->mutex);
  if (state_->plain) return state_->plain;
  return state_->packs.front().second->unpack();
}

std::shared_ptr<const Weight::Pack> Weight::packed(
    const std::string& key, const std::function<std::shared_ptr<const Pack>(const Tensor&)>& make,
    bool keep_plain) const {
  const std::lock_guard lock(state_->mutex);
  for (const auto& [name, pack] : state_->packs)
    if (name == key) return pack;
  if (!state_->plain) state_->plain = state_->packs.front().second->unpack();
  const auto access = access_to(state_->plain);
  auto pack = make(state_->plain);
  state_->packs.emplace_back(key, pack);
  state_->keep_plain |= keep_plain;
  if (!state_->keep_plain) state_->plain = Tensor();
  return pack;
}

std::shared_ptr<const Weight::Pack> Weight::find(const std::string& key) const {
  const std::lock_guard lock(state_->mutex);
  for (const auto& [name, pack] : state_->packs)
    if (name == key) return pack;
  return nullptr;
}

size_t Weight::bytes_held() const {
  const std::lock_guard lock(state_->mutex);
  size_t bytes = state_->plain ? state_->plain.bytes() : 0;
  for (const auto& [name, pack] : state_->packs) bytes += pack->bytes();
  return bytes;
}

}  // namespace rocm_sd
