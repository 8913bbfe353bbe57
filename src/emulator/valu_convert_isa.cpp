// Vector conversions between number formats.
#include "emulator/lane_math.hpp"
#include "emulator/operations.hpp"
#include "emulator/small_floats.hpp"

namespace rocm_sd::emu {
namespace ROCM_SD_ISA {
namespace {

using u32 = uint32_t;
using i32 = int32_t;

constexpr auto same = [](auto a) { return a; };
constexpr auto widen = [](auto a) { return static_cast<float>(a); };
constexpr auto widen64 = [](auto a) { return static_cast<double>(a); };
constexpr auto int32 = [](auto a) { return to_i32(a); };
constexpr auto uint32 = [](auto a) { return to_u32(a); };
constexpr auto rtz = [](float a, float b) {
  return float_to_half_toward_zero(a) | float_to_half_toward_zero(b) << 16;
};

inline u32 norm_i16(float x) {
  return static_cast<u32>(
             to_i16(__builtin_rintf(__builtin_fminf(__builtin_fmaxf(x, -1.0f), 1.0f) * 32767.0f))) &
         0xffff;
}
inline u32 norm_u16(float x) {
  return to_u16(__builtin_rintf(__builtin_fminf(__builtin_fmaxf(x, 0.0f), 1.0f) * 65535.0f));
}

// gfx942 has the FNUZ forms, gfx12 the OCP ones.
template <bool Bf8>
inline float widen_f8(const Inst& in, u32 bits) {
  return in.flags & kGfx9 ? f8_to_float<Bf8, true>(bits) : f8_to_float<Bf8>(bits);
}
template <bool Bf8>
inline u32 narrow_f8(const Inst& in, float value) {
  return in.flags & kGfx9 ? float_to_f8<Bf8, true>(value) : float_to_f8<Bf8>(value);
}

// Two f8 of the low or the high (op_sel) 16 bits to two f32.
template <bool Bf8>
void pk_f32_from_f8(Wave& w, const Inst& in) {
  for (uint32_t h = 0; h < w.halves; ++h) {
    if (!exec_of(w, h)) continue;
    Buffer<B16> pair;
    Buffer<F32> low, high;
    const u32* bits = fetch<B16>(w, in.src[0], h, pair.lane);
    ROCM_SD_LANES {
      low.lane[l] = widen_f8<Bf8>(in, bits[l] & 0xff);
      high.lane[l] = widen_f8<Bf8>(in, bits[l] >> 8 & 0xff);
    }
    store_row(w, in.dst.reg, h, reinterpret_cast<u32*>(low.lane));
    store_row(w, in.dst.reg + 1, h, reinterpret_cast<u32*>(high.lane));
  }
}
// One f8; op_sel or SDWA names the byte.
template <bool Bf8>
void f32_from_f8(Wave& w, const Inst& in) {
  for (uint32_t h = 0; h < w.halves; ++h) {
    if (!exec_of(w, h)) continue;
    alignas(64) u32 buffer[kRow];
    Buffer<F32> r;
    const u32* raw = raw_row(w, in.src[0], h, 0, buffer);
    const u32 byte = in.src[0].sdwa
                         ? (in.src[0].sdwa & 0x7f) == kWord1 ? 2 : ((in.src[0].sdwa & 0x7f) - kByte0) & 3
                         : in.aux & 3;
    ROCM_SD_LANES r.lane[l] = widen_f8<Bf8>(in, raw[l] >> (8 * byte) & 0xff);
    store_result<F32>(w, in, h, r.lane);
  }
}
// Two f32 to two f8 in the low or the high (op_sel) 16 bits of the destination; the other half stays.
template <bool Bf8>
void pk_f8_from_f32(Wave& w, const Inst& in) {
  for (uint32_t h = 0; h < w.halves; ++h) {
    if (!exec_of(w, h)) continue;
    Buffer<F32> ba, bb;
    Buffer<B32> r;
    const float* a = fetch<F32>(w, in.src[0], h, ba.lane);
    const float* b = fetch<F32>(w, in.src[1], h, bb.lane);
    ROCM_SD_LANES r.lane[l] = narrow_f8<Bf8>(in, a[l]) | narrow_f8<Bf8>(in, b[l]) << 8;
    const u32* old = vgpr(w, in.dst.reg, h);
    const u32 shift = in.dst_half ? 16 : 0;
    ROCM_SD_LANES r.lane[l] = (old[l] & (0xffff0000u >> shift)) | r.lane[l] << shift;
    store_row(w, in.dst.reg, h, r.lane);
  }
}

constexpr Operation kTable[] = {
    op1<F32, I32>("v_cvt_f32_i32", widen),
    op1<F32, B32>("v_cvt_f32_u32", widen),
    op1<I32, F32>("v_cvt_i32_f32", int32),
    op1<B32, F32>("v_cvt_u32_f32", uint32),
    op1<F16, F32>("v_cvt_f16_f32", same),
    op1<F32, F16>("v_cvt_f32_f16", same),
    op1<F64, I32>("v_cvt_f64_i32", widen64),
    op1<F64, B32>("v_cvt_f64_u32", widen64),
    op1<I32, F64>("v_cvt_i32_f64", int32),
    op1<B32, F64>("v_cvt_u32_f64", uint32),
    op1<F64, F32>("v_cvt_f64_f32", widen64),
    op1<F32, F64>("v_cvt_f32_f64", widen),
    op1<F16, B16>("v_cvt_f16_u16", widen),
    op1<F16, I16>("v_cvt_f16_i16", widen),
    op1<B16, F16>("v_cvt_u16_f16", [](float a) { return to_u16(a); }),
    op1<I16, F16>("v_cvt_i16_f16", [](float a) { return to_i16(a); }),
    op1<B32, B16>("v_cvt_u32_u16", same),
    op1<I32, I16>("v_cvt_i32_i16", same),
    op1<F32, B32>("v_cvt_f32_ubyte0", [](u32 a) { return static_cast<float>(a & 0xff); }),
    op1<F32, B32>("v_cvt_f32_ubyte1", [](u32 a) { return static_cast<float>(a >> 8 & 0xff); }),
    op1<F32, B32>("v_cvt_f32_ubyte2", [](u32 a) { return static_cast<float>(a >> 16 & 0xff); }),
    op1<F32, B32>("v_cvt_f32_ubyte3", [](u32 a) { return static_cast<float>(a >> 24); }),
    op1<I32, F32>("v_cvt_rpi_i32_f32", [](float a) { return to_i32(__builtin_floorf(a + 0.5f)); }),
    op1<I32, F32>("v_cvt_flr_i32_f32", [](float a) { return to_i32(__builtin_floorf(a)); }),
    op1<F32, B32>("v_cvt_off_f32_i4",
                  [](u32 a) { return static_cast<float>(static_cast<i32>(a << 28) >> 28) * 0.0625f; }),
    op2<B32, F32, F32>("v_cvt_pkrtz_f16_f32", rtz),
    op2<B32, F32, F32>("v_cvt_pknorm_i16_f32",
                       [](float a, float b) { return norm_i16(a) | norm_i16(b) << 16; }),
    op2<B32, F32, F32>("v_cvt_pknorm_u16_f32",
                       [](float a, float b) { return norm_u16(a) | norm_u16(b) << 16; }),
    op2<B32, F32, F32>("v_cvt_pk_i16_f32",
                       [](float a, float b) {
                         return (static_cast<u32>(to_i16(a)) & 0xffff) | static_cast<u32>(to_i16(b)) << 16;
                       }),
    op2<B32, F32, F32>("v_cvt_pk_u16_f32", [](float a, float b) { return to_u16(a) | to_u16(b) << 16; }),
    op2<B32, B32, B32>("v_cvt_pk_u16_u32",
                       [](u32 a, u32 b) { return (a > 65535 ? 65535 : a) | (b > 65535 ? 65535 : b) << 16; }),
    op2<B32, I32, I32>("v_cvt_pk_i16_i32",
                       [](i32 a, i32 b) {
                         a = a > 32767 ? 32767 : a < -32768 ? -32768 : a;
                         b = b > 32767 ? 32767 : b < -32768 ? -32768 : b;
                         return (static_cast<u32>(a) & 0xffff) | static_cast<u32>(b) << 16;
                       }),
    op3<B32, F32, B32, B32>("v_cvt_pk_u8_f32",
                            [](float a, u32 b, u32 c) {
                              const u32 shift = 8 * (b & 3);
                              const u32 v = to_u32(__builtin_fminf(__builtin_rintf(a), 255.0f));
                              return (c & ~(0xffu << shift)) | v << shift;
                            }),
    {"v_cvt_f32_fp8", &f32_from_f8<false>, Class::kValu, 1, 1, false, Type::kF32, {Type::kB32}},
    {"v_cvt_f32_bf8", &f32_from_f8<true>, Class::kValu, 1, 1, false, Type::kF32, {Type::kB32}},
    {"v_cvt_pk_f32_fp8", &pk_f32_from_f8<false>, Class::kValu, 1, 1, false, Type::kPkF32, {Type::kB16}},
    {"v_cvt_pk_f32_bf8", &pk_f32_from_f8<true>, Class::kValu, 1, 1, false, Type::kPkF32, {Type::kB16}},
    {"v_cvt_pk_fp8_f32",
     &pk_f8_from_f32<false>,
     Class::kValu,
     1,
     2,
     false,
     Type::kB16,
     {Type::kF32, Type::kF32}},
    {"v_cvt_pk_bf8_f32",
     &pk_f8_from_f32<true>,
     Class::kValu,
     1,
     2,
     false,
     Type::kB16,
     {Type::kF32, Type::kF32}},
};

}  // namespace

Operations valu_convert() { return {kTable, sizeof(kTable) / sizeof(kTable[0])}; }

}  // namespace ROCM_SD_ISA
}  // namespace rocm_sd::emu
