// The part of the CUDA driver API that cuda.cpp calls, as libcuda.so.1 exports it, so that building needs no
// toolkit. tests/unit_tests/runtime/cuda_api_test.cpp compares it with cuda.h where there is one.
#pragma once

#include <cstddef>

namespace rocm_sd::cuda {

using Status = int;                  // CUresult
using Ordinal = int;                 // of a device
using Pointer = unsigned long long;  // CUdeviceptr
using Context = struct ContextTag*;
using Module = struct ModuleTag*;
using Function = struct FunctionTag*;
using Stream = struct StreamTag*;
using Event = struct EventTag*;
using Graph = struct GraphTag*;
using GraphExec = struct GraphExecTag*;

inline constexpr Status kSuccess = 0, kOutOfMemory = 2;
// CUdevice_attribute
inline constexpr int kComputeUnits = 16, kIntegrated = 18, kL2Bytes = 38, kMajor = 75, kMinor = 76,
                     kSharedBytesOptin = 97;
inline constexpr int kFunctionSharedBytes = 8;             // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
inline constexpr unsigned kStreamNonBlocking = 1;          // CU_STREAM_NON_BLOCKING
inline constexpr int kCaptureModeThreadLocal = 1;          // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
inline constexpr int kTensorFloat16 = 6;                   // CU_TENSOR_MAP_DATA_TYPE_FLOAT16
inline constexpr int kTensorSwizzle128 = 3;                // CU_TENSOR_MAP_SWIZZLE_128B
inline constexpr int kTensorPromote256 = 3;                // CU_TENSOR_MAP_L2_PROMOTION_L2_256B
inline constexpr unsigned kDefaultSharedBytes = 48 << 10;  // of all kinds; above, a function must be allowed
inline constexpr unsigned kHostCoherent = 3;        // CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP
inline constexpr Status kPeerAlreadyEnabled = 704;  // CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
// CUlaunchAttributeID
inline constexpr int kCooperative = 2, kClusterDimension = 4, kProgrammaticSerialization = 6;

struct LaunchAttribute {  // CUlaunchAttribute
  int id;
  int padding;
  union {
    char bytes[64];
    unsigned cluster[3];
    int cooperative;
    int programmatic;
  } value;
};
struct LaunchConfig {  // CUlaunchConfig
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

// X(name, parameters...)
#define ROCM_SD_CUDA_FUNCTIONS(X)                                                                 \
  X(cuInit, unsigned flags)                                                                       \
  X(cuGetErrorName, Status status, const char** text)                                             \
  X(cuGetErrorString, Status status, const char** text)                                           \
  X(cuDeviceGetCount, int* count)                                                                 \
  X(cuDeviceGet, Ordinal* device, int index)                                                      \
  X(cuDeviceGetName, char* name, int bytes, Ordinal device)                                       \
  X(cuDeviceGetAttribute, int* value, int attribute, Ordinal device)                              \
  X(cuDeviceTotalMem_v2, size_t* bytes, Ordinal device)                                           \
  X(cuDeviceGetPCIBusId, char* id, int bytes, Ordinal device)                                     \
  X(cuDevicePrimaryCtxRetain, Context* context, Ordinal device)                                   \
  X(cuDevicePrimaryCtxRelease_v2, Ordinal device)                                                 \
  X(cuCtxSetCurrent, Context context)                                                             \
  X(cuCtxGetCurrent, Context* context)                                                            \
  X(cuCtxGetDevice, Ordinal* device)                                                              \
  X(cuMemGetInfo_v2, size_t* free, size_t* total)                                                 \
  X(cuMemAlloc_v2, Pointer* data, size_t bytes)                                                   \
  X(cuMemFree_v2, Pointer data)                                                                   \
  X(cuMemHostAlloc, void** data, size_t bytes, unsigned flags)                                    \
  X(cuMemFreeHost, void* data)                                                                    \
  X(cuMemHostRegister_v2, void* data, size_t bytes, unsigned flags)                               \
  X(cuMemHostUnregister, void* data)                                                              \
  X(cuMemcpyHtoDAsync_v2, Pointer dst, const void* src, size_t bytes, Stream stream)              \
  X(cuMemcpyDtoHAsync_v2, void* dst, Pointer src, size_t bytes, Stream stream)                    \
  X(cuMemcpyDtoDAsync_v2, Pointer dst, Pointer src, size_t bytes, Stream stream)                  \
  X(cuMemsetD8Async, Pointer data, unsigned char value, size_t bytes, Stream stream)              \
  X(cuStreamCreate, Stream* stream, unsigned flags)                                               \
  X(cuStreamCreateWithPriority, Stream* stream, unsigned flags, int priority)                     \
  X(cuStreamDestroy_v2, Stream stream)                                                            \
  X(cuStreamSynchronize, Stream stream)                                                           \
  X(cuStreamWaitEvent, Stream stream, Event event, unsigned flags)                                \
  X(cuModuleLoadData, Module* module, const void* image)                                          \
  X(cuModuleUnload, Module module)                                                                \
  X(cuModuleGetFunction, Function* function, Module module, const char* name)                     \
  X(cuFuncSetAttribute, Function function, int attribute, int value)                              \
  X(cuLaunchKernelEx, const LaunchConfig* config, Function function, void** params, void** extra) \
  X(cuStreamBeginCapture_v2, Stream stream, int mode)                                             \
  X(cuStreamEndCapture, Stream stream, Graph* graph)                                              \
  X(cuGraphInstantiateWithFlags, GraphExec* exec, Graph graph, unsigned long long flags)          \
  X(cuGraphDestroy, Graph graph)                                                                  \
  X(cuGraphLaunch, GraphExec exec, Stream stream)                                                 \
  X(cuGraphExecDestroy, GraphExec exec)                                                           \
  X(cuEventCreate, Event* event, unsigned flags)                                                  \
  X(cuEventDestroy_v2, Event event)                                                               \
  X(cuEventRecord, Event event, Stream stream)                                                    \
  X(cuEventSynchronize, Event event)                                                              \
  X(cuEventElapsedTime, float* milliseconds, Event start, Event end)

// Those that drivers before CUDA 12 lack, and those of several GPUs.
#define ROCM_SD_CUDA_NEWER_FUNCTIONS(X)                                                          \
  X(cuDeviceCanAccessPeer, int* can, Ordinal device, Ordinal peer)                               \
  X(cuCtxEnablePeerAccess, Context peer, unsigned flags)                                         \
  X(cuTensorMapEncodeTiled, void* map, int type, unsigned rank, void* data,                      \
    const unsigned long long* extents, const unsigned long long* strides, const unsigned* box,   \
    const unsigned* steps, int interleave, int swizzle, int promotion, int fill)                 \
  X(cuTensorMapEncodeIm2col, void* map, int type, unsigned rank, void* data,                     \
    const unsigned long long* extents, const unsigned long long* strides, const int* lower,      \
    const int* upper, unsigned channels, unsigned pixels, const unsigned* steps, int interleave, \
    int swizzle, int promotion, int fill)

struct Api {
#define ROCM_SD_MEMBER(name, ...) Status (*name)(__VA_ARGS__) = nullptr;
  ROCM_SD_CUDA_FUNCTIONS(ROCM_SD_MEMBER)
  ROCM_SD_CUDA_NEWER_FUNCTIONS(ROCM_SD_MEMBER)
#undef ROCM_SD_MEMBER
};

}  // namespace rocm_sd::cuda
