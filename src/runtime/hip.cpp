// AMD GPUs through libamdhip64, found when the program runs.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/dynamic_library.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "runtime/gpu_driver.hpp"
#include "runtime/hip_api.hpp"

namespace rocm_sd {
namespace {

using namespace hip;

std::string reason(const Api& api, Status status) {
  const char* name = api.hipGetErrorName ? api.hipGetErrorName(status) : nullptr;
  const char* text = api.hipGetErrorString ? api.hipGetErrorString(status) : nullptr;
  return concat(name ? name : "unknown error", " (", status, ")", text ? ": " : "", text ? text : "");
}

// The library, its functions and hipInit, once per process.
struct Library {
  DynamicLibrary file = DynamicLibrary::chosen_by(
      "ROCM_SD_HIP_LIBRARY", {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so",
                              "/opt/rocm/lib/libamdhip64.so"});
  hip::Api functions;
  std::string problem;

  Library() {
    if (!file) {
      problem = concat("no ROCm: ", file.problem());
      return;
    }
#define ROCM_SD_LOAD(call, ...)                                                    \
  functions.call = reinterpret_cast<decltype(functions.call)>(file.symbol(#call)); \
  if (!functions.call && problem.empty()) problem = concat(file.name(), " is too old: no " #call);
    ROCM_SD_HIP_FUNCTIONS(ROCM_SD_LOAD)
    ROCM_SD_LOAD(hipGetErrorName)
    ROCM_SD_LOAD(hipGetErrorString)
#undef ROCM_SD_LOAD
    void* properties = file.symbol("hipGetDevicePropertiesR0600");
    functions.arch_offset = properties ? kArchOffsetR0600 : kArchOffsetR0000;
    if (!properties) properties = file.symbol("hipGetDeviceProperties");
    functions.properties = reinterpret_cast<decltype(functions.properties)>(properties);
    if (!properties && problem.empty()) problem = concat(file.name(), " has no hipGetDeviceProperties");
    if (!problem.empty()) return;
    if (const Status status = functions.hipInit(0); status != kSuccess)
      problem = concat("hipInit: ", reason(functions, status));
    // Code for another architecture may run, crash or be wrong: whoever set this must find it in the log.
    if (const char* set = std::getenv("HSA_OVERRIDE_GFX_VERSION"); set && *set)
      log().warn(
          "HSA_OVERRIDE_GFX_VERSION={} makes ROCm report another architecture than the card has; kernels "
          "may fail or compute wrong results. Unset it unless that is intended.",
          printable(set));
  }
};
const Library& library() {
  static const Library instance;
  return instance;
}

GpuFamily family_of(std::string_view arch) {
  if (const auto known = gpu_family(arch)) return *known;
  if (arch.starts_with("gfx12")) return GpuFamily::kRdna4;
  return arch.starts_with("gfx9") ? GpuFamily::kCdna3 : GpuFamily::kRdna3;
}

GpuDescription describe(const Api& api, int index) {
  const auto check = [&](Status status, const char* call) {
    require<DeviceError>(status == kSuccess, "hip:", index, ": ", call, ": ", reason(api, status));
  };
  const auto attribute = [&](int which) {
    int value = 0;
    ROCM_SD_CHECK_GPU(api.hipDeviceGetAttribute(&value, which, index));
    return value;
  };
  char product[256] = {};
  ROCM_SD_CHECK_GPU(api.hipDeviceGetName(product, sizeof(product) - 1, index));
  size_t memory = 0;
  ROCM_SD_CHECK_GPU(api.hipDeviceTotalMem(&memory, index));
  char pci[kPciBytes] = {};
  if (api.hipDeviceGetPCIBusId(pci, sizeof(pci) - 1, index) != kSuccess) pci[0] = 0;
  alignas(16) char properties[kPropertyBytes] = {};
  ROCM_SD_CHECK_GPU(api.properties(properties, index));
  const char* name = properties + api.arch_offset;
  std::string arch(name, strnlen(name, kArchBytes));
  require<DeviceError>(arch.starts_with("gfx") && arch.size() < 64, "hip:", index,
                       ": expected an architecture such as gfx1100, the driver reports \"", printable(arch),
                       "\"");
  arch.resize(std::min(arch.size(), arch.find(':')));  // gfx942:sramecc+:xnack-
  GpuDescription gpu{.kind = DeviceKind::kHip,
                     .device = concat("hip:", index),
                     .product = printable(product),
                     .memory_bytes = memory,
                     .targets = {arch}};
  gpu.traits = {.arch = arch,
                .family = family_of(arch),
                .lanes = attribute(kLanes),
                .compute_units = attribute(kComputeUnits),
                .lds_per_group = static_cast<size_t>(attribute(kSharedBytes)),
                .l2_bytes = static_cast<size_t>(attribute(kL2Bytes)),
                .integrated = attribute(kIntegrated) != 0,
                .pci = pci};
  return gpu;
}

class HipDriver final : public GpuDriver {
 public:
  HipDriver(const Api& api, int index) : api_(api), gpu_(describe(api, index)), index_(index) {
    make_current();
    ROCM_SD_CHECK_GPU(api_.hipStreamCreateWithFlags(&own_stream_, kStreamNonBlocking));
    stream_ = own_stream_;
  }
  ~HipDriver() override { forgive(api_.hipStreamDestroy(own_stream_), "hipStreamDestroy"); }

  const GpuDescription& description() const override { return gpu_; }
  void make_current() override { ROCM_SD_CHECK_GPU(api_.hipSetDevice(index_)); }
  void use_stream(void* stream) override { stream_ = static_cast<Stream>(stream); }
  void use_own_stream() override { stream_ = own_stream_; }
  void* stream() override { return stream_; }
  MemoryInfo memory() override {
    size_t free = 0, total = 0;
    ROCM_SD_CHECK_GPU(api_.hipMemGetInfo(&free, &total));
    return {total, free};
  }

  void* allocate(size_t bytes) override {
    void* data = nullptr;
    const Status status = api_.hipMalloc(&data, bytes);
    if (status == kOutOfMemory) return nullptr;
    check(status, "hipMalloc");
    return data;
  }
  void free(void* data) noexcept override { forgive(api_.hipFree(data), "hipFree"); }
  void* allocate_pinned(size_t bytes) override {
    void* data = nullptr;
    return api_.hipHostMalloc(&data, bytes, 0) == kSuccess ? data : nullptr;
  }
  void free_pinned(void* data) noexcept override { forgive(api_.hipHostFree(data), "hipHostFree"); }

  void copy_to_device_async(void* dst, const void* src, size_t bytes) override {
    ROCM_SD_CHECK_GPU(api_.hipMemcpyAsync(dst, src, bytes, kHostToDevice, stream_));
  }
  void copy_to_host_async(void* dst, const void* src, size_t bytes) override {
    ROCM_SD_CHECK_GPU(api_.hipMemcpyAsync(dst, src, bytes, kDeviceToHost, stream_));
  }
  void copy_on_device_async(void* dst, const void* src, size_t bytes) override {
    ROCM_SD_CHECK_GPU(api_.hipMemcpyAsync(dst, src, bytes, kDeviceToDevice, stream_));
  }
  void fill_zero_async(void* data, size_t bytes) override {
    ROCM_SD_CHECK_GPU(api_.hipMemsetAsync(data, 0, bytes, stream_));
  }
  void synchronize() override { ROCM_SD_CHECK_GPU(api_.hipStreamSynchronize(stream_)); }

  void* load_module(const std::string& code) override {
    Module module = nullptr;
    ROCM_SD_CHECK_GPU(api_.hipModuleLoadData(&module, code.data()));
    return module;
  }
  void unload_module(void* module) noexcept override {
    forgive(api_.hipModuleUnload(static_cast<Module>(module)), "hipModuleUnload");
  }
  void* function(void* module, const std::string& name) override {
    Function function = nullptr;
    ROCM_SD_CHECK_GPU(api_.hipModuleGetFunction(&function, static_cast<Module>(module), name.c_str()));
    return function;
  }
  void allow_lds(void*, uint32_t) override {}  // AMD has one limit, which the launch was checked against
  void launch_async(void* function, GpuGrid grid, uint32_t threads, uint32_t lds_bytes, const void* params,
                    size_t bytes) override {
    launch_on(stream_, function, grid, threads, lds_bytes, params, bytes);
  }
  void launch_on(void* stream, void* function, GpuGrid grid, uint32_t threads, uint32_t lds_bytes,
                 const void* params, size_t bytes) override {
    void* extra[] = {kParamBuffer, const_cast<void*>(params), kParamBytes, &bytes, kParamEnd};
    ROCM_SD_CHECK_GPU(api_.hipModuleLaunchKernel(static_cast<Function>(function), grid.x, grid.y, grid.z,
                                                 threads, 1, 1, lds_bytes, static_cast<Stream>(stream),
                                                 nullptr, extra));
  }
  void synchronize_stream(void* stream) override {
    ROCM_SD_CHECK_GPU(api_.hipStreamSynchronize(static_cast<Stream>(stream)));
  }
  // The device's number, as a pointer.
  void* thread_context() override {
    int device = 0;
    ROCM_SD_CHECK_GPU(api_.hipGetDevice(&device));
    return reinterpret_cast<void*>(static_cast<intptr_t>(device));
  }
  void restore_thread_context(void* context) noexcept override {
    const auto device = static_cast<int>(reinterpret_cast<intptr_t>(context));
    if (device != index_) forgive(api_.hipSetDevice(device), "hipSetDevice");
  }

  void begin_capture() override {
    ROCM_SD_CHECK_GPU(api_.hipStreamBeginCapture(stream_, kCaptureModeThreadLocal));
  }
  void* end_capture(std::string& problem) override {
    Graph graph = nullptr;
    GraphExec exec = nullptr;
    Status status = api_.hipStreamEndCapture(stream_, &graph);
    if (status == kSuccess) status = api_.hipGraphInstantiateWithFlags(&exec, graph, 0);
    if (graph) forgive(api_.hipGraphDestroy(graph), "hipGraphDestroy");
    if (status == kSuccess) return exec;
    problem = reason(api_, status);
    return nullptr;
  }
  void launch_graph_async(void* graph) override {
    ROCM_SD_CHECK_GPU(api_.hipGraphLaunch(static_cast<GraphExec>(graph), stream_));
  }
  void destroy_graph(void* graph) noexcept override {
    forgive(api_.hipGraphExecDestroy(static_cast<GraphExec>(graph)), "hipGraphExecDestroy");
  }

  void* create_event() override {
    Event event = nullptr;
    ROCM_SD_CHECK_GPU(api_.hipEventCreateWithFlags(&event, 0));
    return event;
  }
  void destroy_event(void* event) noexcept override {
    forgive(api_.hipEventDestroy(static_cast<Event>(event)), "hipEventDestroy");
  }
  void record_event(void* event) override {
    ROCM_SD_CHECK_GPU(api_.hipEventRecord(static_cast<Event>(event), stream_));
  }
  void wait_event(void* event) override {
    ROCM_SD_CHECK_GPU(api_.hipEventSynchronize(static_cast<Event>(event)));
  }
  double milliseconds(void* earlier, void* later) const override {
    float elapsed = 0;
    ROCM_SD_CHECK_GPU(
        api_.hipEventElapsedTime(&elapsed, static_cast<Event>(earlier), static_cast<Event>(later)));
    return static_cast<double>(elapsed);
  }

 private:
  void check(Status status, const char* call) const {
    if (status != kSuccess) throw DeviceError(gpu_call_failed(gpu_, call, reason(api_, status)));
  }
  // Where nothing can be done about it: a device that was lost, a process that ends.
  void forgive(Status status, const char* call) const noexcept {
    if (status != kSuccess) log().warn("{}: {}: {}", gpu_.device, call, reason(api_, status));
  }

  const Api& api_;
  GpuDescription gpu_;
  int index_;
  Stream own_stream_ = nullptr, stream_ = nullptr;  // stream_: the one in use
};

}  // namespace

GpuReport hip_gpus() {
  const Library& rocm = library();
  GpuReport report{.problem = rocm.problem};
  if (!report.problem.empty()) return report;
  int count = 0;
  if (const Status status = rocm.functions.hipGetDeviceCount(&count); status != kSuccess)
    report.problem = concat("hipGetDeviceCount: ", reason(rocm.functions, status));
  else if (count == 0)
    report.problem = "ROCm reports no GPU";
  for (int i = 0; i < count; ++i) report.gpus.push_back(describe(rocm.functions, i));
  return report;
}

std::unique_ptr<GpuDriver> open_hip(int index) {
  const GpuReport report = hip_gpus();
  require<DeviceError>(report.problem.empty(), "hip:", index, ": ", report.problem);
  require<DeviceError>(index >= 0 && index < static_cast<int>(report.gpus.size()), "hip:", index,
                       ": there is no such device; ROCm reports ", report.gpus.size());
  return std::make_unique<HipDriver>(library().functions, index);
}

CurrentGpu current_hip() {
  const Library& rocm = library();
  require<DeviceError>(rocm.problem.empty(), "hip:current: ", rocm.problem);
  CurrentGpu gpu;
  const Status status = rocm.functions.hipGetDevice(&gpu.index);
  require<DeviceError>(status == kSuccess, "hip:current: hipGetDevice: ", reason(rocm.functions, status));
  return gpu;
}

}  // namespace rocm_sd
