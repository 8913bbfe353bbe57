#include "runtime/launch_timer.hpp"

namespace rocm_sd {

LaunchTimer::LaunchTimer(GpuDevice& device, Profiler& profiler)
    : device_(device), profiler_(profiler), start_(device.make_event()) {
  device_.synchronize();
  start_->record();
  start_time_ = Profiler::Clock::now();
}

LaunchTimer::Launch& LaunchTimer::begin(const OpInfo& info) {
  launches_.push_back({info, device_.make_event(), device_.make_event()});
  launches_.back().begin->record();
  return launches_.back();
}

void LaunchTimer::collect() {
  device_.synchronize();
  const auto since_start = [&](GpuEvent& event) {
    const std::chrono::duration<double, std::milli> elapsed(event.milliseconds_since(*start_));
    return start_time_ + std::chrono::duration_cast<Profiler::Clock::duration>(elapsed);
  };
  for (const Launch& launch : launches_)
    profiler_.record(launch.info, since_start(*launch.begin), since_start(*launch.end));
  launches_.clear();
}

}  // namespace rocm_sd
