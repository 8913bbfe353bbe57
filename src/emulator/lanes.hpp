// Rows of lanes: how handlers read operands (registers, scalars, constants, halves, modifiers) and write
// results under the exec mask. Everything is a loop over 32 lanes that the compiler turns into vectors.
// Included by files compiled for several x86 levels, hence the namespace.
#pragma once

#include "emulator/wave.hpp"

#ifndef ROCM_SD_ISA
#define ROCM_SD_ISA isa_plain
#endif

#define ROCM_SD_LANES _Pragma("GCC ivdep") for (uint32_t l = 0; l < kRow; ++l)

namespace rocm_sd::emu {
namespace ROCM_SD_ISA {

template <class To, class From>
inline To cast(From from) {
  return __builtin_bit_cast(To, from);
}

// ---- f16 and bf16, as vectorisable integer code ----

inline float half_to_float(uint32_t h) {
  const uint32_t magnitude = (h & 0x7fff) << 13;
  const float scaled = cast<float>(magnitude) * 0x1p112f;  // also right for denormals
  const uint32_t finite = cast<uint32_t>(scaled);
  const uint32_t bits = (h & 0x7c00) == 0x7c00 ? (magnitude | 0x7f800000) : finite;
  return cast<float>(bits | (h & 0x8000) << 16);
}

inline uint32_t float_to_half(float value) {  // to nearest even
  const uint32_t bits = cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  const uint32_t normal = (magnitude + 0xfff + (magnitude >> 13 & 1) - (112u << 23)) >> 13;
  const uint32_t denormal = cast<uint32_t>(cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t big = magnitude > 0x7f800000 ? 0x7e00 | (magnitude >> 13 & 0x3ff) : 0x7c00;
  uint32_t out = magnitude < (113u << 23) ? denormal : normal;
  out = magnitude >= 0x477ff000 ? big : out;
  return out | sign;
}

// Toward zero, as v_cvt_pkrtz_f16_f32: what is too large becomes the largest finite number.
inline uint32_t float_to_half_toward_zero(float value) {
  const uint32_t bits = cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  const uint32_t normal = (magnitude - (112u << 23)) >> 13;
  const uint32_t shift = 126 - (magnitude >> 23);
  const uint32_t mantissa = (magnitude & 0x7fffff) | 0x800000;
  const uint32_t denormal = shift < 32 ? mantissa >> (shift & 31) : 0;
  uint32_t out = magnitude < (113u << 23) ? denormal : normal;
  out = magnitude >= (143u << 23) ? 0x7bff : out;
  out = magnitude == 0x7f800000 ? 0x7c00 : out;
  out = magnitude > 0x7f800000 ? 0x7e00 | (magnitude >> 13 & 0x3ff) : out;
  return out | sign;
}

inline float bf16_to_float(uint32_t b) { return cast<float>(b << 16); }
inline uint32_t float_to_bf16(float value) {
  const uint32_t bits = cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return (bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16 | 0x40) : rounded;
}

// ---- types of operands ----

template <class Value, Type kType>
struct Lane {
  using T = Value;
  static constexpr Type type = kType;
};
struct B16 : Lane<uint32_t, Type::kB16> {};
struct I16 : Lane<int32_t, Type::kB16> {};
struct F16 : Lane<float, Type::kF16> {};
struct B32 : Lane<uint32_t, Type::kB32> {};
struct I32 : Lane<int32_t, Type::kB32> {};
struct F32 : Lane<float, Type::kF32> {};
struct B64 : Lane<uint64_t, Type::kB64> {};
struct I64 : Lane<int64_t, Type::kB64> {};
struct F64 : Lane<double, Type::kF64> {};
struct Mask : Lane<uint32_t, Type::kMask> {};  // a bit of a scalar, as 0 or 1
// Floats that are looked at, not computed with: no mode changes their denormals.
struct RawF32 : Lane<float, Type::kF32> {};
struct RawF64 : Lane<double, Type::kF64> {};
struct HalfBits : Lane<uint32_t, Type::kHalfBits> {};
template <class Ty>
constexpr bool kIsFloat = Ty::type == Type::kF16 || Ty::type == Type::kF32 || Ty::type == Type::kF64;
template <class Ty>
constexpr int kBits = Ty::type == Type::kB16 || Ty::type == Type::kF16 || Ty::type == Type::kHalfBits ? 16
                      : Ty::type == Type::kB64 || Ty::type == Type::kF64                              ? 64
                                                                                                      : 32;
template <class Ty, class Other>
constexpr bool kSame = false;
template <class Ty>
constexpr bool kSame<Ty, Ty> = true;
// The bits of Wave::modes that flush denormals of Ty when it is read and when it is written.
template <class Ty>
constexpr uint32_t kFlushIn = kSame<Ty, F32>                     ? kFlushIn32
                              : kSame<Ty, F16> || kSame<Ty, F64> ? kFlushIn16
                                                                 : 0;
template <class Ty>
constexpr uint32_t kFlushOut = kSame<Ty, F32>                     ? kFlushOut32
                               : kSame<Ty, F16> || kSame<Ty, F64> ? kFlushOut16
                                                                  : 0;

inline uint32_t flush_half(uint32_t bits) { return bits & 0x7c00 ? bits : bits & 0x8000; }
inline uint32_t flush_single(uint32_t bits) { return bits & 0x7f800000 ? bits : bits & 0x80000000; }
inline uint64_t flush_double(uint64_t bits) {
  return bits & 0x7ff0000000000000ull ? bits : bits & 0x8000000000000000ull;
}

// ---- reading ----

inline uint32_t exec_of(const Wave& w, uint32_t h) { return w.sgpr[kExec + h]; }

inline uint32_t* vgpr(Wave& w, uint32_t reg, uint32_t h) { return w.rows + h * w.half_stride + reg * kRow; }

// The value of a scalar operand, dword `part`.
inline uint32_t scalar(Wave& w, const Operand& o, uint32_t part = 0) {
  if (o.kind == Kind::kConst) return o.row[part * kRow];
  if (o.kind == Kind::kSpecial) {
    const bool whole = w.lanes == 64;
    if (o.reg == kVccz) return part == 0 && w.sgpr[kVcc] == 0 && (!whole || w.sgpr[kVcc + 1] == 0);
    return part == 0 && w.sgpr[kExec] == 0 && (!whole || w.sgpr[kExec + 1] == 0);
  }
  return w.sgpr[o.reg + part];
}
inline uint64_t scalar64(Wave& w, const Operand& o) {
  return scalar(w, o, 0) | static_cast<uint64_t>(scalar(w, o, 1)) << 32;
}

// The 32 lanes of dword `part` of an operand, without modifiers; `buffer` is used for scalars.
inline const uint32_t* raw_row(Wave& w, const Operand& o, uint32_t h, uint32_t part, uint32_t* buffer) {
  if (o.kind == Kind::kVgpr) [[likely]]
    return vgpr(w, o.reg + part, h);
  if (o.kind == Kind::kConst) return o.row + part * kRow;
  if (o.kind == Kind::kPermuted) return w.permuted + part * 64 + h * kRow;
  const uint32_t value = scalar(w, o, part);
  ROCM_SD_LANES buffer[l] = value;
  return buffer;
}

// The 16 bits of an operand in each lane, as 0..65535; `high`: of the upper half.
inline void half_row(Wave& w, const Operand& o, uint32_t h, bool high, uint32_t* out) {
  alignas(64) uint32_t buffer[kRow];
  const uint32_t* raw = raw_row(w, o, h, 0, buffer);
  const uint32_t shift = high ? 16 : 0;
  ROCM_SD_LANES out[l] = raw[l] >> shift & 0xffff;
}

inline void sdwa_row(const Operand& o, const uint32_t* raw, uint32_t* out) {
  const uint32_t select = o.sdwa & 0x7f;
  const bool byte = select <= kByte3, word = select == kWord0 || select == kWord1;
  const uint32_t shift = byte ? (select - kByte0) * 8 : select == kWord1 ? 16 : 0;
  const uint32_t mask = byte ? 0xff : word ? 0xffff : 0xffffffffu;
  const uint32_t sign = o.sdwa & kSignExtend ? (byte ? 0x80 : word ? 0x8000 : 0) : 0;
  ROCM_SD_LANES {
    const uint32_t v = raw[l] >> shift & mask;
    out[l] = (v ^ sign) - sign;
  }
}

// One operand in all 32 lanes of half h, with its modifiers; the result is `buffer` or the register itself.
template <class Ty>
inline const typename Ty::T* fetch(Wave& w, const Operand& o, uint32_t h, typename Ty::T* buffer) {
  using T = typename Ty::T;
  if constexpr (Ty::type == Type::kMask) {
    const uint32_t bits = o.kind == Kind::kConst ? o.row[h * kRow] : w.sgpr[o.reg + h];
    ROCM_SD_LANES buffer[l] = bits >> l & 1;
    return buffer;
  } else if constexpr (kBits<Ty> == 64) {
    alignas(64) uint32_t b0[kRow], b1[kRow];
    const uint32_t* low = raw_row(w, o, h, 0, b0);
    const uint32_t* high = raw_row(w, o, h, 1, b1);
    const uint64_t clear = o.abs ? ~(1ull << 63) : ~0ull, flip = o.neg ? 1ull << 63 : 0;
    ROCM_SD_LANES {
      const uint64_t bits = low[l] | static_cast<uint64_t>(high[l]) << 32;
      buffer[l] = cast<T>((bits & clear) ^ flip);
    }
    if constexpr (kFlushIn<Ty> != 0)
      if (w.modes & kFlushIn<Ty>) [[unlikely]]
        ROCM_SD_LANES buffer[l] = cast<T>(flush_double(cast<uint64_t>(buffer[l])));
    return buffer;
  } else if constexpr (kBits<Ty> == 16) {
    alignas(64) uint32_t bits[kRow];
    if (o.sdwa) {
      const uint32_t* raw = raw_row(w, o, h, 0, bits);
      sdwa_row(o, raw, bits);
    } else {
      half_row(w, o, h, o.half & 1, bits);
    }
    if (o.neg || o.abs) [[unlikely]] {
      const uint32_t clear = o.abs ? 0x7fff : 0xffff, flip = o.neg ? 0x8000 : 0;
      ROCM_SD_LANES bits[l] = ((bits[l] & clear) ^ flip) & 0xffff;
    }
    if constexpr (kIsFloat<Ty>) {
      if (w.modes & kFlushIn<Ty>) [[unlikely]]
        ROCM_SD_LANES bits[l] = flush_half(bits[l]);
      ROCM_SD_LANES buffer[l] = half_to_float(bits[l]);
    } else if constexpr (static_cast<T>(-1) < 0) {
      ROCM_SD_LANES buffer[l] = static_cast<int16_t>(bits[l]);
    } else {
      ROCM_SD_LANES buffer[l] = bits[l] & 0xffff;
    }
    return buffer;
  } else {
    uint32_t* words = reinterpret_cast<uint32_t*>(buffer);
    const uint32_t* raw = raw_row(w, o, h, 0, words);
    const bool flushed = kFlushIn<Ty> != 0 && w.modes & kFlushIn<Ty>;
    if (!(o.modified || flushed)) [[likely]]
      return reinterpret_cast<const T*>(raw);
    if (o.sdwa) {
      sdwa_row(o, raw, words);
      raw = words;
    }
    const uint32_t clear = o.abs ? 0x7fffffff : 0xffffffff, flip = o.neg ? 0x80000000 : 0;
    ROCM_SD_LANES words[l] = (raw[l] & clear) ^ flip;
    if (flushed) ROCM_SD_LANES words[l] = flush_single(words[l]);
    return buffer;
  }
}

// ---- writing ----

inline void store_row(Wave& w, uint32_t reg, uint32_t h, const uint32_t* value) {
  uint32_t* row = vgpr(w, reg, h);
  const uint32_t exec = exec_of(w, h);
  if (exec == 0xffffffff) [[likely]] {
    ROCM_SD_LANES row[l] = value[l];
  } else {
    ROCM_SD_LANES row[l] = (exec >> l & 1) ? value[l] : row[l];
  }
}

// Output modifiers of float results: times 2, times 4, half, where the mode obeys them (`omod`, a bit of
// Modes; -0 becomes 0); then clamped to 0..1 (NaN becomes 0 unless the mode keeps it).
template <class T>
inline void modify_result(const Wave& w, const Inst& in, uint32_t omod, T* r) {
  const T factor = in.omod == 1 ? T(2) : in.omod == 2 ? T(4) : in.omod == 3 ? T(0.5) : T(1);
  if (in.omod && w.modes & omod) ROCM_SD_LANES r[l] = r[l] * factor + T(0);
  if (!(in.flags & kClamp)) return;
  const bool keeps_nan = w.modes & kClampKeepsNan;
  ROCM_SD_LANES {
    const T clamped = r[l] > T(0) ? (r[l] < T(1) ? r[l] : T(1)) : T(0);
    r[l] = keeps_nan && r[l] != r[l] ? r[l] : clamped;
  }
}

// Float results are rounded to f16 and packed, denormals flushed where the mode says so.
inline void halves_of(const Wave& w, const float* r, uint32_t* bits) {
  ROCM_SD_LANES bits[l] = float_to_half(r[l]);
  if (w.modes & kFlushOut16) [[unlikely]]
    ROCM_SD_LANES bits[l] = flush_half(bits[l]);
}
inline void flush_result(const Wave& w, float* r) {
  if (w.modes & kFlushOut32) [[unlikely]]
    ROCM_SD_LANES r[l] = cast<float>(flush_single(cast<uint32_t>(r[l])));
}

// Writes 16 bits a lane into one half of a register; the other half stays (gfx10 and later) or is cleared.
inline void store_half(Wave& w, const Inst& in, uint32_t h, const uint32_t* bits) {
  alignas(64) uint32_t merged[kRow];
  const uint32_t* row = vgpr(w, in.dst.reg, h);
  const uint32_t shift = in.dst_half ? 16 : 0;
  const uint32_t keep = in.flags & kZeroHigh && !in.dst_half ? 0 : 0xffff0000u >> shift;
  ROCM_SD_LANES merged[l] = (row[l] & keep) | (bits[l] & 0xffff) << shift;
  store_row(w, in.dst.reg, h, merged);
}

// Writes the results r of half h; r is changed by output modifiers.
template <class Ty>
inline void store_result(Wave& w, const Inst& in, uint32_t h, typename Ty::T* r) {
  if constexpr (kIsFloat<Ty>)
    if (in.omod | (in.flags & kClamp)) [[unlikely]]
      modify_result(w, in, kSame<Ty, F32> ? kOmod32 : kOmod16, r);
  if constexpr (kSame<Ty, F32>) flush_result(w, r);
  if constexpr (kSame<Ty, F64>)
    if (w.modes & kFlushOut16) [[unlikely]]
      ROCM_SD_LANES r[l] = cast<double>(flush_double(cast<uint64_t>(r[l])));
  if constexpr (kBits<Ty> == 32) {
    store_row(w, in.dst.reg, h, reinterpret_cast<const uint32_t*>(r));
  } else if constexpr (kBits<Ty> == 64) {
    alignas(64) uint32_t low[kRow], high[kRow];
    ROCM_SD_LANES {
      const uint64_t bits = cast<uint64_t>(r[l]);
      low[l] = static_cast<uint32_t>(bits);
      high[l] = static_cast<uint32_t>(bits >> 32);
    }
    store_row(w, in.dst.reg, h, low);
    store_row(w, in.dst.reg + 1, h, high);
  } else {
    alignas(64) uint32_t bits[kRow];
    if constexpr (kIsFloat<Ty>) {
      halves_of(w, r, bits);
    } else {
      ROCM_SD_LANES bits[l] = static_cast<uint32_t>(r[l]);
    }
    store_half(w, in, h, bits);
  }
}

// ---- the shape of an ordinary vector operation: D = f(S...) in every lane ----

template <class Ty>
struct Buffer {
  alignas(64) typename Ty::T lane[kRow];
};

template <class F, class D, class A>
void vector1(Wave& w, const Inst& in) {
  for (uint32_t h = 0; h < w.halves; ++h) {
    if (!exec_of(w, h)) continue;
    Buffer<A> ba;
    Buffer<D> r;
    const auto* a = fetch<A>(w, in.src[0], h, ba.lane);
    ROCM_SD_LANES r.lane[l] = F{}(a[l]);
    store_result<D>(w, in, h, r.lane);
  }
}
template <class F, class D, class A, class B>
void vector2(Wave& w, const Inst& in) {
  for (uint32_t h = 0; h < w.halves; ++h) {
    if (!exec_of(w, h)) continue;
    Buffer<A> ba;
    Buffer<B> bb;
    Buffer<D> r;
    const auto* a = fetch<A>(w, in.src[0], h, ba.lane);
    const auto* b = fetch<B>(w, in.src[1], h, bb.lane);
    ROCM_SD_LANES r.lane[l] = F{}(a[l], b[l]);
    store_result<D>(w, in, h, r.lane);
  }
}
template <class F, class D, class A, class B, class C>
void vector3(Wave& w, const Inst& in) {
  for (uint32_t h = 0; h < w.halves; ++h) {
    if (!exec_of(w, h)) continue;
    Buffer<A> ba;
    Buffer<B> bb;
    Buffer<C> bc;
    Buffer<D> r;
    const auto* a = fetch<A>(w, in.src[0], h, ba.lane);
    const auto* b = fetch<B>(w, in.src[1], h, bb.lane);
    const auto* c = fetch<C>(w, in.src[2], h, bc.lane);
    ROCM_SD_LANES r.lane[l] = F{}(a[l], b[l], c[l]);
    store_result<D>(w, in, h, r.lane);
  }
}

template <class D, class A, class F>
constexpr Operation op1(const char* name, F, Class cls = Class::kValu) {
  return {name, &vector1<F, D, A>, cls, 1, 1, false, D::type, {A::type}};
}
template <class D, class A, class B, class F>
constexpr Operation op2(const char* name, F, Class cls = Class::kValu) {
  return {name, &vector2<F, D, A, B>, cls, 1, 2, false, D::type, {A::type, B::type}};
}
template <class D, class A, class B, class C, class F>
constexpr Operation op3(const char* name, F, Class cls = Class::kValu) {
  return {name, &vector3<F, D, A, B, C>, cls, 1, 3, false, D::type, {A::type, B::type, C::type}};
}
// D = f(A, B, D)
template <class D, class A, class B, class F>
constexpr Operation op_acc(const char* name, F, Class cls = Class::kValu) {
  return {name, &vector3<F, D, A, B, D>, cls, 1, 2, true, D::type, {A::type, B::type, D::type}};
}

}  // namespace ROCM_SD_ISA
}  // namespace rocm_sd::emu
