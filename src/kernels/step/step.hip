// The kernels of the step ops.
#include "composable_kernels/arch/target.hpp"
#include "composable_kernels/fused/step.hpp"

#include "kernels/step/step_configs.hpp"

namespace rocm_sd {
namespace {

using namespace step_configs;

template <class Storage>
struct Cfg {
  using T = Storage;
};
template <int kThreads>
constexpr int kWaves = kThreads / GpuArch::lanes;

}  // namespace

ROCM_SD_KERNEL(linear_combination, kThreads, 2, LinearCombinationParams) {
  linear_combination_body(p, Block<GpuArch>{p.workgroups, kWaves<kThreads>});
}
ROCM_SD_KERNEL(blend, kThreads, 2, BlendParams) {
  blend_body(p, Block<GpuArch>{p.workgroups, kWaves<kThreads>});
}
// One wave.
ROCM_SD_KERNEL(sum_counts, GpuArch::lanes, 1, CountNonfiniteParams<float>) {
  sum_counts_body(p, Block<GpuArch>{1, 1});
}

#define STEP(type, T)                                                                               \
  ROCM_SD_KERNEL(guidance_##type, kThreads, 2, GuidanceParams<T>) {                                 \
    guidance_body<GpuArch, Cfg<T>>(p, Block<GpuArch>{p.workgroups, kWaves<kThreads>});              \
  }                                                                                                 \
  ROCM_SD_KERNEL(guidance_moments_##type, kThreads, 2, GuidanceParams<T>) {                         \
    __shared__ double lds[kWaves<kThreads>];                                                        \
    guidance_moments_body<GpuArch, Cfg<T>>(p, Block<GpuArch>{p.workgroups, kWaves<kThreads>}, lds); \
  }                                                                                                 \
  ROCM_SD_KERNEL(guidance_rescaled_##type, kThreads, 2, GuidanceParams<T>) {                        \
    guidance_rescaled_body<GpuArch, Cfg<T>>(p, Block<GpuArch>{p.workgroups, kWaves<kThreads>});     \
  }                                                                                                 \
  ROCM_SD_KERNEL(posterior_##type, kThreads, 2, PosteriorParams<T>) {                               \
    posterior_body<GpuArch, Cfg<T>>(p, Block<GpuArch>{p.workgroups, kWaves<kThreads>});             \
  }                                                                                                 \
  ROCM_SD_KERNEL(count_nonfinite_##type, kThreads, 2, CountNonfiniteParams<T>) {                    \
    __shared__ double lds[kWaves<kThreads>];                                                        \
    count_nonfinite_body<GpuArch, Cfg<T>>(p, Block<GpuArch>{p.workgroups, kWaves<kThreads>}, lds);  \
  }
STEP(f16, Half)
STEP(bf16, Bf16)
STEP(f32, float)

}  // namespace rocm_sd
