// NVIDIA GPUs through libcuda.so.1, found when the program runs.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "base/dynamic_library.hpp"
#include "base/error.hpp"
#include "runtime/cuda_api.hpp"
#include "runtime/gpu_driver.hpp"
#include "runtime/vendor_driver.hpp"

namespace rocm_sd {
namespace {

using namespace cuda;

std::string reason(const Api& api, Status status) {
  const char *name = nullptr, *text = nullptr;
  if (api.cuGetErrorName) api.cuGetErrorName(status, &name);
  if (api.cuGetErrorString) api.cuGetErrorString(status, &text);
  return concat(name ? name : "unknown error", " (", status, ")", text ? ": " : "", text ? text : "");
}

// The library, its functions and cuInit, once per process.
struct Library {
  DynamicLibrary file = DynamicLibrary::chosen_by("ROCM_SD_CUDA_LIBRARY", {"libcuda.so.1"});
  cuda::Api functions;
  std::string problem;

  Library() {
    if (!file) {
      problem = concat("no NVIDIA driver: ", file.problem());
      return;
    }
#define ROCM_SD_LOAD(call, ...)                                                    \
  functions.call = reinterpret_cast<decltype(functions.call)>(file.symbol(#call)); \
  if (!functions.call && problem.empty()) problem = concat(file.name(), " is too old: no " #call);
    ROCM_SD_CUDA_FUNCTIONS(ROCM_SD_LOAD)
#undef ROCM_SD_LOAD
#define ROCM_SD_LOAD_NEWER(call, ...) \
  functions.call = reinterpret_cast<decltype(functions.call)>(file.symbol(#call));
    ROCM_SD_CUDA_NEWER_FUNCTIONS(ROCM_SD_LOAD_NEWER)
#undef ROCM_SD_LOAD_NEWER
    if (!problem.empty()) return;
    if (const Status status = functions.cuInit(0); status != kSuccess)
      problem = concat("cuInit: ", reason(functions, status));
  }
};
const Library& library() {
  static const Library instance;
  return instance;
}

// sm_89 runs code of sm_89, sm_86 and sm_80: binaries are compatible upwards within a major version.
std::vector<std::string> targets_of(int major, int minor) {
  std::vector<std::string> targets;
  for (int m = minor; m >= 0; --m) targets.push_back(concat("sm_", major, m));
  return targets;
}

GpuDescription describe(const Api& api, int index) {
  const auto check = [&](Status status, const char* call) {
    require<DeviceError>(status == kSuccess, "cuda:", index, ": ", call, ": ", reason(api, status));
  };
  Ordinal device = 0;
  ROCM_SD_CHECK_GPU(api.cuDeviceGet(&device, index));
  const auto attribute = [&](int which) {
    int value = 0;
    ROCM_SD_CHECK_GPU(api.cuDeviceGetAttribute(&value, which, device));
    return value;
  };
  char product[256] = {};
  ROCM_SD_CHECK_GPU(api.cuDeviceGetName(product, sizeof(product) - 1, device));
  size_t memory = 0;
  ROCM_SD_CHECK_GPU(api.cuDeviceTotalMem_v2(&memory, device));
  char pci[kPciBytes] = {};
  if (api.cuDeviceGetPCIBusId(pci, sizeof(pci) - 1, device) != kSuccess) pci[0] = 0;
  GpuDescription gpu{.kind = DeviceKind::kCuda,
                     .device = concat("cuda:", index),
                     .product = printable(product),
                     .memory_bytes = memory,
                     .targets = targets_of(attribute(kMajor), attribute(kMinor))};
  gpu.traits = {.arch = gpu.targets.front(),
                .family = GpuFamily::kNvidia,
                .lanes = 32,
                .compute_units = attribute(kComputeUnits),
                .lds_per_group = static_cast<size_t>(attribute(kSharedBytesOptin)),
                .l2_bytes = static_cast<size_t>(attribute(kL2Bytes)),
                .integrated = attribute(kIntegrated) != 0,
                .cluster = attribute(kMajor) >= 9 ? 8u : 1u,
                .tma = attribute(kMajor) >= 9 && api.cuTensorMapEncodeTiled && api.cuTensorMapEncodeIm2col,
                .pci = pci};
  return gpu;
}

// What VendorDriver calls.
struct CudaVendor {
  using Api = cuda::Api;
  using Stream = cuda::Stream;
  using Event = cuda::Event;
  using Module = cuda::Module;
  using Function = cuda::Function;
  using Graph = cuda::Graph;
  using GraphExec = cuda::GraphExec;
  static constexpr int kSuccess = cuda::kSuccess, kCaptureModeThreadLocal = cuda::kCaptureModeThreadLocal;
  static constexpr unsigned kStreamNonBlocking = cuda::kStreamNonBlocking;
  static constexpr unsigned kCoherentFlags = cuda::kHostCoherent;
  static std::string reason(const Api& api, int status) { return rocm_sd::reason(api, status); }

  static constexpr auto kCount = ROCM_SD_VENDOR_CALL(Api, cuDeviceGetCount);
  static constexpr auto kMemory = ROCM_SD_VENDOR_CALL(Api, cuMemGetInfo_v2);
  static constexpr auto kAllocatePinned = ROCM_SD_VENDOR_CALL(Api, cuMemHostAlloc);
  static constexpr auto kFreePinned = ROCM_SD_VENDOR_CALL(Api, cuMemFreeHost);
  static constexpr auto kPinPages = ROCM_SD_VENDOR_CALL(Api, cuMemHostRegister_v2);
  static constexpr auto kUnpinPages = ROCM_SD_VENDOR_CALL(Api, cuMemHostUnregister);
  static constexpr auto kCreateStream = ROCM_SD_VENDOR_CALL(Api, cuStreamCreate);
  static constexpr auto kCreateUrgentStream = ROCM_SD_VENDOR_CALL(Api, cuStreamCreateWithPriority);
  static constexpr auto kDestroyStream = ROCM_SD_VENDOR_CALL(Api, cuStreamDestroy_v2);
  static constexpr auto kSynchronize = ROCM_SD_VENDOR_CALL(Api, cuStreamSynchronize);
  static constexpr auto kStreamWait = ROCM_SD_VENDOR_CALL(Api, cuStreamWaitEvent);
  static constexpr auto kLoadModule = ROCM_SD_VENDOR_CALL(Api, cuModuleLoadData);
  static constexpr auto kUnloadModule = ROCM_SD_VENDOR_CALL(Api, cuModuleUnload);
  static constexpr auto kFindFunction = ROCM_SD_VENDOR_CALL(Api, cuModuleGetFunction);
  static constexpr auto kBeginCapture = ROCM_SD_VENDOR_CALL(Api, cuStreamBeginCapture_v2);
  static constexpr auto kEndCapture = ROCM_SD_VENDOR_CALL(Api, cuStreamEndCapture);
  static constexpr auto kMakeExec = ROCM_SD_VENDOR_CALL(Api, cuGraphInstantiateWithFlags);
  static constexpr auto kDestroyGraph = ROCM_SD_VENDOR_CALL(Api, cuGraphDestroy);
  static constexpr auto kLaunchGraph = ROCM_SD_VENDOR_CALL(Api, cuGraphLaunch);
  static constexpr auto kDestroyExec = ROCM_SD_VENDOR_CALL(Api, cuGraphExecDestroy);
  static constexpr auto kCreateEvent = ROCM_SD_VENDOR_CALL(Api, cuEventCreate);
  static constexpr auto kDestroyEvent = ROCM_SD_VENDOR_CALL(Api, cuEventDestroy_v2);
  static constexpr auto kRecordEvent = ROCM_SD_VENDOR_CALL(Api, cuEventRecord);
  static constexpr auto kWaitEvent = ROCM_SD_VENDOR_CALL(Api, cuEventSynchronize);
  static constexpr auto kElapsed = ROCM_SD_VENDOR_CALL(Api, cuEventElapsedTime);
};

Pointer pointer(const void* data) { return reinterpret_cast<Pointer>(data); }

class CudaDriver final : public VendorDriver<CudaVendor> {
 public:
  // context: of the caller's, or null for the device's primary one.
  CudaDriver(const Api& api, int index, Context context)
      : VendorDriver(api, describe(api, index)), context_(context), adopted_(context != nullptr) {
    ROCM_SD_CHECK_GPU(api_.cuDeviceGet(&device_, index));
    if (!adopted_) ROCM_SD_CHECK_GPU(api_.cuDevicePrimaryCtxRetain(&context_, device_));
    try {
      make_current();
      const char* overlap = std::getenv("ROCM_SD_OVERLAP");
      overlap_ = gpu_.traits.cluster > 1 && !(overlap && std::string_view(overlap) == "0");
      make_own_stream();
    } catch (...) {
      if (!adopted_) api_.cuDevicePrimaryCtxRelease_v2(device_);
      throw;
    }
  }
  ~CudaDriver() override {
    api_.cuCtxSetCurrent(context_);
    destroy_own_stream();
    if (!adopted_) forgive(ROCM_SD_VENDOR_CALL(Api, cuDevicePrimaryCtxRelease_v2), device_);
  }

  void make_current() override { ROCM_SD_CHECK_GPU(api_.cuCtxSetCurrent(context_)); }
  void* allocate(size_t bytes) override {
    Pointer data = 0;
    const Status status = api_.cuMemAlloc_v2(&data, bytes);
    if (status == kOutOfMemory) return nullptr;
    check(status, "cuMemAlloc");
    return reinterpret_cast<void*>(data);
  }
  void free(void* data) noexcept override { forgive(ROCM_SD_VENDOR_CALL(Api, cuMemFree_v2), pointer(data)); }
  std::string reach(GpuDriver& other) override {
    auto& peer = static_cast<CudaDriver&>(other);
    if (peer.context_ == context_) return "";
    if (!api_.cuDeviceCanAccessPeer || !api_.cuCtxEnablePeerAccess) return "the driver has no peer access";
    int can = 0;
    ROCM_SD_CHECK_GPU(api_.cuDeviceCanAccessPeer(&can, device_, peer.device_));
    if (!can) return concat(gpu_.device, " has no peer access to ", peer.gpu_.device);
    const Status status = api_.cuCtxEnablePeerAccess(peer.context_, 0);
    if (status == kSuccess || status == kPeerAlreadyEnabled) return "";
    return concat("cuCtxEnablePeerAccess: ", reason(api_, status));
  }
  void copy_to_device_async(void* dst, const void* src, size_t bytes) override {
    ROCM_SD_CHECK_GPU(api_.cuMemcpyHtoDAsync_v2(pointer(dst), src, bytes, stream_));
  }
  void copy_to_host_async(void* dst, const void* src, size_t bytes) override {
    ROCM_SD_CHECK_GPU(api_.cuMemcpyDtoHAsync_v2(dst, pointer(src), bytes, stream_));
  }
  void copy_on_device_async(void* dst, const void* src, size_t bytes) override {
    ROCM_SD_CHECK_GPU(api_.cuMemcpyDtoDAsync_v2(pointer(dst), pointer(src), bytes, stream_));
  }
  void copy_beside_async(void* dst, const void* src, size_t bytes) override {
    ROCM_SD_CHECK_GPU(api_.cuMemcpyHtoDAsync_v2(pointer(dst), src, bytes, copy_stream()));
  }
  // The launch after it begins when all before it has ended: it may not overlap with its predecessor, which a
  // graph would take for the one thing that it waits for.
  void launches_wait(void* event) override {
    VendorDriver::launches_wait(event);
    waits_ = true;
  }
  void begin_beside(void* event) override {
    main_waits_ = std::exchange(waits_, false);
    VendorDriver::begin_beside(event);
  }
  void end_beside() noexcept override {
    VendorDriver::end_beside();
    waits_ = main_waits_;
  }
  void fill_zero_async(void* data, size_t bytes) override {
    ROCM_SD_CHECK_GPU(api_.cuMemsetD8Async(pointer(data), 0, bytes, stream_));
  }
  void allow_lds(void* function, uint32_t bytes) override {
    // What the kernel declares counts too, so the default may be too little for fewer bytes than it is.
    if (bytes > kDefaultSharedBytes / 2)
      ROCM_SD_CHECK_GPU(api_.cuFuncSetAttribute(static_cast<Function>(function), kFunctionSharedBytes,
                                                static_cast<int>(bytes)));
  }
  void launch_on(void* stream, void* function, GpuGrid grid, uint32_t threads, uint32_t lds_bytes,
                 const void* params, size_t) override {
    void* arguments[] = {const_cast<void*>(params)};  // one struct; the driver knows its size
    LaunchAttribute attributes[3] = {};
    unsigned count = 0;
    if (grid.together) {
      attributes[count].id = kCooperative;
      attributes[count++].value.cooperative = 1;
    }
    const bool waits = stream == stream_ && std::exchange(waits_, false);
    if (overlap_ && !waits && (!grid.early || stream == own_stream_) && !grid.together) {
      attributes[count].id = kProgrammaticSerialization;
      attributes[count++].value.programmatic = 1;
    }
    if (grid.cluster > 1) {
      attributes[count].id = kClusterDimension;
      attributes[count].value.cluster[0] = grid.cluster;
      attributes[count].value.cluster[1] = attributes[count].value.cluster[2] = 1;
      ++count;
    }
    const LaunchConfig config = {
        grid.x, grid.y, grid.z, threads, 1, 1, lds_bytes, static_cast<Stream>(stream), attributes, count};
    ROCM_SD_CHECK_GPU(api_.cuLaunchKernelEx(&config, static_cast<Function>(function), arguments, nullptr));
  }
  void* thread_context() override {
    Context context = nullptr;
    ROCM_SD_CHECK_GPU(api_.cuCtxGetCurrent(&context));
    return context;
  }
  void restore_thread_context(void* context) noexcept override {
    if (context != context_)
      forgive(ROCM_SD_VENDOR_CALL(Api, cuCtxSetCurrent), static_cast<Context>(context));
  }
  void map_boxes(void* map, const MatrixBoxes& boxes) override {
    if (!api_.cuTensorMapEncodeTiled) return GpuDriver::map_boxes(map, boxes);
    using Extents = std::array<unsigned long long, 5>;
    const unsigned long long row = boxes.stride_bytes;
    // Permuted: the matrix as (block of 32, j, t, e, column), the box in that order.
    const unsigned rank = boxes.permuted ? 5 : 2;
    const Extents extents = boxes.permuted ? Extents{boxes.columns, 2, 4, 4, boxes.rows / 32}
                                           : Extents{boxes.columns, boxes.rows},
                  strides = boxes.permuted ? Extents{row, 8 * row, 2 * row, 32 * row} : Extents{row};
    const std::array<unsigned, 5> box = boxes.permuted
                                            ? std::array<unsigned, 5>{64, 2, 4, 4, boxes.box_rows / 32}
                                            : std::array<unsigned, 5>{64, boxes.box_rows},
                                  steps = {1, 1, 1, 1, 1};
    ROCM_SD_CHECK_GPU(api_.cuTensorMapEncodeTiled(map, kTensorFloat16, rank, const_cast<void*>(boxes.data),
                                                  extents.data(), strides.data(), box.data(), steps.data(), 0,
                                                  kTensorSwizzle128, kTensorPromote256, 0));
  }
  void map_boxes(void* map, const HeadBoxes& boxes) override {
    if (!api_.cuTensorMapEncodeTiled) return GpuDriver::map_boxes(map, boxes);
    const unsigned long long extents[] = {boxes.head_dim, boxes.heads, boxes.rows, boxes.images};
    const unsigned long long strides[] = {boxes.head_dim * 2, boxes.row_bytes, boxes.image_bytes};
    const unsigned box[] = {64, 1, boxes.box_rows, 1}, steps[] = {1, 1, 1, 1};
    ROCM_SD_CHECK_GPU(api_.cuTensorMapEncodeTiled(map, kTensorFloat16, 4, const_cast<void*>(boxes.data),
                                                  extents, strides, box, steps, 0, kTensorSwizzle128,
                                                  kTensorPromote256, 0));
  }
  void map_boxes(void* map, const ImageBoxes& boxes) override {
    if (!api_.cuTensorMapEncodeIm2col) return GpuDriver::map_boxes(map, boxes);
    const unsigned long long pixel = (boxes.pitch ? boxes.pitch : boxes.channels) * 2,
                             row = boxes.width * pixel, image = boxes.height * row;
    const unsigned long long extents[] = {boxes.channels, boxes.width, boxes.height, boxes.batch};
    const unsigned long long strides[] = {pixel, row, image};
    const unsigned steps[] = {1, boxes.stride, boxes.stride, 1};
    if (boxes.box_columns) {
      const unsigned box[] = {64, boxes.box_columns * boxes.stride, boxes.box_rows * boxes.stride,
                              boxes.box_images};
      ROCM_SD_CHECK_GPU(api_.cuTensorMapEncodeTiled(map, kTensorFloat16, 4, const_cast<void*>(boxes.data),
                                                    extents, strides, box, steps, 0, kTensorSwizzle128,
                                                    kTensorPromote256, 0));
      return;
    }
    const int lower[] = {boxes.first[1], boxes.first[0]}, upper[] = {boxes.last[1], boxes.last[0]};
    ROCM_SD_CHECK_GPU(api_.cuTensorMapEncodeIm2col(map, kTensorFloat16, 4, const_cast<void*>(boxes.data),
                                                   extents, strides, lower, upper, 64, boxes.box_pixels,
                                                   steps, 0, kTensorSwizzle128, kTensorPromote256, 0));
  }

 private:
  Ordinal device_ = 0;
  Context context_ = nullptr;
  bool adopted_ = false;  // the context is the caller's
  // Whether a kernel may start while its predecessor's last workgroups run: each one waits for all of it
  // before it touches memory (target.hpp).
  bool overlap_ = false;
  bool waits_ = false, main_waits_ = false;  // the next launch does, for another stream
};

}  // namespace

GpuReport cuda_gpus() {
  return report_gpus<CudaVendor>(library().functions, library().problem, "the NVIDIA driver reports no GPU",
                                 describe);
}

std::unique_ptr<GpuDriver> open_cuda(int index) {
  const GpuReport report = cuda_gpus();
  require<DeviceError>(report.problem.empty(), "cuda:", index, ": ", report.problem);
  require<DeviceError>(index >= 0 && index < static_cast<int>(report.gpus.size()), "cuda:", index,
                       ": there is no such device; the driver reports ", report.gpus.size());
  return std::make_unique<CudaDriver>(library().functions, index, nullptr);
}

CurrentGpu current_cuda() {
  const Library& cuda = library();
  require<DeviceError>(cuda.problem.empty(), "cuda:current: ", cuda.problem);
  const Api& api = cuda.functions;
  const auto check = [&](Status status, const char* call) {
    require<DeviceError>(status == kSuccess, "cuda:current: ", call, ": ", reason(api, status));
  };
  Context context = nullptr, primary = nullptr;
  ROCM_SD_CHECK_GPU(api.cuCtxGetCurrent(&context));
  require<DeviceError>(context != nullptr, "cuda:current: this thread has no current CUDA context");
  CurrentGpu gpu;
  Ordinal device = 0, candidate = 0;
  ROCM_SD_CHECK_GPU(api.cuCtxGetDevice(&device));
  int count = 0;
  ROCM_SD_CHECK_GPU(api.cuDeviceGetCount(&count));
  for (int i = 0; i < count; ++i) {
    ROCM_SD_CHECK_GPU(api.cuDeviceGet(&candidate, i));
    if (candidate == device) gpu.index = i;
  }
  ROCM_SD_CHECK_GPU(api.cuDevicePrimaryCtxRetain(&primary, device));
  if (primary != context) gpu.context = context;
  ROCM_SD_CHECK_GPU(api.cuDevicePrimaryCtxRelease_v2(device));
  return gpu;
}

std::unique_ptr<GpuDriver> open_cuda_context(const CurrentGpu& gpu) {
  return std::make_unique<CudaDriver>(library().functions, gpu.index, static_cast<Context>(gpu.context));
}

}  // namespace rocm_sd
