// Our prototypes of the HIP API against HIP's header, where it is installed.
#if __has_include(<hip/hip_runtime_api.h>)
#define __HIP_PLATFORM_AMD__
#define __HIP_DISABLE_CPP_FUNCTIONS__  // no overloads beside the C functions
#include <gtest/gtest.h>
#include <hip/hip_runtime_api.h>

#include <cstddef>

#include "runtime/hip_api.hpp"
#include "support/same_call.hpp"

namespace rocm_sd {
namespace {

#define ROCM_SD_COMPARE(name, ...) \
  static_assert(testing_support::kSameCall<decltype(hip::Api::name), decltype(&::name)>, #name);
ROCM_SD_HIP_FUNCTIONS(ROCM_SD_COMPARE)
ROCM_SD_COMPARE(hipGetErrorName)
ROCM_SD_COMPARE(hipGetErrorString)
#undef ROCM_SD_COMPARE

TEST(HipApi, ConstantsAreTheHeaders) {
  EXPECT_EQ(hip::kSuccess, hipSuccess);
  EXPECT_EQ(hip::kOutOfMemory, hipErrorOutOfMemory);
  EXPECT_EQ(hip::kIntegrated, hipDeviceAttributeIntegrated);
  EXPECT_EQ(hip::kL2Bytes, hipDeviceAttributeL2CacheSize);
  EXPECT_EQ(hip::kComputeUnits, hipDeviceAttributeMultiprocessorCount);
  EXPECT_EQ(hip::kSharedBytes, hipDeviceAttributeMaxSharedMemoryPerBlock);
  EXPECT_EQ(hip::kLanes, hipDeviceAttributeWarpSize);
  EXPECT_EQ(hip::kStreamNonBlocking, unsigned{hipStreamNonBlocking});
  EXPECT_EQ(hip::kCaptureModeThreadLocal, hipStreamCaptureModeThreadLocal);
  EXPECT_EQ(hip::kHostToDevice, hipMemcpyHostToDevice);
  EXPECT_EQ(hip::kDeviceToHost, hipMemcpyDeviceToHost);
  EXPECT_EQ(hip::kDeviceToDevice, hipMemcpyDeviceToDevice);
  EXPECT_EQ(hip::kParamBuffer, HIP_LAUNCH_PARAM_BUFFER_POINTER);
  EXPECT_EQ(hip::kParamBytes, HIP_LAUNCH_PARAM_BUFFER_SIZE);
  EXPECT_EQ(hip::kParamEnd, HIP_LAUNCH_PARAM_END);
}

TEST(HipApi, TheArchitecturesNameIsWhereWeRead) {
#if HIP_VERSION_MAJOR >= 6
  EXPECT_EQ(hip::kArchOffsetR0600, offsetof(hipDeviceProp_t, gcnArchName));
#else
  EXPECT_EQ(hip::kArchOffsetR0000, offsetof(hipDeviceProp_t, gcnArchName));
#endif
  EXPECT_EQ(hip::kArchBytes, sizeof(hipDeviceProp_t::gcnArchName));
  EXPECT_LE(sizeof(hipDeviceProp_t), hip::kPropertyBytes);
}

}  // namespace
}  // namespace rocm_sd
#endif
