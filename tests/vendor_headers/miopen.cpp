// Our prototypes of MIOpen against its header: compiles, or says which differs.
#include <miopen/miopen.h>

#include <cstddef>

#include "support/same_call.hpp"
#include "vendor/miopen_api.hpp"

namespace rocm_sd::vendor {

#define ROCM_SD_COMPARE(name, ...) \
  static_assert(testing_support::kSameCall<decltype(Miopen::Api::name), decltype(&::name)>, #name);
ROCM_SD_MIOPEN_FUNCTIONS(ROCM_SD_COMPARE)
ROCM_SD_COMPARE(miopenGetErrorString)

static_assert(sizeof(Miopen::Solution) == sizeof(miopenConvSolution_t));
static_assert(offsetof(Miopen::Solution, workspace_bytes) == offsetof(miopenConvSolution_t, workspace_size));
static_assert(offsetof(Miopen::Solution, id) == offsetof(miopenConvSolution_t, solution_id));
static_assert(offsetof(Miopen::Solution, algorithm) == offsetof(miopenConvSolution_t, algorithm));
static_assert(sizeof(Miopen::Found) == sizeof(miopenConvAlgoPerf_t));
static_assert(offsetof(Miopen::Found, time) == offsetof(miopenConvAlgoPerf_t, time));
static_assert(offsetof(Miopen::Found, workspace_bytes) == offsetof(miopenConvAlgoPerf_t, memory));
static_assert(Miopen::kSuccess == miopenStatusSuccess);
static_assert(Miopen::kHalf == miopenHalf && Miopen::kFloat == miopenFloat &&
              Miopen::kBfloat16 == miopenBFloat16);
static_assert(Miopen::kConvolution == miopenConvolution);
static_assert(Miopen::kDeterministic == MIOPEN_CONVOLUTION_ATTRIB_DETERMINISTIC);

}  // namespace rocm_sd::vendor
