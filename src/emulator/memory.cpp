#include "emulator/memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/error.hpp"
#include "base/format.hpp"

namespace rocm_sd::emu {

namespace {
constexpr size_t kPage = 4096;
}

Memory::~Memory() {
  for (const auto& [begin, block] : owned_) std::free(block);
}

void* Memory::allocate(size_t bytes) {
  require<OutOfMemoryError>(bytes < (size_t{1} << 46), "emulated GPU: cannot allocate ", bytes, " bytes");
  // A guard of at least a page on both sides, so that an index off by a little meets no other buffer.
  const size_t body = (bytes + kPage - 1) / kPage * kPage;
  void* block = std::aligned_alloc(kPage, body + 2 * kPage);
  require<OutOfMemoryError>(block != nullptr, "emulated GPU: cannot allocate ", bytes, " bytes");
  auto* begin = static_cast<uint8_t*>(block) + kPage;
  std::memset(begin, 0, bytes);
  const std::lock_guard lock(mutex_);
  const auto address = reinterpret_cast<uint64_t>(begin);
  ranges_[address] = address + bytes;
  owned_[address] = block;
  return begin;
}

void* Memory::allocate_watched(size_t bytes) {
  void* out = allocate(bytes);
  const std::lock_guard lock(mutex_);
  watched_[reinterpret_cast<uint64_t>(out)] = std::make_unique<uint8_t[]>(bytes);
  return out;
}

uint8_t* Memory::written(uint64_t address) const {
  const auto after = watched_.upper_bound(address);
  if (after == watched_.begin()) return nullptr;
  const auto& [begin, bytes] = *std::prev(after);
  return address < ranges_.at(begin) ? bytes.get() + (address - begin) : nullptr;
}

void Memory::mark_written(const void* pointer, size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (uint8_t* at = written(reinterpret_cast<uint64_t>(pointer)); at && bytes > 0) std::memset(at, 1, bytes);
}

size_t Memory::unwritten(const void* pointer, size_t bytes) const {
  const std::lock_guard lock(mutex_);
  const uint8_t* at = written(reinterpret_cast<uint64_t>(pointer));
  return at ? static_cast<size_t>(std::count(at, at + bytes, uint8_t{0})) : 0;
}

void Memory::copy_written(const void* to, const void* from, size_t bytes) {
  const std::lock_guard lock(mutex_);
  uint8_t* target = written(reinterpret_cast<uint64_t>(to));
  if (!target || bytes == 0) return;
  if (const uint8_t* source = written(reinterpret_cast<uint64_t>(from)))
    std::memmove(target, source, bytes);
  else
    std::memset(target, 1, bytes);
}

void Memory::release(void* pointer) {
  if (!pointer) return;
  const std::lock_guard lock(mutex_);
  const auto found = owned_.find(reinterpret_cast<uint64_t>(pointer));
  require<UsageError>(found != owned_.end(), "emulated GPU: freeing a pointer that it did not allocate");
  std::free(found->second);
  ranges_.erase(found->first);
  watched_.erase(found->first);
  owned_.erase(found);
}

void Memory::admit(const void* pointer, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto address = reinterpret_cast<uint64_t>(pointer);
  ranges_[address] = address + bytes;
}

void Memory::forget(const void* pointer) {
  const std::lock_guard lock(mutex_);
  ranges_.erase(reinterpret_cast<uint64_t>(pointer));
}

void Memory::require_inside(const void* pointer, size_t bytes) const {
  if (bytes == 0) return;
  const auto address = reinterpret_cast<uint64_t>(pointer);
  const std::lock_guard lock(mutex_);
  const auto after = ranges_.upper_bound(address);
  const bool inside = after != ranges_.begin() && address < std::prev(after)->second &&
                      bytes <= std::prev(after)->second - address;
  require<UsageError>(inside, "emulated GPU: ", bytes, " bytes at ", fmt::format("{:#x}", address),
                      " are not inside one of its buffers");
}

std::vector<Range> Memory::ranges() const {
  const std::lock_guard lock(mutex_);
  std::vector<Range> out;
  out.reserve(ranges_.size());
  for (const auto& [begin, end] : ranges_) {
    const auto watched = watched_.find(begin);
    out.push_back({begin, end, watched == watched_.end() ? nullptr : watched->second.get()});
  }
  return out;
}

}  // namespace rocm_sd::emu
