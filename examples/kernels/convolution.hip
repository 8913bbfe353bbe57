// A convolution with bias, shift per image, residual and SiLU in one kernel, bf16, and the kernel that lays
// its filter out.
#include "composable_kernels/ck_sd_templates.hpp"

using rocm_sd::GpuArch, rocm_sd::Bf16;

using Conv = rocm_sd::ck::Convolution<GpuArch, rocm_sd::ck::ProductCfgOf<Bf16, 64, 64, 32, 2, 2, 2>>;
using Pack = rocm_sd::ck::PackFilter<GpuArch, Bf16>;

ROCM_SD_KERNEL(example_convolution, Conv::kThreads, 2, Conv::Params) { rocm_sd::ck::run<Conv>(p); }
ROCM_SD_KERNEL(example_pack_filter, Pack::kThreads, 1, Pack::Params) { rocm_sd::ck::run<Pack>(p); }
