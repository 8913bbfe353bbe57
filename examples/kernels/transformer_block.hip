// A transformer block of the UNet in one kernel, a workgroup to an image: heads of 64 channels, f16.
#include "composable_kernels/ck_sd_templates.hpp"

using rocm_sd::GpuArch, rocm_sd::Half;

using Block = rocm_sd::ck::FusedTransformerBlock<
    GpuArch, rocm_sd::ck::TransformerBlockCfg<rocm_sd::ck::ProductCfgOf<Half, 64, 64, 32, 2, 2, 2>,
                                              rocm_sd::ck::AttentionCfg<Half, 64, 16, GpuArch::lanes, 4, 2>>>;

ROCM_SD_KERNEL(example_transformer_block, Block::kThreads, 1, Block::Params) { rocm_sd::ck::run<Block>(p); }
