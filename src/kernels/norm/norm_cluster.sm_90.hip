// The kernels of group_norm whose workgroups read each other's LDS.
#include "composable_kernels/arch/target.hpp"
#include "composable_kernels/hopper/group_norm_cluster.hpp"

#include "kernels/norm/norm_configs.hpp"

namespace rocm_sd {
namespace {

using namespace norm_configs;

template <class Storage, int kCount>
struct ClusterCfg {
  using T = Storage;
  static constexpr int kVec = full_pack(sizeof(T)), kThreads = kClusterThreads, kPacks = kCount, kPasses = 1;
};

}  // namespace

#define CLUSTER(type, T, packs)                                                                \
  ROCM_SD_KERNEL(group_norm_cluster_##type##_p##packs, kClusterThreads, cluster_groups(packs), \
                 GroupNormParams<T>) {                                                         \
    __shared__ group_norms::ClusterLds<kClusterThreads> lds;                                   \
    const group_norms::ClusterPlace place = {static_cast<int>(GpuArch::group_z()),             \
                                             static_cast<int>(GpuArch::group_y()),             \
                                             static_cast<int>(GpuArch::group_x())};            \
    group_norm_cluster_body<GpuArch, ClusterCfg<T, packs>>(                                    \
        p, Block<GpuArch>{1, kClusterThreads / GpuArch::lanes}, place, lds);                   \
  }
#define CLUSTERS(type, T) \
  CLUSTER(type, T, 2) CLUSTER(type, T, 4) CLUSTER(type, T, 6) CLUSTER(type, T, 11) CLUSTER(type, T, 16)
CLUSTERS(f16, Half)
CLUSTERS(bf16, Bf16)
CLUSTERS(f32, float)

}  // namespace rocm_sd
