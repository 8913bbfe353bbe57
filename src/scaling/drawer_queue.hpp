// Which drawers are free, and who waits for one: first come, first served.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace rocm_sd {

class DrawerQueue {
 public:
  explicit DrawerQueue(const std::vector<std::string>& names);

  // Waits for a free drawer -> its number. asked: true ends the wait with CancelledError; may be empty.
  // Throws DeviceError, with all reasons, where every drawer was taken out.
  size_t acquire(const std::function<bool()>& asked);
  // Waits for this one. False: it was taken out.
  bool acquire_this(size_t drawer);
  void release(size_t drawer, bool drawn);
  void take_out(size_t drawer, const std::string& reason);

  int64_t drawn(size_t drawer) const;
  std::string taken_out(size_t drawer) const;  // the reason; empty: it was not

 private:
  struct Drawer {
    std::string name, taken_out;
    bool busy = false;
    int64_t drawn = 0;
  };
  bool any_left() const;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Drawer> drawers_;
  std::deque<uint64_t> waiting_;  // tickets, the oldest first
  uint64_t next_ticket_ = 0;
};

}  // namespace rocm_sd
