// Attention of heads of 64 channels in f16, with and without a mask.
#include "composable_kernels/ck_sd_templates.hpp"

using rocm_sd::GpuArch, rocm_sd::Half;

// A wave takes 16 queries, a workgroup of 4 waves 64. As many keys to a tile as a wave has lanes: each thread
// then copies one piece of the values. Two tiles in LDS.
constexpr int kKeys = GpuArch::lanes;
using Plain = rocm_sd::ck::FusedAttention<GpuArch, rocm_sd::ck::AttentionCfg<Half, 64, 16, kKeys, 4, 2>>;
using Masked =
    rocm_sd::ck::FusedAttention<GpuArch, rocm_sd::ck::AttentionCfg<Half, 64, 16, kKeys, 4, 2, true>>;

ROCM_SD_KERNEL(example_attention, Plain::kThreads, 1, Plain::Params) { rocm_sd::ck::run<Plain>(p); }
ROCM_SD_KERNEL(example_attention_masked, Masked::kThreads, 1, Masked::Params) { rocm_sd::ck::run<Masked>(p); }
