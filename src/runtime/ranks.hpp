// Ranks: those who draw one image together, each on a device of its own. What they tell each other passes
// through host memory; src/scaling has the ways that it takes.
#pragma once

#include <cstddef>
#include <span>

namespace rocm_sd {

// Thrown where another rank has begun the image anew: so must this one.
struct AttemptOver {};

// What the ranks of an image divide: the conditions of a step, or the rows of every map.
enum class Division { kConditions, kRows };

// One rank's view. All ranks make the same calls in the same order between two begin(). Every function throws
// DeviceError, naming the rank, where another one has failed or gives no sign of life, and CancelledError
// where it was cancelled.
class Ranks {
 public:
  virtual ~Ranks() = default;
  virtual int rank() const = 0;
  virtual int count() const = 0;
  virtual Division division() const { return Division::kConditions; }

  // Begins an image, or begins it anew. What earlier attempts sent and nobody received is dropped.
  virtual void begin() = 0;
  // Does not wait for the receiver.
  virtual void send(int to, const void* data, size_t bytes) = 0;
  // Waits for the next message of that rank. Throws AttemptOver, and InternalError for a message of another
  // size.
  virtual void receive(int from, void* data, size_t bytes) = 0;
};

// Sends to and receives from the same rank.
void exchange(Ranks& ranks, int with, const void* out, size_t out_bytes, void* in, size_t in_bytes);

// Rank r has written bytes [ends[r - 1], ends[r]) of `all` (the first from 0 on); every rank has all of them
// afterwards.
void all_gather(Ranks& ranks, void* all, std::span<const size_t> ends);

}  // namespace rocm_sd
