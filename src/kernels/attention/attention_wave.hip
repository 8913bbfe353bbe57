// Attention by one wave per query, for every family: any head_dim up to 512 and any type.
#include "composable_kernels/arch/target.hpp"
#include "composable_kernels/fused/attention.hpp"

namespace rocm_sd {

using Float = float;

template <class Storage, int kWidest>
struct AttentionWaveCfg {
  using T = Storage;
  static constexpr int kTileKeys = 64, kMaxDim = kWidest;
};

}  // namespace rocm_sd

#define ENTRY(type, T, dim)                                                        \
  ROCM_SD_KERNEL(attention_wave_##type##_d##dim, rocm_sd::GpuArch::lanes, 1,       \
                 rocm_sd::AttentionParams<rocm_sd::T>) {                           \
    using Cfg = rocm_sd::AttentionWaveCfg<rocm_sd::T, dim>;                        \
    __shared__ float weights[Cfg::kTileKeys];                                      \
    rocm_sd::attention_body<rocm_sd::GpuArch, Cfg>(p, {p.workgroups, 1}, weights); \
  }
ENTRY(f16, Half, 128)
ENTRY(f16, Half, 512)
ENTRY(bf16, Bf16, 128)
ENTRY(bf16, Bf16, 512)
ENTRY(f32, Float, 128)
ENTRY(f32, Float, 512)
