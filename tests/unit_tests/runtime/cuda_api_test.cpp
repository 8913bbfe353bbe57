// Our prototypes of the CUDA driver API against cuda.h, where the toolkit is installed.
#if __has_include(<cuda.h>)
#include <cuda.h>
#include <gtest/gtest.h>

#include <bit>

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
  EXPECT_EQ(cuda::kComputeUnits, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  EXPECT_EQ(cuda::kIntegrated, CU_DEVICE_ATTRIBUTE_INTEGRATED);
  EXPECT_EQ(cuda::kL2Bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  EXPECT_EQ(cuda::kMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  EXPECT_EQ(cuda::kMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  EXPECT_EQ(cuda::kSharedBytesOptin, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  EXPECT_EQ(cuda::kFunctionSharedBytes, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  EXPECT_EQ(cuda::kStreamNonBlocking, CU_STREAM_NON_BLOCKING);
  EXPECT_EQ(cuda::kCaptureModeThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  EXPECT_EQ(cuda::kCooperative, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
  EXPECT_EQ(cuda::kClusterDimension, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
  EXPECT_EQ(cuda::kProgrammaticSerialization, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
}

TEST(CudaApi, LaunchesAreTheHeaders) {
  static_assert(sizeof(cuda::LaunchAttribute) == sizeof(CUlaunchAttribute));
  static_assert(sizeof(cuda::LaunchConfig) == sizeof(CUlaunchConfig));
  CUlaunchAttribute attribute = {};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim.x = 8;
  attribute.value.clusterDim.y = 2;
  attribute.value.clusterDim.z = 1;
  const auto ours = std::bit_cast<cuda::LaunchAttribute>(attribute);
  EXPECT_EQ(ours.id, cuda::kClusterDimension);
  EXPECT_EQ(ours.value.cluster[0], 8u);
  EXPECT_EQ(ours.value.cluster[1], 2u);
  EXPECT_EQ(ours.value.cluster[2], 1u);
  attribute.value.cooperative = 5;
  EXPECT_EQ(std::bit_cast<cuda::LaunchAttribute>(attribute).value.cooperative, 5);
  attribute.value.programmaticStreamSerializationAllowed = 7;
  EXPECT_EQ(std::bit_cast<cuda::LaunchAttribute>(attribute).value.programmatic, 7);

  CUlaunchConfig config = {.gridDimX = 1,
                           .gridDimY = 2,
                           .gridDimZ = 3,
                           .blockDimX = 4,
                           .blockDimY = 5,
                           .blockDimZ = 6,
                           .sharedMemBytes = 7,
                           .hStream = nullptr,
                           .attrs = &attribute,
                           .numAttrs = 8};
  const auto our = std::bit_cast<cuda::LaunchConfig>(config);
  EXPECT_EQ(our.grid_x, 1u);
  EXPECT_EQ(our.grid_z, 3u);
  EXPECT_EQ(our.block_x, 4u);
  EXPECT_EQ(our.block_z, 6u);
  EXPECT_EQ(our.shared_bytes, 7u);
  EXPECT_EQ(static_cast<void*>(our.attributes), static_cast<void*>(&attribute));
  EXPECT_EQ(our.attribute_count, 8u);
}

}  // namespace
}  // namespace rocm_sd
#endif
