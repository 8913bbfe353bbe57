#include "kernels/weight.hpp"

#include "base/error.hpp"
#include "base/log.hpp"
#include "kernels/eight_bit.hpp"
#include "runtime/weight_stream.hpp"

namespace rocm_sd {
namespace {

// Implementations for the host make their layouts with the host's instructions.
std::optional<DeviceAccess> access_to(const Tensor& tensor) {
  Device* device = tensor ? tensor.storage()->device() : nullptr;
  return device ? std::optional<DeviceAccess>(std::in_place, *device) : std::nullopt;
}

using PackPointer = std::shared_ptr<const Weight::Pack>;
using Memory = std::vector<std::shared_ptr<StreamedStorage>>;

// A layout of a streamed weight with the memory that was made for it: what the pointer that ops get deletes.
struct StreamedPack {
  PackPointer pack;
  Memory memory;
  void operator()(const Weight::Pack*) const {}
};
const Memory& memory_of(const PackPointer& pack) {
  static const Memory none;
  const auto* own = std::get_deleter<StreamedPack>(pack);
  return own ? own->memory : none;
}

// The launches that follow read the layout.
const PackPointer& used(const PackPointer& pack) {
  for (const auto& storage : memory_of(pack))
    require<InternalError>(WeightStream::use(storage) || storage->on_device(),
                           "a streamed weight was used outside of a program");
  return pack;
}

// The tensor, or a copy on the host of a streamed one whose values are not on the device.
Tensor at_hand(const Tensor& plain) {
  const std::shared_ptr<StreamedStorage> storage = streamed(plain);
  if (!storage || storage->on_device()) return plain;
  const Tensor copy = make_tensor(host_device(), plain.shape(), plain.dtype());
  std::copy_n(static_cast<const char*>(storage->host()), plain.bytes(), static_cast<char*>(copy.data()));
  return copy;
}

// The plain values of a Weight's state: for the launches that follow, or, outside of a program, at hand.
template <class State>
Tensor values_of(const State& state) {
  if (state.plain) {
    const std::shared_ptr<StreamedStorage> storage = streamed(state.plain);
    return storage && WeightStream::use(storage) ? state.plain : at_hand(state.plain);
  }
  const PackPointer& first = state.packs.front().second;
  std::vector<EnteredStorage> entered;
  for (const auto& storage : memory_of(first)) entered.emplace_back(storage);
  return first->unpack();
}

// While a layout of a streamed weight is made: what it is made of is on the device, and what is made leaves
// it afterwards. Of other weights it does nothing.
class StreamedLayout {
 public:
  template <class State>
  explicit StreamedLayout(const State& state) {
    Memory sources = state.packs.empty() ? Memory() : memory_of(state.packs.front().second);
    if (auto storage = streamed(state.plain)) sources = {std::move(storage)};
    if (sources.empty()) return;
    making_.emplace(*sources.front()->device());
    if (auto scales = streamed(state.scales)) sources.push_back(std::move(scales));
    for (auto& storage : sources) entered_.emplace_back(std::move(storage));
  }
  ~StreamedLayout() {
    if (!making_) return;
    note_made();
    try {
      for (const auto& storage : made_)
        if (storage.use_count() > 1) storage->leave(spent(storage->bytes()));
    } catch (const Error& error) {  // it stays, and takes its memory
      log().warn("{}", error.what());
    }
  }
  StreamedLayout(const StreamedLayout&) = delete;
  StreamedLayout& operator=(const StreamedLayout&) = delete;

  // Before the layout is made: what was made until now is no part of it.
  void note_made() {
    for (auto& storage : making_ ? making_->take() : Memory()) made_.push_back(std::move(storage));
  }
  PackPointer owned(PackPointer pack) {
    if (!making_) return pack;
    Memory memory = making_->take();
    if (memory.size() > 1)  // launches read all of them at once
      for (const auto& storage : memory) storage->set_stays();
    made_.insert(made_.end(), memory.begin(), memory.end());
    const Weight::Pack* const raw = pack.get();
    return {raw, StreamedPack{std::move(pack), std::move(memory)}};
  }

 private:
  // A source that nobody else holds now: pinned memory takes longer to get than to copy to.
  StreamedStorage* spent(size_t bytes) const {
    for (const EnteredStorage& entered : entered_)
      if (const auto& source = entered.get();
          source && source.use_count() == 1 && source->bytes() == bytes && source->host())
        return source.get();
    return nullptr;
  }

  std::optional<StreamedMaking> making_;
  std::vector<EnteredStorage> entered_;
  Memory made_;
};

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
  // Launches on the host ask for it when they run: nothing that a program could have been planned with.
  const Tensor& plain = state_->plain;
  const bool by_launch =
      plain && plain.storage()->device() && plain.storage()->device()->kind() == DeviceKind::kHost;
  const EnteredStorage scales(streamed(state_->scales));
  return for_products(by_launch ? at_hand(plain) : values_of(*state_));
}

StoredWeight Weight::stored() const {
  const std::lock_guard lock(state_->mutex);
  return {values_of(*state_), state_->scales, dtype_, products_};
}

Tensor Weight::scales() const {
  const std::lock_guard lock(state_->mutex);
  return state_->scales;
}

std::shared_ptr<const Weight::Pack> Weight::packed(const std::string& key, const MakePack& make,
                                                   bool keep_plain) const {
  const std::lock_guard lock(state_->mutex);
  for (const auto& [name, pack] : state_->packs)
    if (name == key) return used(pack);
  StreamedLayout streaming(*state_);
  if (!state_->plain) state_->plain = state_->packs.front().second->unpack();
  const Tensor plain = for_products(state_->plain);
  const auto access = access_to(plain);
  streaming.note_made();
  const PackPointer pack = streaming.owned(make(plain));
  // A layout in 8 bits, if there is one, is the first: then they stay.
  const bool eight_bit_stays = keep_plain || state_->keep_plain || !state_->packs.empty();
  state_->packs.emplace_back(key, pack);
  state_->keep_plain |= keep_plain;
  if (!state_->keep_plain) state_->plain = Tensor();
  if (!eight_bit_stays) state_->scales = Tensor();
  return used(pack);
}

std::shared_ptr<const Weight::Pack> Weight::packed_as_stored(const std::string& key, const MakePack& make,
                                                             bool keep_plain) const {
  const std::lock_guard lock(state_->mutex);
  for (const auto& [name, pack] : state_->packs)
    if (name == key) return used(pack);
  StreamedLayout streaming(*state_);
  if (!state_->plain) state_->plain = state_->packs.front().second->unpack();
  const auto access = access_to(state_->plain);
  streaming.note_made();
  const PackPointer pack = streaming.owned(make(state_->plain));
  // In front, so that it is the one that is unpacked where the others are in dtype().
  state_->packs.emplace(state_->packs.begin(), key, pack);
  state_->keep_plain = state_->keep_plain || keep_plain;
  if (!state_->keep_plain) state_->plain = Tensor();
  return used(pack);
}

std::shared_ptr<const Weight::Pack> Weight::find(const std::string& key) const {
  const std::lock_guard lock(state_->mutex);
  for (const auto& [name, pack] : state_->packs)
    if (name == key) return used(pack);
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
