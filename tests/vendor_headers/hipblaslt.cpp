// Our prototypes of hipBLASLt against its header: compiles, or says which differs.
#include <hipblaslt/hipblaslt.h>

#include <cstddef>

#include "support/same_call.hpp"
#include "vendor/hipblaslt_api.hpp"

namespace rocm_sd::vendor {

#define ROCM_SD_COMPARE(name, ...)                                                                        \
  static_assert(testing_support::kSameCall<decltype(HipblasLt::Api::name), decltype(&::hipblasLt##name)>, \
                #name);
ROCM_SD_HIPBLASLT_FUNCTIONS(ROCM_SD_COMPARE)

using Theirs = hipblasLtMatmulHeuristicResult_t;
static_assert(sizeof(HipblasLt::Algo) == sizeof(hipblasLtMatmulAlgo_t));
static_assert(sizeof(HipblasLt::Heuristic) == sizeof(Theirs));
static_assert(offsetof(HipblasLt::Heuristic, workspace_bytes) == offsetof(Theirs, workspaceSize));
static_assert(offsetof(HipblasLt::Heuristic, state) == offsetof(Theirs, state));
static_assert(offsetof(HipblasLt::Heuristic, waves) == offsetof(Theirs, wavesCount));
static_assert(HipblasLt::kSuccess == HIPBLAS_STATUS_SUCCESS);
static_assert(HipblasLt::kFloat == HIP_R_32F && HipblasLt::kHalf == HIP_R_16F &&
              HipblasLt::kBfloat16 == HIP_R_16BF);
static_assert(HipblasLt::kCompute == HIPBLAS_COMPUTE_32F);
static_assert(HipblasLt::kPlain == HIPBLAS_OP_N && HipblasLt::kTransposed == HIPBLAS_OP_T);
static_assert(HipblasLt::kTransA == HIPBLASLT_MATMUL_DESC_TRANSA &&
              HipblasLt::kEpilogue == HIPBLASLT_MATMUL_DESC_EPILOGUE &&
              HipblasLt::kBias == HIPBLASLT_MATMUL_DESC_BIAS_POINTER &&
              HipblasLt::kBiasType == HIPBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
static_assert(HipblasLt::kNoEpilogue == HIPBLASLT_EPILOGUE_DEFAULT &&
              HipblasLt::kAddBias == HIPBLASLT_EPILOGUE_BIAS);
static_assert(HipblasLt::kMaxWorkspace == HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);

}  // namespace rocm_sd::vendor
