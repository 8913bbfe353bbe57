// A host device whose memory cannot be read or written but by launches, copies and the making of layouts:
// what touches it at another time would touch a GPU's memory there, and ends the test with a segmentation
// fault. It counts, and can run out of memory.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>

#include "base/error.hpp"
#include "runtime/memory_budget.hpp"

namespace rocm_sd::testing_support {

class GuardedDevice final : public Device, public MemoryBudget {
 public:
  // capacity: bytes that may be held at once, as on a card of that size.
  explicit GuardedDevice(uint64_t capacity = std::numeric_limits<uint64_t>::max()) : capacity_(capacity) {
    void* base = mmap(nullptr, kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    require<OutOfMemoryError>(base != MAP_FAILED, "guarded device: no address space");
    base_ = static_cast<char*>(base);
    madvise(base_, kReserved, MADV_HUGEPAGE);  // opening and closing the door costs by the page
    free_.emplace(0, kReserved);
  }
  ~GuardedDevice() override { munmap(base_, kReserved); }
  GuardedDevice(const GuardedDevice&) = delete;
  GuardedDevice& operator=(const GuardedDevice&) = delete;

  DeviceKind kind() const override { return DeviceKind::kHost; }
  std::string name() const override { return "guarded host"; }
  MemoryInfo memory() const override { return {capacity_, capacity_ - std::min(capacity_, allocated_)}; }
  uint64_t allocated() const override { return allocated_; }
  uint64_t peak_allocated() const override { return recent_peak_; }
  void reset_peak() override { recent_peak_ = allocated_; }
  void set_budget(uint64_t) override {}  // it keeps no freed blocks
  uint64_t room() const override { return std::numeric_limits<uint64_t>::max(); }
  DType preferred_dtype() const override { return DType::kF32; }
  void synchronize() override {}

  void* allocate(size_t bytes) override {
    const size_t rounded = round_up(bytes);
    if (fail_at_ > 0 && --fail_at_ == 0) throw OutOfMemoryError("guarded device: out of memory, as asked");
    require<OutOfMemoryError>(allocated_ + rounded <= capacity_, "guarded device: cannot allocate ", rounded,
                              " bytes, ", allocated_, " of ", capacity_, " are in use");
    const auto gap =
        std::find_if(free_.begin(), free_.end(), [&](const auto& g) { return g.second >= rounded; });
    require<OutOfMemoryError>(gap != free_.end(), "guarded device: no address space");
    const auto [offset, size] = *gap;
    free_.erase(gap);
    if (size > rounded) free_.emplace(offset + rounded, size - rounded);
    allocated_ += rounded;
    peak_ = std::max(peak_, allocated_);
    recent_peak_ = std::max(recent_peak_, allocated_);
    const DeviceAccess access(*this);
    std::fill_n(base_ + offset, rounded, '\xff');  // NaN in every float type
    return base_ + offset;
  }
  void free(void* data, size_t bytes) noexcept override {
    size_t offset = static_cast<size_t>(static_cast<char*>(data) - base_), size = round_up(bytes);
    allocated_ -= size;
    auto next = free_.lower_bound(offset);
    if (next != free_.end() && next->first == offset + size) {
      size += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin() && std::prev(next)->first + std::prev(next)->second == offset) {
      std::prev(next)->second += size;
      return;
    }
    free_.emplace(offset, size);
  }
  void* allocate_mapped(size_t bytes) override {
    if (!offers_mapped_) return nullptr;
    ++mapped_;
    return std::malloc(bytes);
  }
  void free_mapped(void* data) noexcept override {
    --mapped_;
    std::free(data);
  }
  void copy_to_device(void* dst, const void* src, size_t bytes) override {
    uploaded_ += bytes;
    copy(dst, src, bytes);
  }
  void copy_to_host(void* dst, const void* src, size_t bytes) override { copy(dst, src, bytes); }
  void copy_on_device(void* dst, const void* src, size_t bytes) override { copy(dst, src, bytes); }

  void begin_access() override {
    if (depth_++ == 0) mprotect(base_, kReserved, PROT_READ | PROT_WRITE);
  }
  void end_access() noexcept override {
    if (--depth_ == 0) mprotect(base_, kReserved, PROT_NONE);
  }

  uint64_t peak() const { return peak_; }          // of its life
  uint64_t uploaded() const { return uploaded_; }  // bytes by copies to it, of its life
  void set_capacity(uint64_t bytes) { capacity_ = bytes; }
  void offer_mapped() { offers_mapped_ = true; }
  int mapped() const { return mapped_; }                   // allocations that are alive
  void fail_allocation(int number) { fail_at_ = number; }  // the number-th from now on, once

 private:
  static constexpr size_t kReserved = size_t{1} << 30;  // address space
  static size_t round_up(size_t bytes) { return (std::max<size_t>(bytes, 1) + 63) / 64 * 64; }
  void copy(void* dst, const void* src, size_t bytes) {
    const DeviceAccess access(*this);
    std::copy_n(static_cast<const char*>(src), bytes, static_cast<char*>(dst));
  }

  char* base_ = nullptr;
  std::map<size_t, size_t> free_;  // offset -> size
  uint64_t capacity_, allocated_ = 0, peak_ = 0, recent_peak_ = 0, uploaded_ = 0;
  int depth_ = 0, fail_at_ = 0, mapped_ = 0;
  bool offers_mapped_ = false;
};

}  // namespace rocm_sd::testing_support
