// The kernels of group_norm whose workgroups read each other's LDS.
#include "composable_kernels/arch/target.hpp"
#include "composable_kernels/fused/group_norm_cluster.hpp"

#include "kernels/norm/norm_configs.hpp"

namespace rocm_sd {
namespace {

using namespace norm_configs;

template <class Storage, int kSize>
struct ClusterCfg {
  using T = Storage;
  static constexpr int kVec = full_pack(sizeof(T)), kThreads = kSize;
};

}  // namespace

#define CLUSTER(type, T, threads)                                                                            \
  ROCM_SD_KERNEL(group_norm_cluster_##type##_t##threads, threads, 768 / threads, GroupNormParams<T>) {       \
    group_norm_cluster_body<GpuArch, ClusterCfg<T, threads>>(p, Block<GpuArch>{1, threads / GpuArch::lanes}, \
                                                             GpuArch::lds<0>());                             \
  }
CLUSTER(f16, Half, 256)
CLUSTER(f16, Half, 512)
CLUSTER(bf16, Bf16, 256)
CLUSTER(bf16, Bf16, 512)
CLUSTER(f32, float, 256)
CLUSTER(f32, float, 512)

}  // namespace rocm_sd
