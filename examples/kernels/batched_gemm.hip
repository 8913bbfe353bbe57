// y[b] = gelu(x[b] w[b]^T + bias) for every matrix of a batch, in f16: the product of a user's own layer.
#include "composable_kernels/ck_sd_templates.hpp"

using rocm_sd::GpuArch, rocm_sd::Half;

// 64 rows by 64 channels by 32 of depth to a workgroup of 2 x 2 waves, two tiles in LDS.
using Gemm = rocm_sd::ck::BatchedGemm<GpuArch, rocm_sd::ck::ProductCfgOf<Half, 64, 64, 32, 2, 2, 2>>;

ROCM_SD_KERNEL(example_batched_gemm, Gemm::kThreads, 2, Gemm::Params) { rocm_sd::ck::run<Gemm>(p); }
