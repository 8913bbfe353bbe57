// Beside: launches of a forward that need not be over before those that follow, on a stream of their own.
#pragma once

#include <functional>
#include <memory>

#include "runtime/exec.hpp"
#include "runtime/side_launches.hpp"

namespace rocm_sd {

// One fork of an Exec's launches and their meeting again. Where the device has no streams, or the time of
// each launch is asked for, all run in their order. What both sides read, and what the side writes, must live
// until join(): the arena knows the order of the launches alone.
class Beside {
 public:
  explicit Beside(Exec& ex);
  ~Beside();  // joins if join() was not called, as it must be in a forward that is captured
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;

  // The launches of the function go beside those that follow it, behind all before. Once.
  void run(const std::function<void()>& launches);
  // What follows waits for them.
  void join();

 private:
  Exec& ex_;
  SideLaunches* side_;
  std::shared_ptr<void> begin_, end_;
  bool open_ = false;
};

}  // namespace rocm_sd
