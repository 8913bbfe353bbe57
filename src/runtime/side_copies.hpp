// SideCopies: copies from host memory to a GPU on a stream of their own, beside its launches, and the points
// at which the two wait for each other. Captured with the launches, they become part of the graph.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "runtime/device.hpp"

namespace rocm_sd {

inline constexpr size_t kMadeBytes = 2 << 20;  // of one copy_made()

class SideCopies {
 public:
  virtual ~SideCopies() = default;

  // A point on either stream. Freed before the device.
  virtual std::shared_ptr<void> make_point() = 0;
  virtual void mark_launches(void* point) = 0;  // after all launches so far
  virtual void mark_copies(void* point) = 0;    // after all copies so far
  virtual void copies_wait(void* point) = 0;    // those that follow, for a point that was marked
  virtual void launches_wait(void* point) = 0;
  // Host memory for copy_beside(), which kernels may not read; null where the device has none. Freed when no
  // copy of it is under way.
  virtual void* allocate_host(size_t bytes) = 0;
  virtual void free_host(void* data) noexcept = 0;
  // Does not wait. src: allocate_host()'s where the device has such memory, and unchanged until the copy is
  // over.
  virtual void copy_beside(void* dst, const void* src, size_t bytes) = 0;
  virtual void wait_for_copies() = 0;  // the calling thread; not inside a capture

  // In the order of the launches: copies at most kMadeBytes that `make` writes into pinned memory, and does
  // not wait for the copy. Threads that call it work beside one another, which copy_to_device() makes wait
  // for each other. Not inside a capture.
  virtual void copy_made(void* dst, size_t bytes, const std::function<void(char*)>& make) = 0;
};

// Null where the device has no streams: the host.
SideCopies* side_copies(Device& device);

}  // namespace rocm_sd
