// The kernels of the elementwise maps: map_<map>_<type of a and b>_<type of y>.
#include "composable_kernels/arch/target.hpp"
#include "composable_kernels/fused/elementwise.hpp"

#include "kernels/elementwise/map_configs.hpp"

namespace rocm_sd {
namespace {

using map_configs::kThreads;

template <class M, class In, class Out>
struct Cfg {
  using Map = M;
  using A = In;
  using Y = Out;
};
constexpr int kWaves = kThreads / GpuArch::lanes;

}  // namespace

#define MAP(map, Map, a, A, y, Y)                                                     \
  ROCM_SD_KERNEL(map_##map##_##a##_##y, kThreads, 4, MapParams<A COMMA Y>) {          \
    map_body<GpuArch, Cfg<maps::Map, A, Y>>(p, Block<GpuArch>{p.workgroups, kWaves}); \
  }
#define COMMA ,
#define SAME(map, Map)                  \
  MAP(map, Map, f16, Half, f16, Half)   \
  MAP(map, Map, bf16, Bf16, bf16, Bf16) \
  MAP(map, Map, f32, float, f32, float)

SAME(copy, Copy)
MAP(copy, Copy, f32, float, f16, Half)
MAP(copy, Copy, f32, float, bf16, Bf16)
MAP(copy, Copy, f16, Half, f32, float)
MAP(copy, Copy, f16, Half, bf16, Bf16)
MAP(copy, Copy, bf16, Bf16, f32, float)
MAP(copy, Copy, bf16, Bf16, f16, Half)
SAME(silu, Silu)
SAME(gelu, Gelu)
SAME(quick_gelu, QuickGelu)
SAME(relu, Relu)
SAME(add, Add)
SAME(add_scaled, AddScaled)
SAME(leaky_relu, LeakyRelu)
SAME(prelu, PRelu)
SAME(mul_gelu, MulGelu)
SAME(affine, Affine)
MAP(affine, Affine, f32, float, f16, Half)
MAP(affine, Affine, f32, float, bf16, Bf16)
SAME(soft_clamp, SoftClamp)
MAP(split, Split, f32, float, bf16, Bf16)
MAP(rgb8, Rgb8, f16, Half, u8, uint8_t)
MAP(rgb8, Rgb8, bf16, Bf16, u8, uint8_t)
MAP(rgb8, Rgb8, f32, float, u8, uint8_t)

}  // namespace rocm_sd
