// Looking at the request to stop inside a launch on the host, for those that take seconds.
#pragma once

#include <atomic>
#include <thread>

#include "runtime/exec.hpp"

namespace rocm_sd {

// Made by a launch's body on the thread that runs it, and asked by all threads of its loops: once it says
// true the rest of the work may be left undone, because run_body then throws CancelledError. The launch's
// CancelCheck is called on the launching thread alone.
class StopRequest {
 public:
  StopRequest();
  bool asked() {
    if (check_ && !stopped_.load(std::memory_order_relaxed) && std::this_thread::get_id() == owner_ &&
        (*check_)())
      stopped_.store(true, std::memory_order_relaxed);
    return stopped_.load(std::memory_order_relaxed);
  }

 private:
  const CancelCheck* check_;  // null: nobody can ask
  const std::thread::id owner_ = std::this_thread::get_id();
  std::atomic<bool> stopped_{false};
};

// While it lives, launches on this thread can be asked to stop by `check` (which may be null).
class StopScope {
 public:
  explicit StopScope(const CancelCheck* check);
  ~StopScope();
  StopScope(const StopScope&) = delete;
  StopScope& operator=(const StopScope&) = delete;

 private:
  const CancelCheck* before_;
};

}  // namespace rocm_sd
