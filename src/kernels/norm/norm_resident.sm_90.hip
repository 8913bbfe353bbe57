// The kernels of group_norm whose workgroups run at once and wait for each other.
#include <cooperative_groups.h>

#include "composable_kernels/arch/target.hpp"
#include "composable_kernels/hopper/group_norm_resident.hpp"

#include "kernels/norm/norm_configs.hpp"

namespace rocm_sd {
namespace {

using namespace norm_configs;

template <class Storage>
struct ResidentCfg {
  using T = Storage;
  static constexpr int kVec = full_pack(sizeof(T)), kThreads = kResidentThreads;
};

template <class T>
__device__ __forceinline__ void group_norm_resident(const GroupNormResidentParams<T>& p) {
  using Cfg = ResidentCfg<T>;
  __shared__ group_norms::ResidentLds<kResidentThreads> lds;
  auto* kept = reinterpret_cast<Pack<T, Cfg::kVec>*>(GpuArch::lds<0>());
  const Block<GpuArch> block{1, kResidentThreads / GpuArch::lanes};
  group_norm_resident_measure<GpuArch, Cfg>(p, block, kept, lds);
  cooperative_groups::this_grid().sync();
  group_norm_resident_normalise<GpuArch, Cfg>(p, block, kept, lds);
}

}  // namespace

#define RESIDENT(type, T)                                                                       \
  ROCM_SD_KERNEL(group_norm_resident_##type, kResidentThreads, 1, GroupNormResidentParams<T>) { \
    group_norm_resident(p);                                                                     \
  }
RESIDENT(f16, Half)
RESIDENT(bf16, Bf16)
RESIDENT(f32, float)

}  // namespace rocm_sd
