// The memory of an emulated GPU: host memory whose live allocations are known, so that every access is
// checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace rocm_sd::emu {

// [begin, end) in host addresses, which are the device's addresses too.
struct Range {
  uint64_t begin = 0, end = 0;
  uint8_t* written = nullptr;  // for each byte 1 if it was, where that is watched
};

class Memory {
 public:
  Memory() = default;
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // bytes of zeroed memory, aligned to 4 KiB and apart from every other allocation; the object owns it.
  // Throws OutOfMemoryError.
  void* allocate(size_t bytes);
  // The same, but its bytes are watched: they count as not written until mark_written(), copy_written() or a
  // kernel's store.
  void* allocate_watched(size_t bytes);
  void mark_written(const void* pointer, size_t bytes);
  // Of watched bytes, how many were not written.
  size_t unwritten(const void* pointer, size_t bytes) const;
  void copy_written(const void* to, const void* from, size_t bytes);
  // Throws UsageError unless `pointer` came from allocate(); null is allowed.
  void release(void* pointer);
  // Memory that someone else owns (a code object, a kernel's arguments) becomes accessible, until forget().
  void admit(const void* pointer, size_t bytes);
  void forget(const void* pointer);
  // Throws UsageError unless the bytes are all in one accessible range; no bytes are anywhere.
  void require_inside(const void* pointer, size_t bytes) const;
  // The accessible ranges by address. A launch works on such a snapshot.
  std::vector<Range> ranges() const;

 private:
  uint8_t* written(uint64_t address) const;  // of the byte at an address, or null; the mutex is held

  mutable std::mutex mutex_;
  std::map<uint64_t, uint64_t> ranges_;                     // begin -> end
  std::map<uint64_t, void*> owned_;                         // begin -> what to free
  std::map<uint64_t, std::unique_ptr<uint8_t[]>> watched_;  // begin -> a byte for each
};

}  // namespace rocm_sd::emu
