// Our prototypes of cuBLASLt against its header: compiles, or says which differs.
#include <cublasLt.h>

#include <cstddef>

#include "support/same_call.hpp"
#include "vendor/cublaslt_api.hpp"

namespace rocm_sd::vendor {

#define ROCM_SD_COMPARE(name, ...)                                                                      \
  static_assert(testing_support::kSameCall<decltype(CublasLt::Api::name), decltype(&::cublasLt##name)>, \
                #name);
ROCM_SD_CUBLASLT_FUNCTIONS(ROCM_SD_COMPARE)

using Theirs = cublasLtMatmulHeuristicResult_t;
static_assert(sizeof(CublasLt::Algo) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(CublasLt::Heuristic) == sizeof(Theirs));
static_assert(offsetof(CublasLt::Heuristic, workspace_bytes) == offsetof(Theirs, workspaceSize));
static_assert(offsetof(CublasLt::Heuristic, state) == offsetof(Theirs, state));
static_assert(offsetof(CublasLt::Heuristic, waves) == offsetof(Theirs, wavesCount));
static_assert(CublasLt::kSuccess == CUBLAS_STATUS_SUCCESS);
static_assert(CublasLt::kFloat == CUDA_R_32F && CublasLt::kHalf == CUDA_R_16F &&
              CublasLt::kBfloat16 == CUDA_R_16BF);
static_assert(CublasLt::kCompute == CUBLAS_COMPUTE_32F);
static_assert(CublasLt::kPlain == CUBLAS_OP_N && CublasLt::kTransposed == CUBLAS_OP_T);
static_assert(CublasLt::kTransA == CUBLASLT_MATMUL_DESC_TRANSA &&
              CublasLt::kEpilogue == CUBLASLT_MATMUL_DESC_EPILOGUE &&
              CublasLt::kBias == CUBLASLT_MATMUL_DESC_BIAS_POINTER &&
              CublasLt::kBiasType == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
static_assert(CublasLt::kNoEpilogue == CUBLASLT_EPILOGUE_DEFAULT &&
              CublasLt::kAddBias == CUBLASLT_EPILOGUE_BIAS);
static_assert(CublasLt::kMaxWorkspace == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);

}  // namespace rocm_sd::vendor
