// Our prototypes of rocBLAS against its header: compiles, or says which differs.
#include <rocblas/rocblas.h>

#include "support/same_call.hpp"
#include "vendor/rocblas_api.hpp"

namespace rocm_sd::vendor {

#undef rocblas_gemm_ex
#define ROCM_SD_COMPARE(name, ...) \
  static_assert(testing_support::kSameCall<decltype(Rocblas::Api::name), decltype(&::name)>, #name);
ROCM_SD_ROCBLAS_FUNCTIONS(ROCM_SD_COMPARE)
ROCM_SD_COMPARE(rocblas_status_to_string)

static_assert(Rocblas::kSuccess == rocblas_status_success &&
              Rocblas::kSizeIncreased == rocblas_status_size_increased &&
              Rocblas::kSizeUnchanged == rocblas_status_size_unchanged);
static_assert(Rocblas::kPlain == rocblas_operation_none &&
              Rocblas::kTransposed == rocblas_operation_transpose);
static_assert(Rocblas::kHalf == rocblas_datatype_f16_r && Rocblas::kFloat == rocblas_datatype_f32_r &&
              Rocblas::kBfloat16 == rocblas_datatype_bf16_r);
static_assert(Rocblas::kStandard == rocblas_gemm_algo_standard);
static_assert(Rocblas::kAtomicsNotAllowed == rocblas_atomics_not_allowed);

}  // namespace rocm_sd::vendor
