// The kernels of group_norm and layer_norm.
#include "composable_kernels/arch/target.hpp"
#include "composable_kernels/fused/group_norm_parts.hpp"
#include "composable_kernels/fused/group_norm_whole.hpp"
#include "composable_kernels/fused/layer_norm.hpp"

#include "kernels/norm/norm_configs.hpp"

namespace rocm_sd {
namespace {

using namespace norm_configs;

template <class Storage, int kWidth>
struct PartsCfg {
  using T = Storage;
  static constexpr int kVec = kWidth, kThreads = kPartsThreads;
};
template <class Storage, int kWidth, int kSize>
struct WholeCfg {
  using T = Storage;
  static constexpr int kVec = kWidth, kThreads = kSize, kPasses = 1;
  static constexpr int kPacks = whole_packs(kVec, sizeof(T));
};
template <class Storage, int kRowLanes, int kCount>
struct RowCfg {
  using T = Storage;
  static constexpr int kVec = full_pack(sizeof(T)), kLanes = kRowLanes, kPacks = kCount;
};

constexpr int kRowThreads = kLayerNormWaves * GpuArch::lanes;
template <int kThreads>
constexpr int kWaves = kThreads / GpuArch::lanes;

}  // namespace

#define MEASURE(type, T, vec)                                                                               \
  ROCM_SD_KERNEL(group_norm_measure_##type##_v##vec, kPartsThreads, 2, GroupNormParams<T>) {                \
    __shared__ group_norms::MeasureLds<kPartsThreads, vec> lds;                                             \
    group_norm_measure_body<GpuArch, PartsCfg<T, vec>>(p, Block<GpuArch>{1, kWaves<kPartsThreads>}, lds);   \
  }                                                                                                         \
  ROCM_SD_KERNEL(group_norm_normalise_##type##_v##vec, kPartsThreads, 2, GroupNormParams<T>) {              \
    __shared__ group_norms::NormaliseLds<kPartsThreads> lds;                                                \
    group_norm_normalise_body<GpuArch, PartsCfg<T, vec>>(p, Block<GpuArch>{1, kWaves<kPartsThreads>}, lds); \
  }
MEASURE(f16, Half, 8)
MEASURE(f16, Half, 1)
MEASURE(bf16, Bf16, 8)
MEASURE(bf16, Bf16, 1)
MEASURE(f32, float, 4)
MEASURE(f32, float, 1)

// One wave per group of one image.
ROCM_SD_KERNEL(group_norm_merge, GpuArch::lanes, 1, GroupNormParams<float>) {
  group_norm_merge_body(p, Block<GpuArch>{static_cast<uint32_t>(p.images * p.groups), 1});
}

#define WHOLE(type, T, vec, threads)                                                                       \
  ROCM_SD_KERNEL(group_norm_whole_##type##_v##vec##_t##threads, threads, 1, GroupNormParams<T>) {          \
    __shared__ float lds[kWaves<threads>];                                                                 \
    group_norm_whole_body<GpuArch, WholeCfg<T, vec, threads>>(p, Block<GpuArch>{1, kWaves<threads>}, lds); \
  }
#define WHOLES(type, T, vec) WHOLE(type, T, vec, 256) WHOLE(type, T, vec, 1024)
WHOLES(f16, Half, 8)
WHOLES(f16, Half, 4)
WHOLES(f16, Half, 2)
WHOLES(bf16, Bf16, 8)
WHOLES(bf16, Bf16, 4)
WHOLES(bf16, Bf16, 2)
WHOLES(f32, float, 4)
WHOLES(f32, float, 2)

#define LAYER_NORM(type, T, lanes, packs)                                                                \
  ROCM_SD_KERNEL(layer_norm_##type##_l##lanes##_p##packs, kRowThreads, packs > 8 ? 3 : 4,                \
                 LayerNormParams<T>) {                                                                   \
    layer_norm_body<GpuArch, RowCfg<T, lanes, packs>>(p, Block<GpuArch>{p.workgroups, kLayerNormWaves}); \
  }
#define LAYER_NORMS(type, T)                                                                          \
  LAYER_NORM(type, T, 8, 5)                                                                           \
  LAYER_NORM(type, T, 16, 5)                                                                          \
  LAYER_NORM(type, T, 32, 3)                                                                          \
  LAYER_NORM(type, T, 32, 5)                                                                          \
  LAYER_NORM(type, T, 32, 8)                                                                          \
  LAYER_NORM(type, T, 32, 10)                                                                         \
  ROCM_SD_KERNEL(layer_norm_##type##_long, kRowThreads, 4, LayerNormParams<T>) {                      \
    layer_norm_long_body<GpuArch, RowCfg<T, 1, 1>>(p, Block<GpuArch>{p.workgroups, kLayerNormWaves}); \
  }
LAYER_NORMS(f16, Half)
LAYER_NORMS(bf16, Bf16)
LAYER_NORMS(f32, float)

}  // namespace rocm_sd
