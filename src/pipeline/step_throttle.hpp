// Keeps the host at most one step ahead of a GPU, so that progress says what is done and a cancelled run ends
// soon. It waits for the step before the one just asked for: the GPU is never idle for it.
#pragma once

#include <memory>

#include "runtime/gpu.hpp"

namespace rocm_sd {

class StepThrottle {
 public:
  explicit StepThrottle(Device& device) {
    if (device.kind() == DeviceKind::kHost) return;
    gpu_ = static_cast<GpuDevice*>(&device);
    begin_ = mark();
  }
  void step() {
    if (!gpu_) return;
    auto now = mark();
    if (last_) last_->milliseconds_since(*begin_);
    last_ = std::move(now);
  }

 private:
  std::unique_ptr<GpuEvent> mark() {
    auto event = gpu_->make_event();
    event->record();
    return event;
  }
  GpuDevice* gpu_ = nullptr;
  std::unique_ptr<GpuEvent> begin_, last_;
};

}  // namespace rocm_sd
