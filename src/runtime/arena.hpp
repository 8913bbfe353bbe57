// Arena: the memory of one forward at a time. A dry run records when each block is born and dies; the blocks
// are then packed once, and every later run replays the offsets.
#pragma once

#include <memory>
#include <vector>

#include "runtime/tensor.hpp"

namespace rocm_sd {

// Offsets for the allocations of one forward, in order.
struct ArenaPlan {
  struct Slot {
    size_t offset = 0, bytes = 0;
  };
  std::vector<Slot> slots;
  size_t bytes = 0;        // the arena's size
  size_t lower_bound = 0;  // most bytes alive at once: no packing can need less
};

// Lifetime of one block in the dry run, in allocation order; [birth, death) in event numbers.
struct BlockLifetime {
  size_t bytes = 0;
  int64_t birth = 0, death = 0;
};

// Greedy by size: the largest block first, each at the lowest offset free over its whole lifetime
// (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020, section 5.2).
ArenaPlan pack_arena(const std::vector<BlockLifetime>& blocks);

class Arena {
 public:
  explicit Arena(Device& device);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  Device& device() const { return device_; }

  // Without a plan every allocation is the device's own and is freed with its last Tensor.
  Tensor alloc(const Shape& shape, DType dtype);

  // Between begin_plan and end_plan tensors have no memory (data() is null).
  void begin_plan();
  ArenaPlan end_plan();

  // From here on allocation number i gets plan.slots[i], until end_replay. The plan must outlive the replay.
  // Blocks grow the arena if it is smaller than the plan; growing changes generation().
  void begin_replay(const ArenaPlan& plan);
  void end_replay();

  void reserve(size_t bytes);                      // grows to at least this size
  void release();                                  // gives the memory back
  size_t capacity() const;                         // bytes that it has allocated
  uint64_t generation() const;                     // changes whenever the base address may have
  size_t used_peak() const { return used_peak_; }  // highest byte handed out by replays so far

 private:
  struct Recording;
  class RecordedStorage;

  Device& device_;
  Tensor block_;
  uint64_t generation_ = 0;
  std::shared_ptr<Recording> recording_;
  const ArenaPlan* replay_ = nullptr;
  size_t cursor_ = 0;
  size_t used_peak_ = 0;
};

}  // namespace rocm_sd
