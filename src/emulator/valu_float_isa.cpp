// Vector float arithmetic: f32, f16 (computed in float and rounded once) and f64.
#include "emulator/lane_math.hpp"
#include "emulator/operations.hpp"

namespace rocm_sd::emu {
namespace ROCM_SD_ISA {
namespace {

constexpr auto kTrans = Class::kTrans;

constexpr auto add = [](auto a, auto b) { return a + b; };
constexpr auto sub = [](auto a, auto b) { return a - b; };
constexpr auto subrev = [](auto a, auto b) { return b - a; };
constexpr auto mul = [](auto a, auto b) { return a * b; };
constexpr auto mul_legacy = [](float a, float b) { return a == 0.0f || b == 0.0f ? 0.0f : a * b; };
constexpr auto smaller = [](auto a, auto b) { return min_num(a, b); };
constexpr auto larger = [](auto a, auto b) { return max_num(a, b); };
constexpr auto min3 = [](auto a, auto b, auto c) { return min_num(min_num(a, b), c); };
constexpr auto max3 = [](auto a, auto b, auto c) { return max_num(max_num(a, b), c); };
constexpr auto minmax = [](auto a, auto b, auto c) { return max_num(min_num(a, b), c); };
constexpr auto maxmin = [](auto a, auto b, auto c) { return min_num(max_num(a, b), c); };
constexpr auto med3 = [](auto a, auto b, auto c) { return median(a, b, c); };
constexpr auto lowest = [](auto a, auto b) { return minimum(a, b); };
constexpr auto highest = [](auto a, auto b) { return maximum(a, b); };
constexpr auto lowest3 = [](auto a, auto b, auto c) { return minimum(minimum(a, b), c); };
constexpr auto highest3 = [](auto a, auto b, auto c) { return maximum(maximum(a, b), c); };
constexpr auto fma32 = [](float a, float b, float c) { return __builtin_fmaf(a, b, c); };
constexpr auto fma16 = [](float a, float b, float c) { return fma_half(a, b, c); };
constexpr auto fma64 = [](double a, double b, double c) { return __builtin_fma(a, b, c); };
constexpr auto mad32 = [](float a, float b, float c) { return a * b + c; };

constexpr auto ceil32 = [](float a) { return __builtin_ceilf(a); };
constexpr auto floor32 = [](float a) { return __builtin_floorf(a); };
constexpr auto trunc32 = [](float a) { return __builtin_truncf(a); };
constexpr auto rndne32 = [](float a) { return __builtin_rintf(a); };
constexpr auto fract = [](auto a) { return fract_lane(a); };
constexpr auto exp2op = [](float a) { return exp2_lane(a); };
constexpr auto log2op = [](float a) { return log2_lane(a); };
constexpr auto rcp = [](float a) { return rcp_lane(a); };
constexpr auto rsq = [](float a) { return rsq_lane(a); };
constexpr auto root = [](float a) { return sqrt_lane(a); };
constexpr auto sine = [](float a) { return sin_lane(a); };
constexpr auto cosine = [](float a) { return cos_lane(a); };
constexpr auto mant = [](auto a) { return static_cast<decltype(a)>(frexp_mant(a)); };
constexpr auto expo = [](auto a) { return frexp_exp(a); };
constexpr auto ldexp32 = [](float a, int32_t n) { return ldexp_lane(a, n); };

// v_div_fixup: the quotient a of c / b, with what Newton's iteration cannot know put right.
template <class T>
inline T div_fixup(T a, T b, T c) {
  const bool negative = __builtin_signbit(b) != __builtin_signbit(c);
  const T inf = static_cast<T>(__builtin_inf()), nan = static_cast<T>(kNan);
  const T sign = negative ? T(-1) : T(1);
  if (c != c) return c;
  if (b != b) return b;
  if (b == 0 && c == 0) return nan;
  if (__builtin_fabs(b) == inf && __builtin_fabs(c) == inf) return nan;
  if (b == 0 || __builtin_fabs(c) == inf) return sign * inf;
  if (__builtin_fabs(b) == inf || c == 0) return sign * T(0);
  // The sign of a quotient that underflowed is not to be trusted, that of zero included.
  return a != a ? sign * inf : sign * static_cast<T>(__builtin_fabs(a));
}
constexpr auto fixup = [](auto a, auto b, auto c) { return div_fixup(a, b, c); };

constexpr Operation kTable[] = {
    op2<F32, F32, F32>("v_add_f32", add),
    op2<F32, F32, F32>("v_sub_f32", sub),
    op2<F32, F32, F32>("v_subrev_f32", subrev),
    op2<F32, F32, F32>("v_mul_f32", mul),
    op2<F32, F32, F32>("v_mul_legacy_f32", mul_legacy),
    op2<F32, F32, F32>("v_mul_dx9_zero_f32", mul_legacy),
    op2<F32, F32, F32>("v_min_f32", smaller),
    op2<F32, F32, F32>("v_max_f32", larger),
    op2<F32, F32, F32>("v_minimum_f32", lowest),
    op2<F32, F32, F32>("v_maximum_f32", highest),
    op3<F32, F32, F32, F32>("v_minimum3_f32", lowest3),
    op3<F32, F32, F32, F32>("v_maximum3_f32", highest3),
    op3<F32, F32, F32, F32>("v_fma_f32", fma32),
    op_acc<F32, F32, F32>("v_fmac_f32", fma32),
    op3<F32, F32, F32, F32>("v_fmamk_f32", fma32),
    op3<F32, F32, F32, F32>("v_fmaak_f32", fma32),
    op3<F32, F32, F32, F32>("v_mad_f32", mad32),
    op_acc<F32, F32, F32>("v_mac_f32", mad32),
    op3<F32, F32, F32, F32>("v_madmk_f32", mad32),
    op3<F32, F32, F32, F32>("v_madak_f32", mad32),
    op3<F32, F32, F32, F32>("v_min3_f32", min3),
    op3<F32, F32, F32, F32>("v_max3_f32", max3),
    op3<F32, F32, F32, F32>("v_med3_f32", med3),
    op3<F32, F32, F32, F32>("v_minmax_f32", minmax),
    op3<F32, F32, F32, F32>("v_maxmin_f32", maxmin),
    op1<F32, F32>("v_ceil_f32", ceil32),
    op1<F32, F32>("v_floor_f32", floor32),
    op1<F32, F32>("v_trunc_f32", trunc32),
    op1<F32, F32>("v_rndne_f32", rndne32),
    op1<F32, F32>("v_fract_f32", fract),
    op1<F32, F32>("v_exp_f32", exp2op, kTrans),
    op1<F32, F32>("v_log_f32", log2op, kTrans),
    op1<F32, F32>("v_rcp_f32", rcp, kTrans),
    op1<F32, F32>("v_rcp_iflag_f32", rcp, kTrans),
    op1<F32, F32>("v_rsq_f32", rsq, kTrans),
    op1<F32, F32>("v_sqrt_f32", root, kTrans),
    op1<F32, F32>("v_sin_f32", sine, kTrans),
    op1<F32, F32>("v_cos_f32", cosine, kTrans),
    op1<F32, F32>("v_frexp_mant_f32", mant),
    op1<I32, F32>("v_frexp_exp_i32_f32", expo),
    op2<F32, F32, I32>("v_ldexp_f32", ldexp32),
    op3<F32, F32, F32, F32>("v_div_fixup_f32", fixup),

    op2<F16, F16, F16>("v_add_f16", add),
    op2<F16, F16, F16>("v_sub_f16", sub),
    op2<F16, F16, F16>("v_subrev_f16", subrev),
    op2<F16, F16, F16>("v_mul_f16", mul),
    op2<F16, F16, F16>("v_min_f16", smaller),
    op2<F16, F16, F16>("v_max_f16", larger),
    op2<F16, F16, F16>("v_minimum_f16", lowest),
    op2<F16, F16, F16>("v_maximum_f16", highest),
    op3<F16, F16, F16, F16>("v_minimum3_f16", lowest3),
    op3<F16, F16, F16, F16>("v_maximum3_f16", highest3),
    op3<F16, F16, F16, F16>("v_fma_f16", fma16),
    op_acc<F16, F16, F16>("v_fmac_f16", fma16),
    op3<F16, F16, F16, F16>("v_fmamk_f16", fma16),
    op3<F16, F16, F16, F16>("v_fmaak_f16", fma16),
    op3<F16, F16, F16, F16>("v_min3_f16", min3),
    op3<F16, F16, F16, F16>("v_max3_f16", max3),
    op3<F16, F16, F16, F16>("v_med3_f16", med3),
    op3<F16, F16, F16, F16>("v_minmax_f16", minmax),
    op3<F16, F16, F16, F16>("v_maxmin_f16", maxmin),
    op1<F16, F16>("v_ceil_f16", ceil32),
    op1<F16, F16>("v_floor_f16", floor32),
    op1<F16, F16>("v_trunc_f16", trunc32),
    op1<F16, F16>("v_rndne_f16", rndne32),
    op1<F16, F16>("v_fract_f16", [](float a) { return fract_lane(a, 0x1.ffcp-1f); }),
    op1<F16, F16>("v_exp_f16", exp2op, kTrans),
    op1<F16, F16>("v_log_f16", log2op, kTrans),
    op1<F16, F16>("v_rcp_f16", rcp, kTrans),
    op1<F16, F16>("v_rsq_f16", rsq, kTrans),
    op1<F16, F16>("v_sqrt_f16", root, kTrans),
    op1<F16, F16>("v_sin_f16", sine, kTrans),
    op1<F16, F16>("v_cos_f16", cosine, kTrans),
    op1<F16, F16>("v_frexp_mant_f16", mant),
    op1<I16, F16>("v_frexp_exp_i16_f16", expo),
    op2<F16, F16, I16>("v_ldexp_f16", ldexp32),
    op3<F16, F16, F16, F16>("v_div_fixup_f16", fixup),

    op2<F64, F64, F64>("v_add_f64", add),
    op2<F64, F64, F64>("v_mul_f64", mul),
    op2<F64, F64, F64>("v_min_f64", smaller),
    op2<F64, F64, F64>("v_max_f64", larger),
    op2<F64, F64, F64>("v_minimum_f64", lowest),
    op2<F64, F64, F64>("v_maximum_f64", highest),
    op3<F64, F64, F64, F64>("v_fma_f64", fma64),
    op_acc<F64, F64, F64>("v_fmac_f64", fma64),
    op1<F64, F64>("v_ceil_f64", [](double a) { return __builtin_ceil(a); }),
    op1<F64, F64>("v_floor_f64", [](double a) { return __builtin_floor(a); }),
    op1<F64, F64>("v_trunc_f64", [](double a) { return __builtin_trunc(a); }),
    op1<F64, F64>("v_rndne_f64", [](double a) { return __builtin_rint(a); }),
    op1<F64, F64>("v_fract_f64", fract),
    op1<F64, F64>(
        "v_rcp_f64", [](double a) { return 1.0 / a; }, kTrans),
    op1<F64, F64>(
        "v_rsq_f64", [](double a) { return 1.0 / __builtin_sqrt(a); }, kTrans),
    op1<F64, F64>(
        "v_sqrt_f64", [](double a) { return __builtin_sqrt(a); }, kTrans),
    op1<F64, F64>("v_frexp_mant_f64", mant),
    op1<I32, F64>("v_frexp_exp_i32_f64", expo),
    op2<F64, F64, I32>("v_ldexp_f64", [](double a, int32_t n) { return ldexp_lane(a, n); }),
    op3<F64, F64, F64, F64>("v_div_fixup_f64", fixup),
};

}  // namespace

Operations valu_float() { return {kTable, sizeof(kTable) / sizeof(kTable[0])}; }

}  // namespace ROCM_SD_ISA
}  // namespace rocm_sd::emu
