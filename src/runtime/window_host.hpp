// WindowHost: a GPU whose kernels pass messages to those of other GPUs of this process, through memory that
// both reach while they run.
#pragma once

#include <cstddef>
#include <string>

#include "runtime/device.hpp"

namespace rocm_sd {

class WindowHost {
 public:
  virtual ~WindowHost() = default;

  // Memory of this device that the kernels of others write while its own read it. Null where there is none,
  // or not enough. Not for work that is under way: the driver may wait for it.
  virtual void* allocate_window(size_t bytes) = 0;
  virtual void free_window(void* data) noexcept = 0;
  // Memory of the host's that the kernels of all GPUs of this driver write and read while they run; likewise.
  virtual void* allocate_host_window(size_t bytes) = 0;
  virtual void free_host_window(void* data) noexcept = 0;
  // Lets this device's kernels reach the other one's windows -> empty, or why they cannot.
  virtual std::string reach(WindowHost& other) = 0;
  // What another device has allocated with one of the above, before this one's kernels reach it, and before
  // it is freed.
  virtual void admit(const void* data, size_t bytes) = 0;
  virtual void forget(const void* data) noexcept = 0;

  virtual bool capturing() const = 0;  // between begin_capture() and end_capture()
};

// Null: the device has no windows.
WindowHost* window_host(Device& device);

}  // namespace rocm_sd
