// The part of cuBLASLt that lt_library.hpp calls, as libcublasLt.so.12 and 13 export it.
// tests/vendor_headers/cublaslt.cpp compares it with the library's header.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rocm_sd::vendor {

struct CublasLt {
  using Status = int;  // cublasStatus_t
  using Handle = struct CublasLtHandleTag*;
  using Layout = struct CublasLtLayoutTag*;
  using Desc = struct CublasLtDescTag*;
  using Preference = struct CublasLtPreferenceTag*;
  using Stream = void*;  // cudaStream_t

  struct Algo {  // cublasLtMatmulAlgo_t
    uint64_t data[8];
  };
  struct Heuristic {  // cublasLtMatmulHeuristicResult_t
    Algo algo;
    size_t workspace_bytes;
    Status state;
    float waves;
    int reserved[4];
  };

  static constexpr const char* kProduct = "cuBLASLt";
  static constexpr Status kSuccess = 0;
  static constexpr int kFloat = 0, kHalf = 2, kBfloat16 = 14;                  // cudaDataType_t
  static constexpr int kCompute = 68;                                          // CUBLAS_COMPUTE_32F
  static constexpr int32_t kPlain = 0, kTransposed = 1;                        // cublasOperation_t
  static constexpr int kTransA = 3, kEpilogue = 7, kBias = 8, kBiasType = 26;  // CUBLASLT_MATMUL_DESC_*
  static constexpr uint32_t kNoEpilogue = 1, kAddBias = 4;                     // CUBLASLT_EPILOGUE_*
  static constexpr int kMaxWorkspace = 1;                                      // CUBLASLT_MATMUL_PREF_*
  static constexpr bool kFloatBias = false;  // adds biases of the result's type only

// X(name, parameters...) of the function cublasLt<name>
#define ROCM_SD_CUBLASLT_FUNCTIONS(X)                                                                    \
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
    ROCM_SD_CUBLASLT_FUNCTIONS(ROCM_SD_MEMBER)
#undef ROCM_SD_MEMBER
  };
};

}  // namespace rocm_sd::vendor
