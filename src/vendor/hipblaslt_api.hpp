// The part of hipBLASLt that lt_library.hpp calls, as libhipblaslt.so exports it in ROCm 6 and 7.
// tests/vendor_headers/hipblaslt.cpp compares it with the library's header.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rocm_sd::vendor {

struct HipblasLt {
  using Status = int;  // hipblasStatus_t
  using Handle = struct HipblasLtHandleTag*;
  using Layout = struct HipblasLtLayoutTag*;
  using Desc = struct HipblasLtDescTag*;
  using Preference = struct HipblasLtPreferenceTag*;
  using Stream = void*;  // hipStream_t

  struct Algo {  // hipblasLtMatmulAlgo_t
    uint8_t data[16];
    size_t most_workspace;
  };
  struct Heuristic {  // hipblasLtMatmulHeuristicResult_t
    Algo algo;
    size_t workspace_bytes;
    Status state;
    float waves;
    int reserved[4];
  };

  static constexpr const char* kProduct = "hipBLASLt";
  static constexpr Status kSuccess = 0;
  static constexpr int kFloat = 0, kHalf = 2, kBfloat16 = 14;                 // hipDataType
  static constexpr int kCompute = 2;                                          // HIPBLAS_COMPUTE_32F
  static constexpr int32_t kPlain = 111, kTransposed = 112;                   // hipblasOperation_t
  static constexpr int kTransA = 0, kEpilogue = 2, kBias = 3, kBiasType = 4;  // HIPBLASLT_MATMUL_DESC_*
  static constexpr uint32_t kNoEpilogue = 1, kAddBias = 4;                    // HIPBLASLT_EPILOGUE_*
  static constexpr int kMaxWorkspace = 1;                                     // HIPBLASLT_MATMUL_PREF_*
  static constexpr bool kFloatBias = true;  // adds biases of float to any result

// X(name, parameters...) of the function hipblasLt<name>
#define ROCM_SD_HIPBLASLT_FUNCTIONS(X)                                                                   \
  X(Create, Handle* handle)                                                                              \
  X(Destroy, Handle handle)                                                                              \
  X(MatrixLayoutCreate, Layout* layout, int type, uint64_t rows, uint64_t columns, int64_t stride)       \
  X(MatrixLayoutDestroy, Layout layout)                                                                  \
  X(MatmulDescCreate, Desc* desc, int compute, int scale)                                                \
  X(MatmulDescDestroy, Desc desc)                                                                        \
  X(MatmulDescSetAttribute, Desc desc, int attribute, const void* value, size_t bytes)                   \
  X(MatmulPreferenceCreate, Preference* preference)                                                      \
  X(MatmulPreferenceDestroy, Preference preference)                                                      \
  X(MatmulPreferenceSetAttribute, Preference preference, int attribute, const void* value, size_t bytes) \
  X(MatmulAlgoGetHeuristic, Handle handle, Desc desc, Layout a, Layout b, Layout c, Layout d,            \
    Preference preference, int asked, Heuristic* found, int* count)                                      \
  X(Matmul, Handle handle, Desc desc, const void* alpha, const void* a, Layout a_layout, const void* b,  \
    Layout b_layout, const void* beta, const void* c, Layout c_layout, void* d, Layout d_layout,         \
    const Algo* algo, void* workspace, size_t workspace_bytes, Stream stream)

  struct Api {
#define ROCM_SD_MEMBER(name, ...) Status (*name)(__VA_ARGS__) = nullptr;
    ROCM_SD_HIPBLASLT_FUNCTIONS(ROCM_SD_MEMBER)
#undef ROCM_SD_MEMBER
  };
};

}  // namespace rocm_sd::vendor
