#include "runtime/arena.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

constexpr size_t kAlignment = 64;  // a cache line; wide vector loads never cross one at a block's start
size_t aligned(size_t bytes) {
  return (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
}

// A piece of the arena: the arena owns the memory.
class SliceStorage final : public Storage {
 public:
  SliceStorage(std::shared_ptr<Storage> block, void* data, size_t bytes)
      : Storage(data, bytes), block_(std::move(block)) {}

 private:
  std::shared_ptr<Storage> block_;  // keeps the memory while a result is still looked at
};

size_t most_alive(const std::vector<BlockLifetime>& blocks) {
  std::map<int64_t, int64_t> change;  // event number -> bytes gained there
  for (const BlockLifetime& b : blocks) {
    change[b.birth] += static_cast<int64_t>(aligned(b.bytes));
    change[b.death] -= static_cast<int64_t>(aligned(b.bytes));
  }
  int64_t alive = 0, most = 0;
  for (const auto& [event, gained] : change) most = std::max(most, alive += gained);
  return static_cast<size_t>(most);
}

}  // namespace

ArenaPlan pack_arena(const std::vector<BlockLifetime>& blocks) {
  ArenaPlan plan;
  plan.slots.resize(blocks.size());
  plan.lower_bound = most_alive(blocks);
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return blocks[a].bytes > blocks[b].bytes; });

  std::vector<size_t> placed;  // sorted by offset
  for (const size_t i : order) {
    const BlockLifetime& b = blocks[i];
    const size_t bytes = aligned(b.bytes);
    size_t offset = 0;
    for (const size_t j : placed) {  // the first gap wide enough between blocks alive at the same time
      const bool overlap_in_time = blocks[j].birth < b.death && b.birth < blocks[j].death;
      if (!overlap_in_time) continue;
      if (plan.slots[j].offset >= offset + bytes) break;
      offset = std::max(offset, plan.slots[j].offset + aligned(blocks[j].bytes));
    }
    plan.slots[i] = {offset, b.bytes};
    plan.bytes = std::max(plan.bytes, offset + bytes);
    const auto later = [&](size_t value, size_t j) { return value < plan.slots[j].offset; };
    placed.insert(std::upper_bound(placed.begin(), placed.end(), offset, later), i);
  }
  return plan;
}

struct Arena::Recording {
  std::vector<BlockLifetime> blocks;
  int64_t event = 0;
};

class Arena::RecordedStorage final : public Storage {
 public:
  RecordedStorage(std::shared_ptr<Recording> recording, size_t bytes)
      : Storage(nullptr, bytes), recording_(std::move(recording)), index_(recording_->blocks.size()) {
    recording_->blocks.push_back({bytes, recording_->event++, -1});
  }
  ~RecordedStorage() override { recording_->blocks[index_].death = recording_->event++; }

 private:
  std::shared_ptr<Recording> recording_;
  size_t index_;
};

Arena::Arena(Device& device) : device_(device) {}
Arena::~Arena() = default;

Tensor Arena::alloc(const Shape& shape, DType dtype) {
  const size_t bytes = static_cast<size_t>(shape.numel()) * dtype_size(dtype);
  if (recording_) return Tensor(std::make_shared<RecordedStorage>(recording_, bytes), shape, dtype);
  if (!replay_) return make_tensor(device_, shape, dtype);
  require<InternalError>(cursor_ < replay_->slots.size() && replay_->slots[cursor_].bytes == bytes,
                         "arena: allocation ", cursor_, " of ", shape, " differs from the plan");
  const ArenaPlan::Slot& slot = replay_->slots[cursor_++];
  used_peak_ = std::max(used_peak_, slot.offset + slot.bytes);
  char* data = block_.as<char>() + slot.offset;
  return Tensor(std::make_shared<SliceStorage>(block_.storage(), data, bytes), shape, dtype);
}

void Arena::begin_plan() {
  assert(!recording_ && !replay_);
  recording_ = std::make_shared<Recording>();
}

ArenaPlan Arena::end_plan() {
  const auto recording = std::move(recording_);
  recording_ = nullptr;
  for (BlockLifetime& b : recording->blocks)
    if (b.death < 0) b.death = recording->event + 1;  // still held by the caller: alive to the end
  return pack_arena(recording->blocks);
}

void Arena::begin_replay(const ArenaPlan& plan) {
  assert(!recording_);
  reserve(plan.bytes);
  replay_ = &plan;
  cursor_ = 0;
}

void Arena::end_replay() { replay_ = nullptr; }

void Arena::reserve(size_t bytes) {
  if (block_ && block_.bytes() >= bytes) return;
  block_ = Tensor();  // give the old memory back first: both need not fit
  block_ = make_tensor(device_, Shape{static_cast<int64_t>(std::max<size_t>(bytes, 1))}, DType::kU8);
  ++generation_;
}

void Arena::release() {
  block_ = Tensor();
  ++generation_;
}

size_t Arena::capacity() const { return block_ ? block_.bytes() : 0; }
uint64_t Arena::generation() const { return generation_; }

}  // namespace rocm_sd
