// PinnedPages: host memory that copies to a GPU read without a detour, in blocks that are cut from large
// pieces. A driver's own pinned memory comes at 2 GB/s on the host of an H200, where one thread clears it
// page by page; huge pages that several threads touch, and that the driver pins then, at 13 GB/s.
#pragma once

#include <map>
#include <mutex>

#include "runtime/gpu_driver.hpp"

namespace rocm_sd {

// Thread-safe; the driver must be current.
class PinnedPages {
 public:
  explicit PinnedPages(GpuDriver& driver) : driver_(driver) {}
  ~PinnedPages();
  PinnedPages(const PinnedPages&) = delete;
  PinnedPages& operator=(const PinnedPages&) = delete;

  // Aligned to 256 bytes. Of the driver's own memory where it pins no pages; null where it has none either.
  void* allocate(size_t bytes);
  // A piece goes back to the system with the last of its blocks; until then these are given to who next asks
  // for as many bytes.
  void free(void* data) noexcept;

 private:
  struct Piece {
    void* mapping = nullptr;  // as the system gave it, of `mapped` bytes
    size_t mapped = 0;
    size_t bytes = 0, used = 0;  // from its begin, which is its key
    size_t blocks = 0;           // that somebody has
  };
  struct Block {
    char* piece;  // null: of the driver's own
    size_t bytes;
  };
  using Pieces = std::map<char*, Piece>;
  char* add_piece(size_t least);  // -> its begin, or null
  void release(Pieces::iterator piece) noexcept;

  GpuDriver& driver_;
  std::mutex mutex_;
  Pieces pieces_;
  char* newest_ = nullptr;
  std::map<char*, Block> blocks_;       // that somebody has
  std::multimap<size_t, char*> freed_;  // of pieces that are still there
  size_t mapped_ = 0;                   // bytes of all pieces
  bool pins_ = true;                    // false: the driver has refused
};

}  // namespace rocm_sd
