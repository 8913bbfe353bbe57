// Memory of a GPU over any driver: blocks that are kept for the next asker, and copies through pinned memory.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/gpu_driver.hpp"

namespace rocm_sd {

// Device memory. Freed blocks of at most 32 MiB are kept, 256 MiB in all, and given to the next asker of the
// same size: one stream runs everything, so what still uses the block comes before what uses it next. A
// driver with exact_blocks() gets every request as it came, and every block back at once. Thread-safe; the
// driver must be current.
class MemoryPool {
 public:
  explicit MemoryPool(GpuDriver& driver) : driver_(driver) {}
  ~MemoryPool() { drop_cache(); }
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // Throws OutOfMemoryError, naming the device and the sizes, where also giving back the kept blocks does not
  // help.
  void* allocate(size_t bytes);
  void free(void* data, size_t bytes);

  uint64_t allocated() const;       // bytes handed out
  uint64_t cached() const;          // bytes kept
  uint64_t peak_allocated() const;  // most bytes handed out since reset_peak()
  uint64_t room() const;            // bytes that the budget leaves
  void reset_peak();
  void set_budget(uint64_t bytes);  // of both: blocks are kept only where it leaves room

 private:
  size_t rounded_up(size_t bytes) const;
  void* take_cached(size_t rounded);
  void drop_cache(uint64_t down_to = 0);  // the largest blocks first

  GpuDriver& driver_;
  mutable std::mutex mutex_;
  std::multimap<size_t, void*> blocks_;
  uint64_t cached_ = 0, allocated_ = 0, peak_ = 0;
  uint64_t budget_ = UINT64_MAX;
};

// Copies between the host's pageable memory and the device, in pieces through two pinned blocks, so that the
// processor fills or empties one while the device works on the other. Both have finished when they return.
// Thread-safe; the driver must be current.
class Staging {
 public:
  explicit Staging(GpuDriver& driver) : driver_(driver) {}
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  void to_device(char* dst, const char* src, size_t bytes);
  void to_host(char* dst, const char* src, size_t bytes);

  // Copies at most kMadeBytes that `make` writes into the memory that it is given, and does not wait for the
  // copy: what the stream is given later finds the bytes. Threads that call it work beside one another, each
  // with a pinned block of its own.
  void made_to_device(char* dst, size_t bytes, const std::function<void(char*)>& make);

 private:
  struct Slot {
    void* data = nullptr;  // stays null where there is no pinned memory: the driver then stages by itself
    void* event = nullptr;
    bool busy = false;
    char* wanted_at = nullptr;  // where its bytes go once they have come
    size_t wanted = 0;
  };
  // Of made_to_device. Without pinned memory the copy has read it when the call returns.
  struct Lane {
    char* data = nullptr;
    std::unique_ptr<char[]> pageable;  // where there is no pinned memory
    void* event = nullptr;
    bool busy = false;
  };
  std::unique_ptr<Lane> take_lane();
  void give_back(std::unique_ptr<Lane> lane) noexcept;
  Slot& prepare(size_t turn);  // the slot whose turn it is, empty
  void drain(Slot& slot);
  void finish();

  GpuDriver& driver_;
  std::mutex mutex_, lanes_mutex_;
  Slot slots_[2];
  std::vector<std::unique_ptr<Lane>> lanes_;  // that no thread has
};

}  // namespace rocm_sd
