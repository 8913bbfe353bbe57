// GpuDriver: the calls of a GPU's driver that a device is made of; hip.cpp, cuda.cpp and emulator.cpp
// implement them, and driver_device.cpp makes the GpuDevice of any.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/gpu.hpp"

// In a class with `void check(int status, const char* call) const`, which throws where a call failed.
#define ROCM_SD_CHECK_GPU(call) check((call), #call)

namespace rocm_sd {

inline constexpr size_t kPciBytes = 32;  // of text that names a place on the PCI bus

// A GPU as its driver describes it, before anything is opened on it.
struct GpuDescription {
  DeviceKind kind = DeviceKind::kCuda;
  std::string device;   // "cuda:0"
  std::string product;  // "NVIDIA H200"
  GpuTraits traits;     // arch: the device's own
  uint64_t memory_bytes = 0;
  std::vector<std::string> targets;  // whose code the device runs, best first
};

// One GPU, its context and its one stream. Handles are the driver's own pointers. Calls throw DeviceError,
// naming the device, the call and the driver's reason. Those ending in `_async` do not wait.
class GpuDriver {
 public:
  virtual ~GpuDriver() = default;

  virtual const GpuDescription& description() const = 0;
  virtual void make_current() = 0;  // for the calling thread; before any call below

  // From here on everything goes to this stream (the driver's handle; null is its default stream), which a
  // framework owns and orders; use_own_stream() returns to the driver's. The caller sees to it that nobody
  // else works on the device meanwhile. A driver that runs every call at once has no streams to choose from.
  virtual void use_stream(void* /*stream*/) {}
  virtual void use_own_stream() {}
  // The stream in use, as the driver calls it (hipStream_t, CUstream); null is its default stream.
  virtual void* stream() { return nullptr; }
  virtual MemoryInfo memory() = 0;

  virtual void* allocate(size_t bytes) = 0;  // null where memory does not suffice
  // Every block is to be of the size asked for and given back at once: a device that knows its bounds.
  virtual bool exact_blocks() const { return false; }
  virtual void free(void* data) noexcept = 0;
  virtual void* allocate_pinned(size_t bytes) = 0;  // host memory; null where there is none
  virtual void free_pinned(void* data) noexcept = 0;
  // Pages that the caller has mapped: copies read them as pinned memory until unpin_pages(). False where the
  // driver does not, or not these.
  virtual bool pin_pages(void* /*data*/, size_t /*bytes*/) { return false; }
  virtual void unpin_pages(void* /*data*/) noexcept {}
  // As WindowHost's (window_host.hpp). allocate_coherent(): host memory; free_pinned() frees it.
  virtual void* allocate_window(size_t bytes) { return allocate(bytes); }
  virtual void* allocate_coherent(size_t bytes) { return allocate_pinned(bytes); }
  virtual std::string reach(GpuDriver&) { return "its driver has no windows"; }
  virtual void admit(const void*, size_t) {}
  virtual void forget(const void*) noexcept {}

  virtual void copy_to_device_async(void* dst, const void* src, size_t bytes) = 0;
  virtual void copy_to_host_async(void* dst, const void* src, size_t bytes) = 0;
  virtual void copy_on_device_async(void* dst, const void* src, size_t bytes) = 0;
  virtual void fill_zero_async(void* data, size_t bytes) = 0;
  virtual void admit_any_content(const void* /*data*/, size_t /*bytes*/) {}  // as in GpuDevice
  // From host memory on a stream of their own, with the same events (SideCopies). A driver that runs every
  // call at once has one order for all.
  virtual void copy_beside_async(void* dst, const void* src, size_t bytes) {
    copy_to_device_async(dst, src, bytes);
  }
  virtual void record_copies(void* event) { record_event(event); }
  virtual void copies_wait(void* /*event*/) {}
  virtual void launches_wait(void* /*event*/) {}
  virtual void synchronize_copies() { synchronize(); }
  // Calls between the two go to a stream of their own, which is served before the others, behind what the
  // event was recorded behind, if there is one. A driver that runs every call at once has one order.
  virtual void begin_beside(void* /*event*/) {}
  virtual void end_beside() noexcept {}
  virtual void synchronize() = 0;

  virtual void* load_module(const std::string& code) = 0;
  virtual void unload_module(void* module) noexcept = 0;
  virtual void* function(void* module, const std::string& name) = 0;
  // Lets the function be launched with this much dynamic LDS.
  virtual void allow_lds(void* function, uint32_t bytes) = 0;
  virtual void launch_async(void* function, GpuGrid grid, uint32_t threads, uint32_t lds_bytes,
                            const void* params, size_t bytes) = 0;

  // On another stream than the one in use, for callers on several threads; drivers without streams of a
  // caller's take their own.
  virtual void launch_on(void*, void* function, GpuGrid grid, uint32_t threads, uint32_t lds_bytes,
                         const void* params, size_t bytes) {
    launch_async(function, grid, threads, lds_bytes, params, bytes);
  }
  virtual void synchronize_stream(void*) { synchronize(); }
  virtual void* thread_context() { return nullptr; }  // as in GpuDevice
  virtual void restore_thread_context(void*) noexcept {}
  virtual void map_boxes(void* map, const MatrixBoxes& boxes);  // as GpuDevice's
  virtual void map_boxes(void* map, const HeadBoxes& boxes);
  virtual void map_boxes(void* map, const ImageBoxes& boxes);

  virtual void begin_capture() = 0;
  virtual void* end_capture(std::string& problem) = 0;  // null, and why, where there is no graph
  virtual void launch_graph_async(void* graph) = 0;
  virtual void destroy_graph(void* graph) noexcept = 0;

  virtual void* create_event() = 0;
  virtual void destroy_event(void* event) noexcept = 0;
  virtual void record_event(void* event) = 0;
  virtual void wait_event(void* event) = 0;                           // the calling thread
  virtual double milliseconds(void* earlier, void* later) const = 0;  // both have passed
};

// "cuda:0 (NVIDIA H200): cuLaunchKernel: CUDA_ERROR_...". call: the macro's text, of which the name is taken.
std::string gpu_call_failed(const GpuDescription& gpu, std::string_view call, std::string_view reason);

// The device over a driver; owns it.
std::unique_ptr<GpuDevice> make_gpu_device(std::unique_ptr<GpuDriver> driver);

// What a driver's library reports. `problem` says why there is nothing ("libcuda.so.1: cannot open ...").
struct GpuReport {
  std::vector<GpuDescription> gpus;
  std::string problem;
};
GpuReport cuda_gpus();
GpuReport hip_gpus();
GpuReport emulated_gpus();  // whether or not there is code for them
// Throw DeviceError where there is no such GPU or it cannot be opened.
std::unique_ptr<GpuDriver> open_cuda(int index);
std::unique_ptr<GpuDriver> open_hip(int index);
std::unique_ptr<GpuDriver> open_emulator(const std::string& arch);  // "gfx1100"

// What the calling thread has made current. context: null where it is the device's primary context, else the
// context itself, which then belongs to the caller and must outlive the driver that open_cuda_context()
// makes.
struct CurrentGpu {
  int index = 0;
  void* context = nullptr;
};
// Throw DeviceError where the thread has no current device.
CurrentGpu current_cuda();
CurrentGpu current_hip();
std::unique_ptr<GpuDriver> open_cuda_context(const CurrentGpu& gpu);

}  // namespace rocm_sd
