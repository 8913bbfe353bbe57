// Scalar float operations (gfx11.5 and gfx12), with the one-lane transcendentals v_s_* that read and write
// scalars.
#include "emulator/lane_math.hpp"
#include "emulator/operations.hpp"
#include "emulator/scalar_core.hpp"

namespace rocm_sd::emu {
namespace ROCM_SD_ISA {
namespace {

using u32 = uint32_t;
using i32 = int32_t;

constexpr auto add = [](float a, float b, u32&) { return a + b; };
constexpr auto sub = [](float a, float b, u32&) { return a - b; };
constexpr auto mul = [](float a, float b, u32&) { return a * b; };
constexpr auto smaller = [](float a, float b, u32&) { return min_num(a, b); };
constexpr auto larger = [](float a, float b, u32&) { return max_num(a, b); };
constexpr auto lowest = [](float a, float b, u32&) { return minimum(a, b); };
constexpr auto highest = [](float a, float b, u32&) { return maximum(a, b); };
constexpr auto fma32 = [](float a, float b, float c, u32&) { return __builtin_fmaf(a, b, c); };
constexpr auto fma16 = [](float a, float b, float c, u32&) { return fma_half(a, b, c); };
constexpr auto same = [](auto a, u32&) { return a; };
constexpr auto widen = [](auto a, u32&) { return static_cast<float>(a); };

#define FLOAT_COMPARES(suffix, Ty)                                                                \
  compare_entry<Ty>("s_cmp_lt_" suffix, [](float a, float b) { return a < b; }),                  \
      compare_entry<Ty>("s_cmp_eq_" suffix, [](float a, float b) { return a == b; }),             \
      compare_entry<Ty>("s_cmp_le_" suffix, [](float a, float b) { return a <= b; }),             \
      compare_entry<Ty>("s_cmp_gt_" suffix, [](float a, float b) { return a > b; }),              \
      compare_entry<Ty>("s_cmp_lg_" suffix, [](float a, float b) { return a < b || a > b; }),     \
      compare_entry<Ty>("s_cmp_ge_" suffix, [](float a, float b) { return a >= b; }),             \
      compare_entry<Ty>("s_cmp_o_" suffix, [](float a, float b) { return a == a && b == b; }),    \
      compare_entry<Ty>("s_cmp_u_" suffix, [](float a, float b) { return a != a || b != b; }),    \
      compare_entry<Ty>("s_cmp_nge_" suffix, [](float a, float b) { return !(a >= b); }),         \
      compare_entry<Ty>("s_cmp_nlg_" suffix, [](float a, float b) { return !(a < b || a > b); }), \
      compare_entry<Ty>("s_cmp_ngt_" suffix, [](float a, float b) { return !(a > b); }),          \
      compare_entry<Ty>("s_cmp_nle_" suffix, [](float a, float b) { return !(a <= b); }),         \
      compare_entry<Ty>("s_cmp_neq_" suffix, [](float a, float b) { return a != b; }),            \
      compare_entry<Ty>("s_cmp_nlt_" suffix, [](float a, float b) { return !(a < b); })
#define ARITHMETIC(suffix, Ty)                                                                    \
  salu2<Ty, Ty, Ty>("s_add_" suffix, add), salu2<Ty, Ty, Ty>("s_sub_" suffix, sub),               \
      salu2<Ty, Ty, Ty>("s_mul_" suffix, mul), salu2<Ty, Ty, Ty>("s_min_" suffix, smaller),       \
      salu2<Ty, Ty, Ty>("s_max_" suffix, larger), salu2<Ty, Ty, Ty>("s_minimum_" suffix, lowest), \
      salu2<Ty, Ty, Ty>("s_maximum_" suffix, highest),                                            \
      salu1<Ty, Ty>("s_ceil_" suffix, [](float a, u32&) { return __builtin_ceilf(a); }),          \
      salu1<Ty, Ty>("s_floor_" suffix, [](float a, u32&) { return __builtin_floorf(a); }),        \
      salu1<Ty, Ty>("s_trunc_" suffix, [](float a, u32&) { return __builtin_truncf(a); }),        \
      salu1<Ty, Ty>("s_rndne_" suffix, [](float a, u32&) { return __builtin_rintf(a); })
#define TRANSCENDENTAL(suffix, Ty)                                                  \
  salu1<Ty, Ty>("v_s_exp_" suffix, [](float a, u32&) { return exp2_lane(a); }),     \
      salu1<Ty, Ty>("v_s_log_" suffix, [](float a, u32&) { return log2_lane(a); }), \
      salu1<Ty, Ty>("v_s_rcp_" suffix, [](float a, u32&) { return rcp_lane(a); }),  \
      salu1<Ty, Ty>("v_s_rsq_" suffix, [](float a, u32&) { return rsq_lane(a); }),  \
      salu1<Ty, Ty>("v_s_sqrt_" suffix, [](float a, u32&) { return sqrt_lane(a); })

constexpr Operation kTable[] = {
    ARITHMETIC("f32", F32),
    ARITHMETIC("f16", F16),
    TRANSCENDENTAL("f32", F32),
    TRANSCENDENTAL("f16", F16),
    FLOAT_COMPARES("f32", F32),
    FLOAT_COMPARES("f16", F16),
    salu3<F32, F32, F32, F32>("s_fmac_f32", fma32, true),
    salu3<F32, F32, F32, F32>("s_fmaak_f32", fma32),
    salu3<F32, F32, F32, F32>("s_fmamk_f32", fma32),
    salu3<F16, F16, F16, F16>("s_fmac_f16", fma16, true),
    salu1<F32, I32>("s_cvt_f32_i32", widen),
    salu1<F32, B32>("s_cvt_f32_u32", widen),
    salu1<I32, F32>("s_cvt_i32_f32", [](float a, u32&) { return to_i32(a); }),
    salu1<B32, F32>("s_cvt_u32_f32", [](float a, u32&) { return to_u32(a); }),
    salu1<F16, F32>("s_cvt_f16_f32", same),
    salu1<F32, F16>("s_cvt_f32_f16", same),
    salu1<F32, B32>("s_cvt_hi_f32_f16", [](u32 a, u32&) { return half_to_float(a >> 16); }),
    salu2<B32, F32, F32>("s_cvt_pk_rtz_f16_f32",
                         [](float a, float b, u32&) {
                           return float_to_half_toward_zero(a) | float_to_half_toward_zero(b) << 16;
                         }),
};

}  // namespace
}  // namespace ROCM_SD_ISA

Operations scalar_float_operations() { return {ROCM_SD_ISA::kTable, std::size(ROCM_SD_ISA::kTable)}; }

}  // namespace rocm_sd::emu
