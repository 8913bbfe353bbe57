// The kernels of resample: resample_<type>_v<channels of a pack>, and its weights.
#include "composable_kernels/arch/target.hpp"
#include "composable_kernels/fused/resample.hpp"

#include "kernels/resample/resample_configs.hpp"

namespace rocm_sd {
namespace {

using namespace resample_configs;

template <class Storage, int kWidth>
struct Cfg {
  using T = Storage;
  static constexpr int kVec = kWidth;
};

}  // namespace

ROCM_SD_KERNEL(resample_taps, kTapsThreads, 1, ResampleTapsParams) {
  resample_taps_body(p, Block<GpuArch>{p.workgroups, kTapsThreads / GpuArch::lanes});
}

#define RESAMPLE(type, T, vec)                                                                       \
  ROCM_SD_KERNEL(resample_##type##_v##vec, kThreads, 4, ResampleParams<T>) {                         \
    resample_body<GpuArch, Cfg<T, vec>>(p, Block<GpuArch>{p.workgroups, kThreads / GpuArch::lanes}); \
  }
RESAMPLE(f16, Half, 8)
RESAMPLE(f16, Half, 4)
RESAMPLE(f16, Half, 1)
RESAMPLE(bf16, Bf16, 8)
RESAMPLE(bf16, Bf16, 4)
RESAMPLE(bf16, Bf16, 1)
RESAMPLE(f32, float, 4)
RESAMPLE(f32, float, 1)

}  // namespace rocm_sd
