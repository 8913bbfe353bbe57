// Our prototypes of the CUDA driver API against cuda.h, where the toolkit is installed.
#if __has_include(<cuda.h>)
#include <cuda.h>
#include <gtest/gtest.h>

#include "runtime/cuda_api.hpp"
#include "support/same_call.hpp"

namespace rocm_sd {
namespace {

#define ROCM_SD_COMPARE(name, ...) \
  static_assert(testing_support::kSameCall<decltype(cuda::Api::name), decltype(&::name)>, #name);
ROCM_SD_CUDA_FUNCTIONS(ROCM_SD_COMPARE)
#undef ROCM_SD_COMPARE

TEST(CudaApi, ConstantsAreTheHeaders) {
  EXPECT_EQ(cuda::kSuccess, CUDA_SUCCESS);
  EXPECT_EQ(cuda::kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuda::kMultiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  EXPECT_EQ(cuda::kIntegrated, CU_DEVICE_ATTRIBUTE_INTEGRATED);
  EXPECT_EQ(cuda::kL2Bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  EXPECT_EQ(cuda::kMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  EXPECT_EQ(cuda::kMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  EXPECT_EQ(cuda::kSharedBytesOptin, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  EXPECT_EQ(cuda::kFunctionSharedBytes, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  EXPECT_EQ(cuda::kStreamNonBlocking, CU_STREAM_NON_BLOCKING);
  EXPECT_EQ(cuda::kCaptureModeThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

}  // namespace
}  // namespace rocm_sd
#endif
