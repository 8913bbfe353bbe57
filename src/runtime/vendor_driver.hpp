// VendorDriver: the half of a GpuDriver in which CUDA's driver API and HIP differ in nothing but the names of
// the calls: streams, pinned memory, modules, captures and events.
#pragma once

#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "runtime/gpu_driver.hpp"

namespace rocm_sd {

// A function of the vendor's library, and its name for messages.
template <class Api, class... Arguments>
struct VendorCall {
  int (*Api::*function)(Arguments...);
  const char* name;
};
#define ROCM_SD_VENDOR_CALL(Api, function) \
  VendorCall { &Api::function, #function }

// Vendor: the types Api, Stream, Event, Module, Function, Graph and GraphExec; kSuccess, kStreamNonBlocking,
// kCaptureModeThreadLocal, kCoherentFlags; reason(api, status); and a VendorCall for each name that is used
// below.
template <class Vendor>
class VendorDriver : public GpuDriver {
 protected:
  using Api = typename Vendor::Api;
  using Stream = typename Vendor::Stream;
  using Event = typename Vendor::Event;
  using Module = typename Vendor::Module;
  using Function = typename Vendor::Function;

 public:
  const GpuDescription& description() const override { return gpu_; }
  void use_stream(void* stream) override { stream_ = static_cast<Stream>(stream); }
  void use_own_stream() override { stream_ = own_stream_; }
  void* stream() override { return stream_; }
  MemoryInfo memory() override {
    size_t free = 0, total = 0;
    call(Vendor::kMemory, &free, &total);
    return {total, free};
  }
  void* allocate_pinned(size_t bytes) override {
    void* data = nullptr;
    return (api_.*Vendor::kAllocatePinned.function)(&data, bytes, 0) == Vendor::kSuccess ? data : nullptr;
  }
  void* allocate_coherent(size_t bytes) override {
    void* data = nullptr;
    const int status = (api_.*Vendor::kAllocatePinned.function)(&data, bytes, Vendor::kCoherentFlags);
    return status == Vendor::kSuccess ? data : nullptr;
  }
  void free_pinned(void* data) noexcept override { forgive(Vendor::kFreePinned, data); }
  bool pin_pages(void* data, size_t bytes) override {
    return (api_.*Vendor::kPinPages.function)(data, bytes, 0) == Vendor::kSuccess;
  }
  void unpin_pages(void* data) noexcept override { forgive(Vendor::kUnpinPages, data); }
  void synchronize() override { call(Vendor::kSynchronize, stream_); }
  void synchronize_stream(void* stream) override { call(Vendor::kSynchronize, static_cast<Stream>(stream)); }

  void* load_module(const std::string& code) override {
    Module module = nullptr;
    call(Vendor::kLoadModule, &module, code.data());
    return module;
  }
  void unload_module(void* module) noexcept override {
    forgive(Vendor::kUnloadModule, static_cast<Module>(module));
  }
  void* function(void* module, const std::string& name) override {
    Function function = nullptr;
    call(Vendor::kFindFunction, &function, static_cast<Module>(module), name.c_str());
    return function;
  }
  void launch_async(void* function, GpuGrid grid, uint32_t threads, uint32_t lds_bytes, const void* params,
                    size_t bytes) override {
    launch_on(stream_, function, grid, threads, lds_bytes, params, bytes);
  }

  void begin_capture() override { call(Vendor::kBeginCapture, stream_, Vendor::kCaptureModeThreadLocal); }
  void* end_capture(std::string& problem) override {
    typename Vendor::Graph graph = nullptr;
    typename Vendor::GraphExec exec = nullptr;
    int status = (api_.*Vendor::kEndCapture.function)(stream_, &graph);
    if (status == Vendor::kSuccess) status = (api_.*Vendor::kMakeExec.function)(&exec, graph, 0);
    if (graph) forgive(Vendor::kDestroyGraph, graph);
    if (status == Vendor::kSuccess) return exec;
    problem = Vendor::reason(api_, status);
    return nullptr;
  }
  void launch_graph_async(void* graph) override {
    call(Vendor::kLaunchGraph, static_cast<typename Vendor::GraphExec>(graph), stream_);
  }
  void destroy_graph(void* graph) noexcept override {
    forgive(Vendor::kDestroyExec, static_cast<typename Vendor::GraphExec>(graph));
  }

  void* create_event() override {
    Event event = nullptr;
    call(Vendor::kCreateEvent, &event, 0U);
    return event;
  }
  void destroy_event(void* event) noexcept override {
    forgive(Vendor::kDestroyEvent, static_cast<Event>(event));
  }
  void record_event(void* event) override { call(Vendor::kRecordEvent, static_cast<Event>(event), stream_); }
  void wait_event(void* event) override { call(Vendor::kWaitEvent, static_cast<Event>(event)); }
  void record_copies(void* event) override {
    call(Vendor::kRecordEvent, static_cast<Event>(event), copy_stream());
  }
  void copies_wait(void* event) override {
    call(Vendor::kStreamWait, copy_stream(), static_cast<Event>(event), 0U);
  }
  void launches_wait(void* event) override {
    call(Vendor::kStreamWait, stream_, static_cast<Event>(event), 0U);
  }
  void synchronize_copies() override { call(Vendor::kSynchronize, copy_stream()); }
  void begin_beside(void* event) override {
    constexpr int kUrgent = -1;  // lower numbers are served first; drivers take what they have
    if (!side_stream_) call(Vendor::kCreateUrgentStream, &side_stream_, Vendor::kStreamNonBlocking, kUrgent);
    main_stream_ = std::exchange(stream_, side_stream_);
    if (event) launches_wait(event);
  }
  void end_beside() noexcept override { stream_ = main_stream_; }
  double milliseconds(void* earlier, void* later) const override {
    float elapsed = 0;
    call(Vendor::kElapsed, &elapsed, static_cast<Event>(earlier), static_cast<Event>(later));
    return static_cast<double>(elapsed);
  }

 protected:
  VendorDriver(const Api& api, GpuDescription gpu) : api_(api), gpu_(std::move(gpu)) {}

  void make_own_stream() {
    call(Vendor::kCreateStream, &own_stream_, Vendor::kStreamNonBlocking);
    stream_ = own_stream_;
  }
  void destroy_own_stream() noexcept {
    forgive(Vendor::kDestroyStream, own_stream_);
    if (copy_stream_) forgive(Vendor::kDestroyStream, copy_stream_);
    if (side_stream_) forgive(Vendor::kDestroyStream, side_stream_);
  }
  // Made when it is first asked for.
  Stream copy_stream() {
    if (!copy_stream_) call(Vendor::kCreateStream, &copy_stream_, Vendor::kStreamNonBlocking);
    return copy_stream_;
  }

  void check(int status, const char* call) const {
    if (status != Vendor::kSuccess)
      throw DeviceError(gpu_call_failed(gpu_, call, Vendor::reason(api_, status)));
  }
  template <class Call, class... Arguments>
  void call(const Call& called, Arguments... arguments) const {
    check((api_.*called.function)(arguments...), called.name);
  }
  // Where nothing can be done about it: a device that was lost, a process that ends.
  template <class Call, class... Arguments>
  void forgive(const Call& called, Arguments... arguments) const noexcept {
    const int status = (api_.*called.function)(arguments...);
    if (status != Vendor::kSuccess)
      log().warn("{}: {}: {}", gpu_.device, called.name, Vendor::reason(api_, status));
  }

  const Api& api_;
  GpuDescription gpu_;
  Stream own_stream_ = nullptr, stream_ = nullptr;        // stream_: the one in use
  Stream copy_stream_ = nullptr, side_stream_ = nullptr;  // null: not made yet
  Stream main_stream_ = nullptr;                          // in use before begin_beside()
};

// The GPUs that a library reports. problem: why it cannot be used, or empty; none: the sentence for no GPU;
// describe(api, i): the GPU of this number.
template <class Vendor, class Describe>
GpuReport report_gpus(const typename Vendor::Api& api, const std::string& problem, const char* none,
                      const Describe& describe) {
  GpuReport report{.problem = problem};
  if (!problem.empty()) return report;
  int count = 0;
  if (const int status = (api.*Vendor::kCount.function)(&count); status != Vendor::kSuccess)
    report.problem = concat(Vendor::kCount.name, ": ", Vendor::reason(api, status));
  else if (count == 0)
    report.problem = none;
  for (int i = 0; i < count; ++i) report.gpus.push_back(describe(api, i));
  return report;
}

}  // namespace rocm_sd
