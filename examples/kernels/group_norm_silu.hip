// Group norm and SiLU in one pass over memory, f16.
#include "composable_kernels/ck_sd_templates.hpp"

using rocm_sd::GpuArch, rocm_sd::Half;

// 256 threads of two channels and up to 16 pixels each: groups of 10 channels and 816 pixels, say.
using Norm = rocm_sd::ck::GroupNormSilu<GpuArch, rocm_sd::ck::GroupNormCfg<Half, 2, 256, 16>>;

ROCM_SD_KERNEL(example_group_norm_silu, Norm::kThreads, 1, Norm::Params) { rocm_sd::ck::run<Norm>(p); }
