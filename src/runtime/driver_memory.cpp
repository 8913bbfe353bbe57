#include "runtime/driver_memory.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "runtime/side_copies.hpp"

namespace rocm_sd {
namespace {

constexpr size_t kStagingBytes = 8 << 20;   // of each of the two pinned blocks that copies go through
constexpr size_t kCachedBlock = 32 << 20;   // a freed block up to this size is kept for the next asker
constexpr size_t kCachedTotal = 256 << 20;  // of all blocks that are kept
constexpr size_t kBlockGranularity = 512;

}  // namespace

size_t MemoryPool::rounded_up(size_t bytes) const {
  constexpr size_t kMax = SIZE_MAX - kBlockGranularity;
  const size_t some = std::clamp<size_t>(bytes, 1, kMax);
  if (driver_.exact_blocks()) return some;
  return (some + kBlockGranularity - 1) / kBlockGranularity * kBlockGranularity;
}

void* MemoryPool::allocate(size_t bytes) {
  const size_t rounded = rounded_up(bytes);
  const std::lock_guard lock(mutex_);
  void* data = take_cached(rounded);
  if (!data) {
    const uint64_t taken = allocated_ + rounded;
    drop_cache(taken < budget_ ? budget_ - taken : 0);
    data = driver_.allocate(rounded);
  }
  if (!data && cached_ > 0) {
    drop_cache();
    data = driver_.allocate(rounded);
  }
  if (!data) {
    const MemoryInfo memory = driver_.memory();
    throw OutOfMemoryError(concat(driver_.description().device, ": cannot allocate ", rounded,
                                  " bytes: ", memory.free, " of ", memory.total, " bytes are free, ",
                                  allocated_, " are this program's"));
  }
  allocated_ += rounded;
  peak_ = std::max(peak_, allocated_);
  return data;
}

void MemoryPool::free(void* data, size_t bytes) {
  const size_t rounded = rounded_up(bytes);
  const std::lock_guard lock(mutex_);
  allocated_ -= rounded;
  if (driver_.exact_blocks() || rounded > kCachedBlock || cached_ + rounded > kCachedTotal ||
      allocated_ + cached_ + rounded > budget_)
    return driver_.free(data);
  blocks_.emplace(rounded, data);
  cached_ += rounded;
}

uint64_t MemoryPool::allocated() const {
  const std::lock_guard lock(mutex_);
  return allocated_;
}

uint64_t MemoryPool::cached() const {
  const std::lock_guard lock(mutex_);
  return cached_;
}

uint64_t MemoryPool::peak_allocated() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

uint64_t MemoryPool::room() const {
  const std::lock_guard lock(mutex_);
  return allocated_ < budget_ ? budget_ - allocated_ : 0;
}

void MemoryPool::reset_peak() {
  const std::lock_guard lock(mutex_);
  peak_ = allocated_;
}

void MemoryPool::set_budget(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  budget_ = bytes;
  drop_cache(allocated_ < budget_ ? budget_ - allocated_ : 0);
}

void* MemoryPool::take_cached(size_t rounded) {
  const auto found = blocks_.find(rounded);
  if (found == blocks_.end()) return nullptr;
  void* data = found->second;
  blocks_.erase(found);
  cached_ -= rounded;
  return data;
}

void MemoryPool::drop_cache(uint64_t down_to) {
  while (cached_ > down_to) {
    const auto largest = std::prev(blocks_.end());
    driver_.free(largest->second);
    cached_ -= largest->first;
    blocks_.erase(largest);
  }
}

Staging::~Staging() {
  for (const auto& lane : lanes_) {
    driver_.destroy_event(lane->event);
    if (!lane->pageable) driver_.free_pinned(lane->data);
  }
  for (Slot& slot : slots_) {
    if (slot.event) driver_.destroy_event(slot.event);
    if (slot.data) driver_.free_pinned(slot.data);
  }
}

void Staging::to_device(char* dst, const char* src, size_t bytes) {
  const std::lock_guard lock(mutex_);
  for (Slot& slot : slots_) slot.wanted = 0;  // of a copy that failed
  for (size_t done = 0, i = 0; done < bytes; ++i) {
    Slot& slot = prepare(i);
    const size_t part = std::min(kStagingBytes, bytes - done);
    const char* from = src + done;
    if (slot.data) from = static_cast<const char*>(std::memcpy(slot.data, from, part));
    driver_.copy_to_device_async(dst + done, from, part);
    driver_.record_event(slot.event);
    slot.busy = true;
    done += part;
  }
  finish();
}

void Staging::to_host(char* dst, const char* src, size_t bytes) {
  const std::lock_guard lock(mutex_);
  for (Slot& slot : slots_) slot.wanted = 0;  // of a copy that failed
  for (size_t done = 0, i = 0; done < bytes; ++i) {
    Slot& slot = prepare(i);
    const size_t part = std::min(kStagingBytes, bytes - done);
    driver_.copy_to_host_async(slot.data ? slot.data : dst + done, src + done, part);
    driver_.record_event(slot.event);
    slot.busy = true;
    if (slot.data) {
      slot.wanted_at = dst + done;
      slot.wanted = part;
    }
    done += part;
  }
  finish();
}

std::unique_ptr<Staging::Lane> Staging::take_lane() {
  {
    const std::lock_guard lock(lanes_mutex_);
    if (!lanes_.empty()) {
      auto lane = std::move(lanes_.back());
      lanes_.pop_back();
      return lane;
    }
    lanes_.reserve(lanes_.capacity() + 1);  // so that giving back never fails
  }
  auto lane = std::make_unique<Lane>();
  lane->event = driver_.create_event();
  lane->data = static_cast<char*>(driver_.allocate_pinned(kMadeBytes));
  if (!lane->data) {
    lane->pageable = std::make_unique_for_overwrite<char[]>(kMadeBytes);
    lane->data = lane->pageable.get();
  }
  return lane;
}

void Staging::give_back(std::unique_ptr<Lane> lane) noexcept {
  const std::lock_guard lock(lanes_mutex_);
  lanes_.push_back(std::move(lane));
}

void Staging::made_to_device(char* dst, size_t bytes, const std::function<void(char*)>& make) {
  require<InternalError>(bytes <= kMadeBytes, "made_to_device: ", bytes, " bytes, at most ", kMadeBytes);
  auto lane = take_lane();
  try {
    if (std::exchange(lane->busy, false)) driver_.wait_event(lane->event);
    make(lane->data);
    driver_.copy_to_device_async(dst, lane->data, bytes);
    if (lane->pageable) {
      driver_.synchronize();  // a driver may read pageable memory late
    } else {
      driver_.record_event(lane->event);
      lane->busy = true;
    }
  } catch (...) {
    give_back(std::move(lane));
    throw;
  }
  give_back(std::move(lane));
}

Staging::Slot& Staging::prepare(size_t turn) {
  Slot& slot = slots_[turn % 2];
  if (!slot.event) {
    slot.event = driver_.create_event();
    slot.data = driver_.allocate_pinned(kStagingBytes);
  }
  drain(slot);
  return slot;
}

void Staging::drain(Slot& slot) {
  if (!slot.busy) return;
  slot.busy = false;
  const size_t wanted = std::exchange(slot.wanted, 0);
  driver_.wait_event(slot.event);
  copy_by_threads(slot.wanted_at, slot.data, wanted);
}

void Staging::finish() {
  for (Slot& slot : slots_) drain(slot);
}

}  // namespace rocm_sd
