// WeightStream: weights that lie in host memory and come to the device in turns, each just before the
// launches that read it, so that a model takes less of the device's memory than its weights. The copies run
// beside the launches, a fixed number of bytes ahead of them, and are part of a program's graph.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/exec.hpp"
#include "runtime/side_copies.hpp"
#include "runtime/streamed_storage.hpp"

namespace rocm_sd {

// What the weights of a stream take, in bytes.
struct StreamBytes {
  uint64_t all = 0;       // of everything that the programs read
  uint64_t resident = 0;  // of what stays on the device while the stream is at work
  uint64_t ring = 0;      // of the memory that the others take turns in
  uint64_t copied = 0;    // by a run of the program that reads the most
  uint64_t device() const { return resident + ring; }
};

// The weights that a program reads, in order, and how they take turns.
struct StreamSchedule {
  struct Turn {
    StreamedStorage* storage = nullptr;
    size_t offset = 0;                   // in the ring
    size_t issued = 0;                   // the turn at whose beginning its copy is asked for
    std::shared_ptr<void> free, copied;  // points: launches before this turn are over; its copy is
  };
  std::vector<std::shared_ptr<StreamedStorage>> uses;
  // Of the launches before each use, and of all: what copies may run beside, in operations. Of the dry run.
  std::vector<double> work_before;
  double work = 0;
  std::vector<Turn> turns;
  void* ring = nullptr;
  std::shared_ptr<void> begin;  // point
};

// Of the programs on one arena, while it lives. Not thread-safe, as the arena.
class WeightStream {
 public:
  WeightStream(Device& device, Arena& arena);
  ~WeightStream();
  WeightStream(const WeightStream&) = delete;
  WeightStream& operator=(const WeightStream&) = delete;

  enum class Kind { kTurns, kAlways };
  // The values, which lie in host memory, as a tensor of the device's without memory there. kAlways: of what
  // ops read without Weight, such as norms: on the device whenever the stream is at work.
  Tensor add(const Tensor& values, Kind kind);

  // Most bytes of the device for these weights. What does not fit takes turns; the ring takes its memory all
  // the same.
  void set_room(uint64_t bytes);
  // By what the programs were last planned to read.
  StreamBytes bytes();

  // Residents onto the device, and the ring made. Programs are planned before, and captured after.
  void enter();
  void leave();
  bool entered() const { return entered_; }

  // Bytes per second of a copy from pinned memory, timed once; 0 where there is no link to time.
  double link_rate();

  // The stream of programs on this arena; null: none.
  static WeightStream* of(const Arena& arena);
  // One run, dry or not, of a program's forward.
  void run(Exec& ex, const std::shared_ptr<StreamSchedule>& schedule,
           const std::function<void(Exec&)>& forward);
  // The launches that follow on this thread, up to the next use(), read these values. False: no run of a
  // stream is at work. Throws InternalError where the dry run read others.
  static bool use(const std::shared_ptr<StreamedStorage>& storage);

 private:
  class Run;
  // A weight, and the work of the launches that read it.
  struct Candidate {
    std::shared_ptr<StreamedStorage> storage;
    double work = 0;
  };
  void settle();
  std::vector<Candidate> candidates() const;
  bool choose(const std::vector<Candidate>& all, uint64_t slack);
  size_t window_for(const std::vector<Candidate>& all) const;
  size_t arrange(StreamSchedule& schedule, size_t window) const;
  void arrange_late(StreamSchedule& schedule) const;
  void equip(StreamSchedule& schedule) const;
  bool resident(const StreamedStorage* storage) const;

  Device& device_;
  Arena& arena_;
  uint64_t room_ = 0;
  std::vector<std::weak_ptr<StreamedStorage>> always_;
  std::vector<std::weak_ptr<StreamSchedule>> schedules_;
  std::vector<std::shared_ptr<StreamedStorage>> residents_;  // sorted by address
  StreamBytes bytes_;
  size_t window_ = 0;    // bytes that copies may be ahead
  Tensor block_, ring_;  // of the residents, and of the others
  bool settled_ = false, entered_ = false;
  double rate_ = -1;
};

}  // namespace rocm_sd
