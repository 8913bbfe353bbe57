// The part of rocBLAS that rocblas.cpp calls, as librocblas.so exports it in ROCm 6 and 7.
// tests/vendor_headers/rocblas.cpp compares it with the library's header.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rocm_sd::vendor {

struct Rocblas {
  using Status = int;  // rocblas_status
  using Handle = struct RocblasHandleTag*;
  using Stream = void*;  // hipStream_t

  static constexpr Status kSuccess = 0, kSizeIncreased = 9, kSizeUnchanged = 10;
  static constexpr int kPlain = 111, kTransposed = 112;             // rocblas_operation
  static constexpr int kHalf = 150, kFloat = 151, kBfloat16 = 168;  // rocblas_datatype
  static constexpr int kStandard = 0;                               // rocblas_gemm_algo
  static constexpr int kAtomicsNotAllowed = 0;                      // rocblas_atomics_mode

// X(name, parameters...)
#define ROCM_SD_ROCBLAS_FUNCTIONS(X)                                                                         \
  X(rocblas_create_handle, Handle* handle)                                                                   \
  X(rocblas_destroy_handle, Handle handle)                                                                   \
  X(rocblas_set_stream, Handle handle, Stream stream)                                                        \
  X(rocblas_set_atomics_mode, Handle handle, int mode)                                                       \
  X(rocblas_set_workspace, Handle handle, void* data, size_t bytes)                                          \
  X(rocblas_start_device_memory_size_query, Handle handle)                                                   \
  X(rocblas_stop_device_memory_size_query, Handle handle, size_t* bytes)                                     \
  X(rocblas_gemm_ex, Handle handle, int trans_a, int trans_b, int m, int n, int k, const void* alpha,        \
    const void* a, int a_type, int lda, const void* b, int b_type, int ldb, const void* beta, const void* c, \
    int c_type, int ldc, void* d, int d_type, int ldd, int compute_type, int algo, int32_t solution,         \
    uint32_t flags)

  struct Api {
#define ROCM_SD_MEMBER(name, ...) Status (*name)(__VA_ARGS__) = nullptr;
    ROCM_SD_ROCBLAS_FUNCTIONS(ROCM_SD_MEMBER)
#undef ROCM_SD_MEMBER
    const char* (*rocblas_status_to_string)(Status) = nullptr;
  };
};

}  // namespace rocm_sd::vendor
