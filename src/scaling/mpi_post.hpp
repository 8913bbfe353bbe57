// MpiPost: the one thread of a process that calls MPI. It carries parcels between ranks, in order from each
// to each, and never waits inside a call, so that whoever is lost holds nobody up.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace rocm_sd {

// The head of a parcel as it travels; the ranks of a job run the same program on machines of one kind.
struct ParcelHead {
  static constexpr size_t kInline = 448;
  uint32_t kind = 0, channel = 0;
  uint64_t attempt = 0;
  uint64_t bytes = 0;  // of the body; up to kInline of them travel in the head
  int64_t numbers[4] = {0, 0, 0, 0};
  char text[kInline] = {};
};
struct Parcel {
  ParcelHead head;
  std::vector<char> body;
};

class MpiPost {
 public:
  // All run in the post's thread, without a lock. taken: of each parcel that came. tick: some 4 times a
  // second, with the seconds since the last time, which are many where the process was stopped.
  struct Events {
    std::function<void(int from, Parcel&& parcel)> taken;
    // Nothing can be sent to a rank or come from it any more; once for each.
    std::function<void(int rank, const std::string& reason)> broken;
    std::function<void(double seconds)> tick;
  };

  // Starts the thread, which initialises MPI and so waits for all ranks, and waits for it, for `seconds` at
  // most. Throws DeviceError where MPI cannot be had or not all come; UsageError where MPI counts otherwise.
  MpiPost(int rank, int count, double seconds);
  // Ends MPI in good order where `finish` says so, else leaves it as it is.
  ~MpiPost();
  MpiPost(const MpiPost&) = delete;
  MpiPost& operator=(const MpiPost&) = delete;

  void start(const Events& events);
  std::string version() const;  // "Open MPI v4.1.4"

  // Puts a parcel on its way.
  void send(int to, Parcel&& parcel);
  // Bytes to that rank, heads and all, that are still on their way.
  size_t under_way(int to) const;
  // Somebody waits for parcels: look more often.
  void hurry(bool on);
  // Whether the destructor may end MPI: every rank is still there to take part.
  void finish(bool well);
  // Why MPI does not work any more; "": it does.
  std::string problem() const;

 private:
  struct State;
  static void run(const std::shared_ptr<State>& state);
  std::shared_ptr<State> state_;
};

}  // namespace rocm_sd
