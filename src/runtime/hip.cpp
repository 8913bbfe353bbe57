// AMD GPUs through libamdhip64, found when the program runs.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/dynamic_library.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "runtime/gpu_driver.hpp"
#include "runtime/hip_api.hpp"
#include "runtime/vendor_driver.hpp"

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
#define ROCM_SD_LOAD_PEER(call, ...) \
  functions.call = reinterpret_cast<decltype(functions.call)>(file.symbol(#call));
    ROCM_SD_HIP_PEER_FUNCTIONS(ROCM_SD_LOAD_PEER)
#undef ROCM_SD_LOAD_PEER
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

// What VendorDriver calls.
struct HipVendor {
  using Api = hip::Api;
  using Stream = hip::Stream;
  using Event = hip::Event;
  using Module = hip::Module;
  using Function = hip::Function;
  using Graph = hip::Graph;
  using GraphExec = hip::GraphExec;
  static constexpr int kSuccess = hip::kSuccess, kCaptureModeThreadLocal = hip::kCaptureModeThreadLocal;
  static constexpr unsigned kStreamNonBlocking = hip::kStreamNonBlocking;
  static constexpr unsigned kCoherentFlags = hip::kHostCoherent;
  static std::string reason(const Api& api, int status) { return rocm_sd::reason(api, status); }

  static constexpr auto kCount = ROCM_SD_VENDOR_CALL(Api, hipGetDeviceCount);
  static constexpr auto kMemory = ROCM_SD_VENDOR_CALL(Api, hipMemGetInfo);
  static constexpr auto kAllocatePinned = ROCM_SD_VENDOR_CALL(Api, hipHostMalloc);
  static constexpr auto kFreePinned = ROCM_SD_VENDOR_CALL(Api, hipHostFree);
  static constexpr auto kPinPages = ROCM_SD_VENDOR_CALL(Api, hipHostRegister);
  static constexpr auto kUnpinPages = ROCM_SD_VENDOR_CALL(Api, hipHostUnregister);
  static constexpr auto kCreateStream = ROCM_SD_VENDOR_CALL(Api, hipStreamCreateWithFlags);
  static constexpr auto kCreateUrgentStream = ROCM_SD_VENDOR_CALL(Api, hipStreamCreateWithPriority);
  static constexpr auto kDestroyStream = ROCM_SD_VENDOR_CALL(Api, hipStreamDestroy);
  static constexpr auto kSynchronize = ROCM_SD_VENDOR_CALL(Api, hipStreamSynchronize);
  static constexpr auto kStreamWait = ROCM_SD_VENDOR_CALL(Api, hipStreamWaitEvent);
  static constexpr auto kLoadModule = ROCM_SD_VENDOR_CALL(Api, hipModuleLoadData);
  static constexpr auto kUnloadModule = ROCM_SD_VENDOR_CALL(Api, hipModuleUnload);
  static constexpr auto kFindFunction = ROCM_SD_VENDOR_CALL(Api, hipModuleGetFunction);
  static constexpr auto kBeginCapture = ROCM_SD_VENDOR_CALL(Api, hipStreamBeginCapture);
  static constexpr auto kEndCapture = ROCM_SD_VENDOR_CALL(Api, hipStreamEndCapture);
  static constexpr auto kMakeExec = ROCM_SD_VENDOR_CALL(Api, hipGraphInstantiateWithFlags);
  static constexpr auto kDestroyGraph = ROCM_SD_VENDOR_CALL(Api, hipGraphDestroy);
  static constexpr auto kLaunchGraph = ROCM_SD_VENDOR_CALL(Api, hipGraphLaunch);
  static constexpr auto kDestroyExec = ROCM_SD_VENDOR_CALL(Api, hipGraphExecDestroy);
  static constexpr auto kCreateEvent = ROCM_SD_VENDOR_CALL(Api, hipEventCreateWithFlags);
  static constexpr auto kDestroyEvent = ROCM_SD_VENDOR_CALL(Api, hipEventDestroy);
  static constexpr auto kRecordEvent = ROCM_SD_VENDOR_CALL(Api, hipEventRecord);
  static constexpr auto kWaitEvent = ROCM_SD_VENDOR_CALL(Api, hipEventSynchronize);
  static constexpr auto kElapsed = ROCM_SD_VENDOR_CALL(Api, hipEventElapsedTime);
};

class HipDriver final : public VendorDriver<HipVendor> {
 public:
  HipDriver(const Api& api, int index) : VendorDriver(api, describe(api, index)), index_(index) {
    make_current();
    make_own_stream();
  }
  ~HipDriver() override { destroy_own_stream(); }

  void make_current() override { ROCM_SD_CHECK_GPU(api_.hipSetDevice(index_)); }
  void* allocate(size_t bytes) override {
    void* data = nullptr;
    const Status status = api_.hipMalloc(&data, bytes);
    if (status == kOutOfMemory) return nullptr;
    check(status, "hipMalloc");
    return data;
  }
  void free(void* data) noexcept override { forgive(ROCM_SD_VENDOR_CALL(Api, hipFree), data); }
  // Ordinary memory may lie in this GPU's caches, which do not see what another GPU writes to it.
  void* allocate_window(size_t bytes) override {
    void* data = nullptr;
    if (!api_.hipExtMallocWithFlags) return nullptr;
    for (const unsigned flags : {kUncached, kFineGrained})
      if (api_.hipExtMallocWithFlags(&data, bytes, flags) == kSuccess) return data;
    return nullptr;
  }
  std::string reach(GpuDriver& other) override {
    const auto& peer = static_cast<HipDriver&>(other);
    if (peer.index_ == index_) return "";
    if (!api_.hipDeviceCanAccessPeer || !api_.hipDeviceEnablePeerAccess) return "ROCm has no peer access";
    int can = 0;
    ROCM_SD_CHECK_GPU(api_.hipDeviceCanAccessPeer(&can, index_, peer.index_));
    if (!can) return concat(gpu_.device, " has no peer access to ", peer.gpu_.device);
    const Status status = api_.hipDeviceEnablePeerAccess(peer.index_, 0);
    if (status == kSuccess || status == kPeerAlreadyEnabled) return "";
    return concat("hipDeviceEnablePeerAccess: ", reason(api_, status));
  }
  void copy_to_device_async(void* dst, const void* src, size_t bytes) override {
    ROCM_SD_CHECK_GPU(api_.hipMemcpyAsync(dst, src, bytes, kHostToDevice, stream_));
  }
  void copy_to_host_async(void* dst, const void* src, size_t bytes) override {
    ROCM_SD_CHECK_GPU(api_.hipMemcpyAsync(dst, src, bytes, kDeviceToHost, stream_));
  }
  void copy_on_device_async(void* dst, const void* src, size_t bytes) override {
    ROCM_SD_CHECK_GPU(api_.hipMemcpyAsync(dst, src, bytes, kDeviceToDevice, stream_));
  }
  void copy_beside_async(void* dst, const void* src, size_t bytes) override {
    ROCM_SD_CHECK_GPU(api_.hipMemcpyAsync(dst, src, bytes, kHostToDevice, copy_stream()));
  }
  void fill_zero_async(void* data, size_t bytes) override {
    ROCM_SD_CHECK_GPU(api_.hipMemsetAsync(data, 0, bytes, stream_));
  }
  void allow_lds(void*, uint32_t) override {}  // AMD has one limit, which the launch was checked against
  void launch_on(void* stream, void* function, GpuGrid grid, uint32_t threads, uint32_t lds_bytes,
                 const void* params, size_t bytes) override {
    void* extra[] = {kParamBuffer, const_cast<void*>(params), kParamBytes, &bytes, kParamEnd};
    ROCM_SD_CHECK_GPU(api_.hipModuleLaunchKernel(static_cast<Function>(function), grid.x, grid.y, grid.z,
                                                 threads, 1, 1, lds_bytes, static_cast<Stream>(stream),
                                                 nullptr, extra));
  }
  // The device's number, as a pointer.
  void* thread_context() override {
    int device = 0;
    ROCM_SD_CHECK_GPU(api_.hipGetDevice(&device));
    return reinterpret_cast<void*>(static_cast<intptr_t>(device));
  }
  void restore_thread_context(void* context) noexcept override {
    const auto device = static_cast<int>(reinterpret_cast<intptr_t>(context));
    if (device != index_) forgive(ROCM_SD_VENDOR_CALL(Api, hipSetDevice), device);
  }

 private:
  int index_;
};

}  // namespace

GpuReport hip_gpus() {
  return report_gpus<HipVendor>(library().functions, library().problem, "ROCm reports no GPU", describe);
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
