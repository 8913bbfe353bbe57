// Device: what the runtime needs of a processor with memory. One file per device (host.cpp; GPUs later).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/dtype.hpp"

namespace rocm_sd {

enum class DeviceKind { kHost, kHip, kCuda, kEmulator };

struct MemoryInfo {
  uint64_t total = 0;  // bytes
  uint64_t free = 0;   // bytes that an allocation may hope for
};

// Instruction sets of the host that have code of their own; each includes those before it.
enum class HostIsa { kBaseline, kV3, kV4 };

// Bytes on their way to the host.
class PendingRead {
 public:
  virtual ~PendingRead() = default;
  // Waits for them, not for what was asked of the device after them.
  virtual void get(void* dst) = 0;
  virtual bool is_here() const { return false; }  // surely: get() does not wait
};

class Device {
 public:
  virtual ~Device() = default;

  virtual DeviceKind kind() const = 0;
  virtual std::string name() const = 0;  // "host: AMD EPYC, 2 threads, AVX2"
  virtual MemoryInfo memory() const = 0;
  virtual uint64_t allocated() const {
    return 0;
  }  // bytes handed out and not yet freed, where the device counts

  // Uninitialised memory, aligned to at least 64 bytes; the caller frees it with the same size.
  // Throws OutOfMemoryError with the size asked for.
  virtual void* allocate(size_t bytes) = 0;
  virtual void free(void* data, size_t bytes) noexcept = 0;
  // Memory of the host's that the device reads where it lies, over the bus: for what is large and seldom
  // read. Null where there is none. The host may read and write it, too.
  virtual void* allocate_mapped(size_t /*bytes*/) { return nullptr; }
  virtual void free_mapped(void* /*data*/) noexcept {}

  virtual void copy_to_device(void* dst, const void* src, size_t bytes) = 0;
  virtual void copy_to_host(void* dst, const void* src, size_t bytes) = 0;
  // What lies there once all that was asked for so far is done. At most kReadLaterBytes. Waits, where the
  // device has no better way.
  static constexpr size_t kReadLaterBytes = 64;
  virtual std::unique_ptr<PendingRead> read_later(const void* src, size_t bytes);
  virtual void copy_on_device(void* dst, const void* src, size_t bytes) = 0;
  virtual void synchronize() = 0;

  // Around every piece of work that touches the device's memory by pointer on the host's side: launches of
  // host kernels, layouts made of weights. A device of the tests keeps its memory out of reach otherwise.
  virtual void begin_access() {}
  virtual void end_access() noexcept {}

  // The type that --dtype auto computes in: bf16 where the device multiplies it in hardware, else f32 on the
  // host.
  virtual DType preferred_dtype() const = 0;
};

// Holds the memory of a device within reach while alive; may be nested.
class DeviceAccess {
 public:
  explicit DeviceAccess(Device& device) : device_(device) { device_.begin_access(); }
  ~DeviceAccess() { device_.end_access(); }
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;

 private:
  Device& device_;
};

// The process's host device. Threads: OMP_NUM_THREADS, else every core that the process may use.
Device& host_device();

HostIsa host_isa();    // ROCM_SD_ISA=baseline|v3|v4 lowers it, for tests
bool host_has_bf16();  // AVX512-BF16 or AMX-BF16
int host_threads();
// memcpy, by several threads where it is long.
void copy_by_threads(void* dst, const void* src, size_t bytes);

}  // namespace rocm_sd
