// The part of the HIP API that hip.cpp calls, as libamdhip64.so exports it in ROCm 5 to 7, so that building
// needs no ROCm. tests/unit_tests/runtime/hip_api_test.cpp compares it with HIP's header where there is one.
#pragma once

#include <cstddef>

namespace rocm_sd::hip {

using Status = int;   // hipError_t
using Ordinal = int;  // of a device
using Module = struct ModuleTag*;
using Function = struct FunctionTag*;
using Stream = struct StreamTag*;
using Event = struct EventTag*;
using Graph = struct GraphTag*;
using GraphExec = struct GraphExecTag*;

inline constexpr Status kSuccess = 0, kOutOfMemory = 2;
// hipDeviceAttribute_t; the same numbers since ROCm 5.0
inline constexpr int kIntegrated = 16, kL2Bytes = 19, kComputeUnits = 63, kSharedBytes = 74, kLanes = 87;
inline constexpr unsigned kStreamNonBlocking = 1;   // hipStreamNonBlocking
inline constexpr int kCaptureModeThreadLocal = 1;   // hipStreamCaptureModeThreadLocal
inline constexpr Status kPeerAlreadyEnabled = 704;  // hipErrorPeerAccessAlreadyEnabled
// hipHostMallocPortable | hipHostMallocMapped | hipHostMallocCoherent
inline constexpr unsigned kHostCoherent = 0x40000003;
// hipDeviceMallocUncached, hipDeviceMallocFinegrained
inline constexpr unsigned kUncached = 3, kFineGrained = 1;
// hipMemcpyKind
inline constexpr int kHostToDevice = 1, kDeviceToHost = 2, kDeviceToDevice = 3;

// HIP_LAUNCH_PARAM_*: keys of the list that hipModuleLaunchKernel takes its arguments from.
inline void* const kParamBuffer = reinterpret_cast<void*>(1);
inline void* const kParamBytes = reinterpret_cast<void*>(2);
inline void* const kParamEnd = reinterpret_cast<void*>(3);

// hipDeviceProp_t holds the architecture's name, which no attribute has. ROCm 6 changed the struct and gave
// the function that fills the new one a name of its own. Of either only the name is read.
inline constexpr size_t kPropertyBytes = 4096;    // more than either struct has
inline constexpr size_t kArchOffsetR0600 = 1160;  // hipGetDevicePropertiesR0600: gcnArchName
inline constexpr size_t kArchOffsetR0000 = 396;   // hipGetDeviceProperties of ROCm 5
inline constexpr size_t kArchBytes = 256;

// X(name, parameters...)
#define ROCM_SD_HIP_FUNCTIONS(X)                                                                 \
  X(hipInit, unsigned flags)                                                                     \
  X(hipGetDeviceCount, int* count)                                                               \
  X(hipDeviceGetName, char* name, int bytes, Ordinal device)                                     \
  X(hipDeviceGetAttribute, int* value, int attribute, int device)                                \
  X(hipDeviceTotalMem, size_t* bytes, Ordinal device)                                            \
  X(hipDeviceGetPCIBusId, char* id, int bytes, int device)                                       \
  X(hipSetDevice, int device)                                                                    \
  X(hipGetDevice, int* device)                                                                   \
  X(hipMemGetInfo, size_t* free, size_t* total)                                                  \
  X(hipMalloc, void** data, size_t bytes)                                                        \
  X(hipFree, void* data)                                                                         \
  X(hipHostMalloc, void** data, size_t bytes, unsigned flags)                                    \
  X(hipHostFree, void* data)                                                                     \
  X(hipHostRegister, void* data, size_t bytes, unsigned flags)                                   \
  X(hipHostUnregister, void* data)                                                               \
  X(hipMemcpyAsync, void* dst, const void* src, size_t bytes, int kind, Stream stream)           \
  X(hipMemsetAsync, void* data, int value, size_t bytes, Stream stream)                          \
  X(hipStreamCreateWithFlags, Stream* stream, unsigned flags)                                    \
  X(hipStreamCreateWithPriority, Stream* stream, unsigned flags, int priority)                   \
  X(hipStreamDestroy, Stream stream)                                                             \
  X(hipStreamSynchronize, Stream stream)                                                         \
  X(hipStreamWaitEvent, Stream stream, Event event, unsigned flags)                              \
  X(hipModuleLoadData, Module* module, const void* image)                                        \
  X(hipModuleUnload, Module module)                                                              \
  X(hipModuleGetFunction, Function* function, Module module, const char* name)                   \
  X(hipModuleLaunchKernel, Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, \
    unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream stream,  \
    void** params, void** extra)                                                                 \
  X(hipStreamBeginCapture, Stream stream, int mode)                                              \
  X(hipStreamEndCapture, Stream stream, Graph* graph)                                            \
  X(hipGraphInstantiateWithFlags, GraphExec* exec, Graph graph, unsigned long long flags)        \
  X(hipGraphDestroy, Graph graph)                                                                \
  X(hipGraphLaunch, GraphExec exec, Stream stream)                                               \
  X(hipGraphExecDestroy, GraphExec exec)                                                         \
  X(hipEventCreateWithFlags, Event* event, unsigned flags)                                       \
  X(hipEventDestroy, Event event)                                                                \
  X(hipEventRecord, Event event, Stream stream)                                                  \
  X(hipEventSynchronize, Event event)                                                            \
  X(hipEventElapsedTime, float* milliseconds, Event start, Event end)

// Those of several GPUs, which a library may lack.
#define ROCM_SD_HIP_PEER_FUNCTIONS(X)                                 \
  X(hipExtMallocWithFlags, void** data, size_t bytes, unsigned flags) \
  X(hipDeviceCanAccessPeer, int* can, int device, int peer)           \
  X(hipDeviceEnablePeerAccess, int peer, unsigned flags)

struct Api {
#define ROCM_SD_MEMBER(name, ...) Status (*name)(__VA_ARGS__) = nullptr;
  ROCM_SD_HIP_FUNCTIONS(ROCM_SD_MEMBER)
  ROCM_SD_HIP_PEER_FUNCTIONS(ROCM_SD_MEMBER)
#undef ROCM_SD_MEMBER
  const char* (*hipGetErrorName)(Status) = nullptr;
  const char* (*hipGetErrorString)(Status) = nullptr;
  Status (*properties)(void* filled, int device) = nullptr;  // hipGetDeviceProperties of either kind
  size_t arch_offset = 0;                                    // of the name in what it fills
};

}  // namespace rocm_sd::hip
