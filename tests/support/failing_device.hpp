// The host as a device of its own that fails when it is told to: it throws, or hangs.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "base/error.hpp"
#include "runtime/device.hpp"

namespace rocm_sd::testing_support {

class FailingDevice final : public Device {
 public:
  explicit FailingDevice(std::string name) : name_(std::move(name)) {}

  DeviceKind kind() const override { return DeviceKind::kHost; }
  std::string name() const override { return name_; }
  MemoryInfo memory() const override { return host_device().memory(); }
  DType preferred_dtype() const override { return DType::kF32; }
  void synchronize() override {}
  void* allocate(size_t bytes) override {
    if (on_allocate) on_allocate();
    return host_device().allocate(bytes);
  }
  void free(void* data, size_t bytes) noexcept override { host_device().free(data, bytes); }
  void copy_to_device(void* dst, const void* src, size_t bytes) override {
    host_device().copy_to_device(dst, src, bytes);
  }
  void copy_to_host(void* dst, const void* src, size_t bytes) override {
    if (copies_left_ > 0 && --copies_left_ == 0) at_end_();
    host_device().copy_to_host(dst, src, bytes);
  }
  void copy_on_device(void* dst, const void* src, size_t bytes) override {
    host_device().copy_on_device(dst, src, bytes);
  }

  // The number-th copy to the host from now on, once: each step has some.
  void fail_copy(int number) {
    at_end_ = [this] { throw DeviceError(name_ + ": lost, as asked"); };
    copies_left_ = number;
  }
  void run_out_of_memory(int number) {
    at_end_ = [this] { throw OutOfMemoryError(name_ + ": out of memory, as asked"); };
    copies_left_ = number;
  }
  // Until let_go().
  void hang(int number) {
    at_end_ = [this] {
      hung_ = true;
      while (!let_go_) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      hung_ = false;
      throw DeviceError(name_ + ": was let go");
    };
    copies_left_ = number;
  }
  void let_go() {
    let_go_ = true;
    while (hung_) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }

  std::function<void()> on_allocate;

 private:
  const std::string name_;
  std::atomic<int> copies_left_ = 0;
  std::function<void()> at_end_;
  std::atomic<bool> hung_ = false, let_go_ = false;
};

}  // namespace rocm_sd::testing_support
