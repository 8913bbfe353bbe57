// SideLaunches: launches of a GPU on a stream of their own, beside those of its main stream, and the points
// at which the two wait for each other. Captured with the others, they become branches of one graph. Where
// the compute units are full, those of the side get the next free ones.
#pragma once

#include <memory>

#include "runtime/device.hpp"

namespace rocm_sd {

class SideLaunches {
 public:
  virtual ~SideLaunches() = default;

  // A point on either stream. Freed before the device.
  virtual std::shared_ptr<void> make_point() = 0;
  virtual void mark_launches(void* point) = 0;  // behind all so far, of the stream that launches go to
  virtual void launches_wait(void* point) = 0;  // those that follow, for a point that was marked
  // Launches between the two go to the side, behind the point, or null: behind those of the side alone. Not
  // one within the other.
  virtual void begin_beside(void* point) = 0;
  virtual void end_beside() noexcept = 0;
};

// Null where the device has no streams: the host.
SideLaunches* side_launches(Device& device);

}  // namespace rocm_sd
