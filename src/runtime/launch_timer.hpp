// Times of launches on a GPU by events on its stream, handed to a Profiler once the device has run them.
#pragma once

#include <memory>
#include <vector>

#include "runtime/gpu.hpp"
#include "runtime/profiler.hpp"

namespace rocm_sd {

class LaunchTimer {
 public:
  // Waits for what the device still has to do, so that its clock and the profiler's have a common moment.
  LaunchTimer(GpuDevice& device, Profiler& profiler);
  LaunchTimer(const LaunchTimer&) = delete;
  LaunchTimer& operator=(const LaunchTimer&) = delete;

  template <class Body>
  void run(const OpInfo& info, const Body& body) {
    Launch& launch = begin(info);
    body();
    launch.end->record();
  }

  // Waits for the launches and records each in the profiler. Those of a timer that is not asked are lost.
  void collect();

 private:
  struct Launch {
    OpInfo info;
    std::unique_ptr<GpuEvent> begin, end;
  };
  Launch& begin(const OpInfo& info);

  GpuDevice& device_;
  Profiler& profiler_;
  std::unique_ptr<GpuEvent> start_;
  Profiler::Clock::time_point start_time_;
  std::vector<Launch> launches_;
};

}  // namespace rocm_sd
