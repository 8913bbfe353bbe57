// The part of NCCL, and of AMD's RCCL, which has the same functions, that library_group.cpp calls; found when
// the program runs, so that building needs neither.
#pragma once

#include <cstddef>
#include <string>

#include "runtime/device.hpp"

namespace rocm_sd::nccl {

using Communicator = struct CommunicatorTag*;
// As nccl.h has it (NCCL_UNIQUE_ID_BYTES).
struct UniqueId {
  char bytes[128];
};

inline constexpr int kSuccess = 0;     // ncclSuccess
inline constexpr int kInProgress = 7;  // ncclInProgress
inline constexpr int kUint8 = 1;       // ncclUint8

// X(name, parameters...); stream: a cudaStream_t or hipStream_t
#define ROCM_SD_NCCL_FUNCTIONS(X)                                                                \
  X(ncclGetVersion, int* version)                                                                \
  X(ncclGetUniqueId, UniqueId* id)                                                               \
  X(ncclCommInitRank, Communicator* comm, int count, UniqueId id, int rank)                      \
  X(ncclCommAbort, Communicator comm)                                                            \
  X(ncclCommGetAsyncError, Communicator comm, int* error)                                        \
  X(ncclGroupStart)                                                                              \
  X(ncclGroupEnd)                                                                                \
  X(ncclSend, const void* data, size_t count, int type, int to, Communicator comm, void* stream) \
  X(ncclRecv, void* data, size_t count, int type, int from, Communicator comm, void* stream)

struct Api {
#define ROCM_SD_MEMBER(name, ...) int (*name)(__VA_ARGS__) = nullptr;
  ROCM_SD_NCCL_FUNCTIONS(ROCM_SD_MEMBER)
#undef ROCM_SD_MEMBER
  const char* (*ncclGetErrorString)(int) = nullptr;
  std::string version;  // "NCCL 2.27.5", "RCCL 2.22.3"

  // Throws DeviceError, naming the call and what the library says.
  void check(int status, const char* call) const;
};

// Opens the file that ROCM_SD_NCCL names, else librccl.so.1 for HIP, libnccl.so.2 for CUDA. Throws
// DeviceError where there is none, or another library. Opened once per process.
const Api& load_api(DeviceKind kind);

}  // namespace rocm_sd::nccl
