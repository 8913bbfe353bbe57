#include "pytorch_integration/packs.hpp"

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "base/error.hpp"

namespace rocm_sd::torch_ops {
namespace {

constexpr size_t kSamples = 64;
using Samples = std::array<uint32_t, kSamples>;

struct Pack {
  std::mutex mutex;
  Weight weight;
  void* data = nullptr;
  Shape sizes, strides;
  DType dtype = DType::kF32;
  Samples samples{};
};

struct Registry {
  std::mutex mutex;
  int64_t last = 0;  // numbers are never used twice: a stale one finds nothing
  std::map<int64_t, std::shared_ptr<Pack>> packs;
};
Registry& registry() {
  static auto& instance = *new Registry;
  return instance;
}

std::shared_ptr<Pack> find(int64_t id) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.packs.find(id);
  return found == all.packs.end() ? nullptr : found->second;
}

// Elements spread over the tensor, as bits. Whoever writes new values writes nearly all of them (a merged
// LoRA, an optimiser's step), so some of these differ.
Samples sample(const AtTensor& weight, DType dtype) {
  Samples out{};
  const Shape sizes = sizes_of(weight), strides = strides_of(weight);
  const int64_t count = sizes.numel();
  const auto* bytes = static_cast<const char*>(weight.data_ptr());
  uint64_t state = 0x9E3779B97F4A7C15u;
  for (uint32_t& bits : out) {
    state = state * 6364136223846793005u + 1442695040888963407u;  // Knuth's MMIX generator
    int64_t index = static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(count)), offset = 0;
    for (int i = sizes.rank() - 1; i >= 0; --i) {
      offset += index % sizes[i] * strides[i];
      index /= sizes[i];
    }
    std::memcpy(&bits, bytes + static_cast<size_t>(offset) * dtype_size(dtype), dtype_size(dtype));
  }
  return out;
}

}  // namespace

int64_t new_pack() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.packs.emplace(++all.last, std::make_shared<Pack>());
  return all.last;
}

void drop_pack(int64_t id) {
  std::shared_ptr<Pack> last;  // freed after the lock is gone
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (auto node = all.packs.extract(id)) last = std::move(node.mapped());
}

bool is_live_pack(int64_t id) { return id != 0 && find(id) != nullptr; }

Weight packed_weight(int64_t id, const AtTensor& weight) {
  const auto pack = id == 0 ? nullptr : find(id);
  if (!pack || weight.numel() == 0) return Weight(row_major_of(weight));
  const DType dtype = *dtype_of(weight);
  const Samples samples = weight.is_cpu() ? sample(weight, dtype) : Samples{};
  const std::lock_guard lock(pack->mutex);
  const bool same = pack->weight && pack->data == weight.data_ptr() && pack->sizes == sizes_of(weight) &&
                    pack->strides == strides_of(weight) && pack->dtype == dtype && pack->samples == samples;
  if (!same) {
    pack->weight = Weight(row_major_of(weight));
    pack->data = weight.data_ptr();
    pack->sizes = sizes_of(weight);
    pack->strides = strides_of(weight);
    pack->dtype = dtype;
    pack->samples = samples;
  }
  return pack->weight;
}

}  // namespace rocm_sd::torch_ops
