// Packed vector arithmetic (two 16-bit numbers or two floats a lane), mixed-precision fma and dot products.
#include "emulator/lane_math.hpp"
#include "emulator/operations.hpp"
#include "emulator/small_floats.hpp"

namespace rocm_sd::emu {
namespace ROCM_SD_ISA {
namespace {

using u32 = uint32_t;
using i32 = int32_t;

// The 16 bits of a float operand for the low (part 0) or the high result, with its modifiers.
inline void part_bits(Wave& w, const Operand& o, uint32_t h, int part, u32* bits) {
  half_row(w, o, h, o.half >> part & 1, bits);
  const u32 clear = o.abs ? 0x7fff : 0xffff, flip = (part ? o.neg_hi : o.neg) ? 0x8000 : 0;
  if (o.modified) ROCM_SD_LANES bits[l] = (bits[l] & clear) ^ flip;
}
// The operand of the low (part 0) or the high result.
template <class Ty>
inline void fetch_part(Wave& w, const Operand& o, uint32_t h, int part, typename Ty::T* out) {
  alignas(64) u32 bits[kRow];
  if constexpr (kIsFloat<Ty>) {
    part_bits(w, o, h, part, bits);
    if (w.modes & kFlushIn16) [[unlikely]]
      ROCM_SD_LANES bits[l] = flush_half(bits[l]);
    ROCM_SD_LANES out[l] = half_to_float(bits[l]);
  } else {
    half_row(w, o, h, o.half >> part & 1, bits);
    constexpr bool kSigned = static_cast<typename Ty::T>(-1) < 0;
    ROCM_SD_LANES out[l] = kSigned ? static_cast<int16_t>(bits[l]) : static_cast<typename Ty::T>(bits[l]);
  }
}

template <class F, class Ty, int kSources>
void packed(Wave& w, const Inst& in) {
  for (uint32_t h = 0; h < w.halves; ++h) {
    if (!exec_of(w, h)) continue;
    Buffer<B32> out;
    for (int part = 0; part < 2; ++part) {
      Buffer<Ty> a, b, c, r;
      fetch_part<Ty>(w, in.src[0], h, part, a.lane);
      fetch_part<Ty>(w, in.src[1], h, part, b.lane);
      if constexpr (kSources == 3) {
        fetch_part<Ty>(w, in.src[2], h, part, c.lane);
        ROCM_SD_LANES r.lane[l] = F{}(a.lane[l], b.lane[l], c.lane[l]);
      } else {
        ROCM_SD_LANES r.lane[l] = F{}(a.lane[l], b.lane[l]);
      }
      Buffer<B32> bits;
      if constexpr (kIsFloat<Ty>) {
        if (in.flags & kClamp) modify_result(w, in, 0, r.lane);
        halves_of(w, r.lane, bits.lane);
      } else {
        ROCM_SD_LANES bits.lane[l] = static_cast<u32>(r.lane[l]) & 0xffff;
      }
      if (part == 0) {
        ROCM_SD_LANES out.lane[l] = bits.lane[l];
      } else {
        ROCM_SD_LANES out.lane[l] |= bits.lane[l] << 16;
      }
    }
    store_row(w, in.dst.reg, h, out.lane);
  }
}

inline void fetch_pk32(Wave& w, const Operand& o, uint32_t h, int part, float* out) {
  alignas(64) u32 buffer[kRow];
  const u32* raw = raw_row(w, o, h, o.half >> part & 1, buffer);
  const u32 flip = (part ? o.neg_hi : o.neg) ? 0x80000000u : 0;
  ROCM_SD_LANES out[l] = cast<float>(raw[l] ^ flip);
  if (w.modes & kFlushIn32) [[unlikely]]
    ROCM_SD_LANES out[l] = cast<float>(flush_single(cast<u32>(out[l])));
}
template <class F, int kSources>
void packed32(Wave& w, const Inst& in) {
  for (uint32_t h = 0; h < w.halves; ++h) {
    if (!exec_of(w, h)) continue;
    Buffer<F32> r[2];
    for (int part = 0; part < 2; ++part) {
      Buffer<F32> a, b, c;
      fetch_pk32(w, in.src[0], h, part, a.lane);
      fetch_pk32(w, in.src[1], h, part, b.lane);
      if constexpr (kSources == 3) {
        fetch_pk32(w, in.src[2], h, part, c.lane);
        ROCM_SD_LANES r[part].lane[l] = F{}(a.lane[l], b.lane[l], c.lane[l]);
      } else {
        ROCM_SD_LANES r[part].lane[l] = F{}(a.lane[l], b.lane[l]);
      }
      if (in.flags & kClamp) modify_result(w, in, 0, r[part].lane);
      flush_result(w, r[part].lane);
    }
    for (int part = 0; part < 2; ++part)
      store_row(w, in.dst.reg + part, h, reinterpret_cast<u32*>(r[part].lane));
  }
}
// v_pk_mov_b32: the low result from source 0, the high one from source 1; op_sel picks the dwords.
void pk_mov(Wave& w, const Inst& in) {
  for (uint32_t h = 0; h < w.halves; ++h) {
    if (!exec_of(w, h)) continue;
    Buffer<B32> b0, b1, low, high;
    const u32* a = raw_row(w, in.src[0], h, in.src[0].half & 1, b0.lane);
    const u32* b = raw_row(w, in.src[1], h, in.src[1].half & 1, b1.lane);
    ROCM_SD_LANES low.lane[l] = a[l];
    ROCM_SD_LANES high.lane[l] = b[l];
    store_row(w, in.dst.reg, h, low.lane);
    store_row(w, in.dst.reg + 1, h, high.lane);
  }
}

// v_fma_mix: each source is f32, or f16 where op_sel_hi is set. To f32, or to one half of an f16 register.
template <bool kToHalf, bool kHigh>
void fma_mix(Wave& w, const Inst& in) {
  for (uint32_t h = 0; h < w.halves; ++h) {
    if (!exec_of(w, h)) continue;
    Buffer<F32> buffer[3], r;
    const float* s[3];
    for (int i = 0; i < 3; ++i)
      s[i] = in.src[i].half & 2 ? fetch<F16>(w, in.src[i], h, buffer[i].lane)
                                : fetch<F32>(w, in.src[i], h, buffer[i].lane);
    ROCM_SD_LANES r.lane[l] = __builtin_fmaf(s[0][l], s[1][l], s[2][l]);
    if (in.flags & kClamp) modify_result(w, in, 0, r.lane);
    if constexpr (!kToHalf) {
      flush_result(w, r.lane);
      store_row(w, in.dst.reg, h, reinterpret_cast<u32*>(r.lane));
    } else {
      Buffer<B32> merged;
      const u32* old = vgpr(w, in.dst.reg, h);
      Buffer<B32> bits;
      halves_of(w, r.lane, bits.lane);
      ROCM_SD_LANES merged.lane[l] =
          kHigh ? (old[l] & 0xffff) | bits.lane[l] << 16 : (old[l] & 0xffff0000) | bits.lane[l];
      store_row(w, in.dst.reg, h, merged.lane);
    }
  }
}

// sum += a * b of both halves, each with its selection and negation; f16 and bf16 products are exact in
// float. No mode flushes their denormals.
template <bool kBf16>
void add_products(Wave& w, const Inst& in, uint32_t h, float* sum) {
  const auto widen = [](u32 x) { return kBf16 ? bf16_to_float(x) : half_to_float(x); };
  for (int part = 0; part < 2; ++part) {
    Buffer<B32> a, b;
    part_bits(w, in.src[0], h, part, a.lane);
    part_bits(w, in.src[1], h, part, b.lane);
    ROCM_SD_LANES sum[l] = __builtin_fmaf(widen(a.lane[l]), widen(b.lane[l]), sum[l]);
  }
}
// Of the addend neg_lo negates; neg_hi does nothing, as LLVM's selection relies on: it sets both for -c.
template <bool kBf16>
void dot2(Wave& w, const Inst& in) {
  for (uint32_t h = 0; h < w.halves; ++h) {
    if (!exec_of(w, h)) continue;
    Buffer<F32> bc, r;
    const float* c = fetch<RawF32>(w, in.src[2], h, bc.lane);
    ROCM_SD_LANES r.lane[l] = c[l];
    add_products<kBf16>(w, in, h, r.lane);
    if (in.flags & kClamp) modify_result(w, in, 0, r.lane);
    store_row(w, in.dst.reg, h, reinterpret_cast<u32*>(r.lane));
  }
}

// The same with a 16-bit addend and result: summed in float, rounded once. Other bits of the register stay.
template <bool kBf16>
void dot2_16(Wave& w, const Inst& in) {
  for (uint32_t h = 0; h < w.halves; ++h) {
    if (!exec_of(w, h)) continue;
    Buffer<B32> c, r;
    Buffer<F32> sum;
    part_bits(w, in.src[2], h, 0, c.lane);
    ROCM_SD_LANES sum.lane[l] = kBf16 ? bf16_to_float(c.lane[l]) : half_to_float(c.lane[l]);
    add_products<kBf16>(w, in, h, sum.lane);
    const u32* old = vgpr(w, in.dst.reg, h);
    const int to = in.dst_half ? 16 : 0;
    ROCM_SD_LANES {
      const u32 bits = kBf16 ? float_to_bf16(sum.lane[l]) : float_to_half(sum.lane[l]);
      r.lane[l] = (old[l] & ~(0xffffu << to)) | bits << to;
    }
    store_row(w, in.dst.reg, h, r.lane);
  }
}

// Four products of 8-bit floats, the sum in float.
template <bool kBf8A, bool kBf8B>
void dot4_f8(Wave& w, const Inst& in) {
  for (uint32_t h = 0; h < w.halves; ++h) {
    if (!exec_of(w, h)) continue;
    Buffer<B32> b0, b1;
    Buffer<F32> bc, r;
    const u32* a = raw_row(w, in.src[0], h, 0, b0.lane);
    const u32* b = raw_row(w, in.src[1], h, 0, b1.lane);
    const float* c = fetch<F32>(w, in.src[2], h, bc.lane);
    for (uint32_t l = 0; l < kRow; ++l) {
      float sum = c[l];
      for (int i = 0; i < 32; i += 8)
        sum = __builtin_fmaf(f8_to_float<kBf8A>(a[l] >> i & 0xff), f8_to_float<kBf8B>(b[l] >> i & 0xff), sum);
      r.lane[l] = sum;
    }
    store_row(w, in.dst.reg, h, reinterpret_cast<u32*>(r.lane));
  }
}

// Two, four or eight products of 16-, 8- or 4-bit integers: signed where neg_lo says so, or by the name of
// the operation.
template <int kBitsEach>
const u32* dot_row(Wave& w, const Operand& o, uint32_t h, u32* buffer) {
  if (kBitsEach != 16 || o.half == 2) return raw_row(w, o, h, 0, buffer);
  alignas(64) u32 high[kRow];  // other halves than the usual ones
  half_row(w, o, h, o.half & 1, buffer);
  half_row(w, o, h, o.half & 2, high);
  ROCM_SD_LANES buffer[l] |= high[l] << 16;
  return buffer;
}
template <int kBitsEach, int kSigned>
void dot_int(Wave& w, const Inst& in) {
  constexpr int kShift = 32 - kBitsEach;
  const bool signed_a = kSigned == 2 ? in.src[0].neg : kSigned == 1;
  const bool signed_b = kSigned == 2 ? in.src[1].neg : kSigned == 1;
  for (uint32_t h = 0; h < w.halves; ++h) {
    if (!exec_of(w, h)) continue;
    Buffer<B32> b0, b1, b2, r;
    const u32* a = dot_row<kBitsEach>(w, in.src[0], h, b0.lane);
    const u32* b = dot_row<kBitsEach>(w, in.src[1], h, b1.lane);
    const u32* c = raw_row(w, in.src[2], h, 0, b2.lane);
    ROCM_SD_LANES {
      int64_t sum = kSigned ? static_cast<int64_t>(static_cast<i32>(c[l])) : static_cast<int64_t>(c[l]);
      for (int i = 0; i < 32; i += kBitsEach) {
        const u32 ua = a[l] << (kShift - i), ub = b[l] << (kShift - i);
        const int64_t x = signed_a ? static_cast<i32>(ua) >> kShift : static_cast<i32>(ua >> kShift);
        const int64_t y = signed_b ? static_cast<i32>(ub) >> kShift : static_cast<i32>(ub >> kShift);
        sum += x * y;
      }
      if (in.flags & kClamp) {
        const int64_t top = kSigned ? 0x7fffffff : 0xffffffffll, bottom = kSigned ? -top - 1 : 0;
        sum = sum > top ? top : sum < bottom ? bottom : sum;
      }
      r.lane[l] = static_cast<u32>(sum);
    }
    store_row(w, in.dst.reg, h, r.lane);
  }
}

constexpr auto add = [](auto a, auto b) { return a + b; };
constexpr auto sub = [](auto a, auto b) { return a - b; };
constexpr auto mul = [](auto a, auto b) { return a * b; };
constexpr auto fmin2 = [](auto a, auto b) { return min_num(a, b); };
constexpr auto fmax2 = [](auto a, auto b) { return max_num(a, b); };
constexpr auto fmini = [](auto a, auto b) { return minimum(a, b); };
constexpr auto fmaxi = [](auto a, auto b) { return maximum(a, b); };
constexpr auto least = [](auto a, auto b) { return a < b ? a : b; };
constexpr auto most = [](auto a, auto b) { return a > b ? a : b; };
constexpr auto mad = [](auto a, auto b, auto c) { return a * b + c; };
constexpr auto fma16 = [](float a, float b, float c) { return fma_half(a, b, c); };
constexpr auto fma32 = [](float a, float b, float c) { return __builtin_fmaf(a, b, c); };
constexpr auto shl = [](u32 a, u32 b) { return b << (a & 15); };
constexpr auto shr = [](u32 a, u32 b) { return b >> (a & 15); };
constexpr auto sar = [](i32 a, i32 b) { return b >> (a & 15); };
constexpr auto add_sat_u = [](u32 a, u32 b) { return a + b > 0xffff ? 0xffffu : a + b; };
constexpr auto sub_sat_u = [](u32 a, u32 b) { return a < b ? 0u : a - b; };
constexpr auto saturate = [](i32 x) { return x > 32767 ? 32767 : x < -32768 ? -32768 : x; };
constexpr auto add_sat_i = [](i32 a, i32 b) { return saturate(a + b); };
constexpr auto sub_sat_i = [](i32 a, i32 b) { return saturate(a - b); };

template <class Ty, class F>
constexpr Operation pk2(const char* name, F) {
  constexpr Type t = kIsFloat<Ty> ? Type::kPkF16 : Type::kPkB16;
  return {name, &packed<F, Ty, 2>, Class::kValu, 1, 2, false, t, {t, t}};
}
template <class Ty, class F>
constexpr Operation pk3(const char* name, F, bool accumulates = false) {
  constexpr Type t = kIsFloat<Ty> ? Type::kPkF16 : Type::kPkB16;
  return {name, &packed<F, Ty, 3>, Class::kValu, 1, accumulates ? uint8_t{2} : uint8_t{3}, accumulates,
          t,    {t, t, t}};
}
template <class F>
constexpr Operation pk32(const char* name, uint8_t sources, Handler run, F) {
  return {name,    run,   Class::kValu, 1,
          sources, false, Type::kPkF32, {Type::kPkF32, Type::kPkF32, Type::kPkF32}};
}
constexpr Operation dot(const char* name, Handler run, Type pair, Type acc, bool accumulates = false) {
  return {name,        run, Class::kValu,     1, accumulates ? uint8_t{2} : uint8_t{3},
          accumulates, acc, {pair, pair, acc}};
}
constexpr Operation mix(const char* name, Handler run) {
  return {name, run, Class::kValu, 1, 3, false, Type::kF32, {Type::kF32, Type::kF32, Type::kF32}};
}

constexpr Type kB = Type::kB32, kF = Type::kF32;

constexpr Operation kTable[] = {
    pk2<F16>("v_pk_add_f16", add),
    pk2<F16>("v_pk_mul_f16", mul),
    pk2<F16>("v_pk_min_f16", fmin2),
    pk2<F16>("v_pk_max_f16", fmax2),
    pk2<F16>("v_pk_minimum_f16", fmini),
    pk2<F16>("v_pk_maximum_f16", fmaxi),
    pk3<F16>("v_pk_fma_f16", fma16),
    pk3<F16>("v_pk_fmac_f16", fma16, true),
    pk2<B16>("v_pk_add_u16", add),
    pk2<B16>("v_pk_sub_u16", sub),
    pk2<B16>("v_pk_add_i16", add),
    pk2<B16>("v_pk_sub_i16", sub),
    pk2<B16>("v_pk_add_u16_clamp", add_sat_u),
    pk2<B16>("v_pk_sub_u16_clamp", sub_sat_u),
    pk2<I16>("v_pk_add_i16_clamp", add_sat_i),
    pk2<I16>("v_pk_sub_i16_clamp", sub_sat_i),
    pk2<B16>("v_pk_mul_lo_u16", mul),
    pk2<B16>("v_pk_lshlrev_b16", shl),
    pk2<B16>("v_pk_lshrrev_b16", shr),
    pk2<I16>("v_pk_ashrrev_i16", sar),
    pk2<B16>("v_pk_min_u16", least),
    pk2<B16>("v_pk_max_u16", most),
    pk2<I16>("v_pk_min_i16", least),
    pk2<I16>("v_pk_max_i16", most),
    pk3<B16>("v_pk_mad_u16", mad),
    pk3<B16>("v_pk_mad_i16", mad),
    pk32("v_pk_add_f32", 2, &packed32<decltype(add), 2>, add),
    pk32("v_pk_mul_f32", 2, &packed32<decltype(mul), 2>, mul),
    pk32("v_pk_fma_f32", 3, &packed32<decltype(fma32), 3>, fma32),
    {"v_pk_mov_b32", &pk_mov, Class::kValu, 1, 2, false, Type::kPkF32, {Type::kPkF32, Type::kPkF32}},
    mix("v_fma_mix_f32", &fma_mix<false, false>),
    mix("v_fma_mixlo_f16", &fma_mix<true, false>),
    mix("v_fma_mixhi_f16", &fma_mix<true, true>),
    dot("v_dot2_f32_f16", &dot2<false>, Type::kPkF16, kF),
    dot("v_dot2acc_f32_f16", &dot2<false>, Type::kPkF16, kF, true),
    dot("v_dot2c_f32_f16", &dot2<false>, Type::kPkF16, kF, true),
    dot("v_dot2_f32_bf16", &dot2<true>, Type::kPkBf16, kF),
    dot("v_dot2acc_f32_bf16", &dot2<true>, Type::kPkBf16, kF, true),
    dot("v_dot2c_f32_bf16", &dot2<true>, Type::kPkBf16, kF, true),
    {"v_dot2_f16_f16",
     &dot2_16<false>,
     Class::kValu,
     1,
     3,
     false,
     Type::kF16,
     {Type::kPkF16, Type::kPkF16, Type::kF16}},
    {"v_dot2_bf16_bf16",
     &dot2_16<true>,
     Class::kValu,
     1,
     3,
     false,
     Type::kB16,
     {Type::kPkBf16, Type::kPkBf16, Type::kBf16}},
    dot("v_dot4_f32_fp8_fp8", &dot4_f8<false, false>, kB, kF),
    dot("v_dot4_f32_fp8_bf8", &dot4_f8<false, true>, kB, kF),
    dot("v_dot4_f32_bf8_fp8", &dot4_f8<true, false>, kB, kF),
    dot("v_dot4_f32_bf8_bf8", &dot4_f8<true, true>, kB, kF),
    dot("v_dot2_i32_i16", &dot_int<16, 1>, Type::kPkB16, kB),
    dot("v_dot2c_i32_i16", &dot_int<16, 1>, Type::kPkB16, kB, true),
    dot("v_dot2_u32_u16", &dot_int<16, 0>, Type::kPkB16, kB),
    dot("v_dot8c_i32_i4", &dot_int<4, 1>, kB, kB, true),
    dot("v_dot4_i32_iu8", &dot_int<8, 2>, kB, kB),
    dot("v_dot4_i32_i8", &dot_int<8, 1>, kB, kB),
    dot("v_dot4c_i32_i8", &dot_int<8, 1>, kB, kB, true),
    dot("v_dot4_u32_u8", &dot_int<8, 0>, kB, kB),
    dot("v_dot8_i32_iu4", &dot_int<4, 2>, kB, kB),
    dot("v_dot8_i32_i4", &dot_int<4, 1>, kB, kB),
    dot("v_dot8_u32_u4", &dot_int<4, 0>, kB, kB),
};

}  // namespace

Operations valu_packed() { return {kTable, sizeof(kTable) / sizeof(kTable[0])}; }

}  // namespace ROCM_SD_ISA
}  // namespace rocm_sd::emu
