// Vector integer arithmetic, shifts and bit operations of 16, 32 and 64 bits.
#include "emulator/lane_math.hpp"
#include "emulator/operations.hpp"

namespace rocm_sd::emu {
namespace ROCM_SD_ISA {
namespace {

using u32 = uint32_t;
using i32 = int32_t;
using u64 = uint64_t;
using i64 = int64_t;

constexpr auto copy = [](auto a) { return a; };
constexpr auto add = [](auto a, auto b) { return a + b; };
constexpr auto sub = [](auto a, auto b) { return a - b; };
constexpr auto subrev = [](auto a, auto b) { return b - a; };
constexpr auto mul = [](u32 a, u32 b) { return a * b; };
constexpr auto least = [](auto a, auto b) { return a < b ? a : b; };
constexpr auto most = [](auto a, auto b) { return a > b ? a : b; };
constexpr auto least3 = [](auto a, auto b, auto c) { return least(least(a, b), c); };
constexpr auto most3 = [](auto a, auto b, auto c) { return most(most(a, b), c); };
constexpr auto middle = [](auto a, auto b, auto c) { return most(least(a, b), least(most(a, b), c)); };
constexpr auto minmax = [](auto a, auto b, auto c) { return most(least(a, b), c); };
constexpr auto maxmin = [](auto a, auto b, auto c) { return least(most(a, b), c); };
constexpr auto both = [](u32 a, u32 b) { return a & b; };
constexpr auto either = [](u32 a, u32 b) { return a | b; };
constexpr auto differ = [](u32 a, u32 b) { return a ^ b; };
constexpr auto complement = [](u32 a) { return ~a; };

inline i32 low24(i32 a) { return static_cast<i32>(static_cast<u32>(a) << 8) >> 8; }
inline u32 reverse_bits(u32 a) {
  a = (a >> 1 & 0x55555555) | (a & 0x55555555) << 1;
  a = (a >> 2 & 0x33333333) | (a & 0x33333333) << 2;
  a = (a >> 4 & 0x0f0f0f0f) | (a & 0x0f0f0f0f) << 4;
  return __builtin_bswap32(a);
}
inline u32 select_byte(u64 data, u32 selector) {
  if (selector >= 13) return 0xff;
  if (selector == 12) return 0;
  if (selector >= 8) return data >> ((selector - 8) * 16 + 15) & 1 ? 0xff : 0;
  return data >> (selector * 8) & 0xff;
}
inline u32 sad_u16(u32 a, u32 b, u32 c) {
  const u32 al = a & 0xffff, ah = a >> 16, bl = b & 0xffff, bh = b >> 16;
  return (al > bl ? al - bl : bl - al) + (ah > bh ? ah - bh : bh - ah) + c;
}
// Bytes where the reference, b, is 0 do not count.
inline u32 msad_u8(u32 a, u32 b, u32 c) {
  for (int i = 0; i < 32; i += 8) {
    const u32 x = a >> i & 0xff, y = b >> i & 0xff;
    c += y == 0 ? 0 : x > y ? x - y : y - x;
  }
  return c;
}
// The mean of each byte, rounded up where the addend's lowest bit of that byte is set.
inline u32 lerp_u8(u32 a, u32 b, u32 c) {
  u32 out = 0;
  for (int i = 0; i < 32; i += 8) out |= ((a >> i & 0xff) + (b >> i & 0xff) + (c >> i & 1)) >> 1 << i;
  return out;
}
inline u32 sad_u8(u32 a, u32 b, u32 c) {
  for (int i = 0; i < 32; i += 8) {
    const i32 d = static_cast<i32>(a >> i & 0xff) - static_cast<i32>(b >> i & 0xff);
    c += static_cast<u32>(d < 0 ? -d : d);
  }
  return c;
}
inline u32 clamp_u(i64 value, i64 limit) {
  return static_cast<u32>(value < 0 ? 0 : value > limit ? limit : value);
}
inline i32 clamp_s(i64 value, i64 limit) {
  return static_cast<i32>(value < -limit - 1 ? -limit - 1 : value > limit ? limit : value);
}

constexpr Operation kTable[] = {
    op1<B32, B32>("v_mov_b32", copy),
    op1<B64, B64>("v_mov_b64", copy),
    op1<B32, B32>("v_not_b32", complement),
    op1<B32, B32>("v_bfrev_b32", [](u32 a) { return reverse_bits(a); }),
    op1<B32, B32>("v_ffbh_u32", [](u32 a) { return a ? static_cast<u32>(__builtin_clz(a)) : ~0u; }),
    op1<B32, B32>("v_ffbl_b32", [](u32 a) { return a ? static_cast<u32>(__builtin_ctz(a)) : ~0u; }),
    op1<B32, I32>("v_ffbh_i32",
                  [](i32 a) {
                    const u32 x = static_cast<u32>(a ^ (a >> 31));
                    return a == 0 || a == -1 ? ~0u : static_cast<u32>(__builtin_clz(x));
                  }),
    op2<B32, B32, B32>("v_add_nc_u32", add),
    op2<B32, B32, B32>("v_sub_nc_u32", sub),
    op2<B32, B32, B32>("v_subrev_nc_u32", subrev),
    op2<B32, B32, B32>("v_add_nc_i32", add),
    op2<B32, B32, B32>("v_sub_nc_i32", sub),
    op2<B32, B32, B32>("v_add_nc_u32_clamp",
                       [](u32 a, u32 b) { return clamp_u(static_cast<i64>(a) + b, 0xffffffff); }),
    op2<B32, B32, B32>("v_sub_nc_u32_clamp",
                       [](u32 a, u32 b) { return clamp_u(static_cast<i64>(a) - b, 0xffffffff); }),
    op2<I32, I32, I32>("v_add_nc_i32_clamp",
                       [](i32 a, i32 b) { return clamp_s(static_cast<i64>(a) + b, 0x7fffffff); }),
    op2<I32, I32, I32>("v_sub_nc_i32_clamp",
                       [](i32 a, i32 b) { return clamp_s(static_cast<i64>(a) - b, 0x7fffffff); }),
    op2<B32, B32, B32>("v_mul_lo_u32", mul),
    op2<B32, B32, B32>("v_mul_hi_u32",
                       [](u32 a, u32 b) { return static_cast<u32>(static_cast<u64>(a) * b >> 32); }),
    op2<I32, I32, I32>("v_mul_hi_i32",
                       [](i32 a, i32 b) { return static_cast<i32>(static_cast<i64>(a) * b >> 32); }),
    op2<B32, B32, B32>("v_mul_u32_u24", [](u32 a, u32 b) { return (a & 0xffffff) * (b & 0xffffff); }),
    op2<B32, I32, I32>("v_mul_i32_i24",
                       [](i32 a, i32 b) { return static_cast<u32>(low24(a)) * static_cast<u32>(low24(b)); }),
    op2<B32, B32, B32>(
        "v_mul_hi_u32_u24",
        [](u32 a, u32 b) { return static_cast<u32>(static_cast<u64>(a & 0xffffff) * (b & 0xffffff) >> 32); }),
    op2<B32, I32, I32>(
        "v_mul_hi_i32_i24",
        [](i32 a, i32 b) { return static_cast<u32>(static_cast<i64>(low24(a)) * low24(b) >> 32); }),
    op3<B32, B32, B32, B32>("v_mad_u32_u24",
                            [](u32 a, u32 b, u32 c) { return (a & 0xffffff) * (b & 0xffffff) + c; }),
    op3<B32, I32, I32, B32>(
        "v_mad_i32_i24",
        [](i32 a, i32 b, u32 c) { return static_cast<u32>(low24(a)) * static_cast<u32>(low24(b)) + c; }),
    op3<B32, B16, B16, B32>("v_mad_u32_u16", [](u32 a, u32 b, u32 c) { return a * b + c; }),
    op3<B32, I16, I16, B32>("v_mad_i32_i16", [](i32 a, i32 b, u32 c) { return static_cast<u32>(a * b) + c; }),
    op2<B32, B32, B32>("v_and_b32", both),
    op2<B32, B32, B32>("v_or_b32", either),
    op2<B32, B32, B32>("v_xor_b32", differ),
    op2<B32, B32, B32>("v_xnor_b32", [](u32 a, u32 b) { return ~(a ^ b); }),
    op2<B32, B32, B32>("v_lshlrev_b32", [](u32 a, u32 b) { return b << (a & 31); }),
    op2<B32, B32, B32>("v_lshrrev_b32", [](u32 a, u32 b) { return b >> (a & 31); }),
    op2<I32, B32, I32>("v_ashrrev_i32", [](u32 a, i32 b) { return b >> (a & 31); }),
    op2<B64, B32, B64>("v_lshlrev_b64", [](u32 a, u64 b) { return b << (a & 63); }),
    op2<B64, B32, B64>("v_lshrrev_b64", [](u32 a, u64 b) { return b >> (a & 63); }),
    op2<I64, B32, I64>("v_ashrrev_i64", [](u32 a, i64 b) { return b >> (a & 63); }),
    op2<I32, I32, I32>("v_min_i32", least),
    op2<I32, I32, I32>("v_max_i32", most),
    op2<B32, B32, B32>("v_min_u32", least),
    op2<B32, B32, B32>("v_max_u32", most),
    op3<I32, I32, I32, I32>("v_min3_i32", least3),
    op3<I32, I32, I32, I32>("v_max3_i32", most3),
    op3<I32, I32, I32, I32>("v_med3_i32", middle),
    op3<B32, B32, B32, B32>("v_min3_u32", least3),
    op3<B32, B32, B32, B32>("v_max3_u32", most3),
    op3<B32, B32, B32, B32>("v_med3_u32", middle),
    op3<I32, I32, I32, I32>("v_minmax_i32", minmax),
    op3<I32, I32, I32, I32>("v_maxmin_i32", maxmin),
    op3<B32, B32, B32, B32>("v_minmax_u32", minmax),
    op3<B32, B32, B32, B32>("v_maxmin_u32", maxmin),
    op3<B32, B32, B32, B32>("v_bfe_u32",
                            [](u32 a, u32 b, u32 c) { return a >> (b & 31) & ((1u << (c & 31)) - 1); }),
    op3<I32, I32, B32, B32>("v_bfe_i32",
                            [](i32 a, u32 b, u32 c) {
                              const u32 offset = b & 31, width = c & 31;
                              const u32 up = offset + width < 32 ? 32 - offset - width : 0;
                              const i32 field = static_cast<i32>(static_cast<u32>(a) << up) >> (offset + up);
                              return width == 0 ? 0 : field;
                            }),
    op3<B32, B32, B32, B32>("v_bfi_b32", [](u32 a, u32 b, u32 c) { return (a & b) | (~a & c); }),
    op2<B32, B32, B32>("v_bfm_b32", [](u32 a, u32 b) { return ((1u << (a & 31)) - 1) << (b & 31); }),
    op3<B32, B32, B32, B32>(
        "v_alignbit_b32",
        [](u32 a, u32 b, u32 c) { return static_cast<u32>((static_cast<u64>(a) << 32 | b) >> (c & 31)); }),
    op3<B32, B32, B32, B32>("v_alignbyte_b32",
                            [](u32 a, u32 b, u32 c) {
                              return static_cast<u32>((static_cast<u64>(a) << 32 | b) >> (8 * (c & 3)));
                            }),
    op3<B32, B32, B32, B32>("v_perm_b32",
                            [](u32 a, u32 b, u32 c) {
                              const u64 data = static_cast<u64>(a) << 32 | b;
                              return select_byte(data, c & 0xff) | select_byte(data, c >> 8 & 0xff) << 8 |
                                     select_byte(data, c >> 16 & 0xff) << 16 |
                                     select_byte(data, c >> 24) << 24;
                            }),
    op3<B32, B32, B32, B32>("v_add3_u32", [](u32 a, u32 b, u32 c) { return a + b + c; }),
    op3<B32, B32, B32, B32>("v_lshl_add_u32", [](u32 a, u32 b, u32 c) { return (a << (b & 31)) + c; }),
    op3<B64, B64, B32, B64>("v_lshl_add_u64", [](u64 a, u32 b, u64 c) { return (a << (b & 7)) + c; }),
    op3<B32, B32, B32, B32>("v_add_lshl_u32", [](u32 a, u32 b, u32 c) { return (a + b) << (c & 31); }),
    op3<B32, B32, B32, B32>("v_lshl_or_b32", [](u32 a, u32 b, u32 c) { return (a << (b & 31)) | c; }),
    op3<B32, B32, B32, B32>("v_and_or_b32", [](u32 a, u32 b, u32 c) { return (a & b) | c; }),
    op3<B32, B32, B32, B32>("v_or3_b32", [](u32 a, u32 b, u32 c) { return a | b | c; }),
    op3<B32, B32, B32, B32>("v_xor3_b32", [](u32 a, u32 b, u32 c) { return a ^ b ^ c; }),
    op3<B32, B32, B32, B32>("v_xad_u32", [](u32 a, u32 b, u32 c) { return (a ^ b) + c; }),
    op2<B32, B32, B32>("v_bcnt_u32_b32",
                       [](u32 a, u32 b) { return static_cast<u32>(__builtin_popcount(a)) + b; }),
    op3<B32, B32, B32, B32>("v_sad_u8", [](u32 a, u32 b, u32 c) { return sad_u8(a, b, c); }),
    op3<B32, B32, B32, B32>("v_sad_hi_u8", [](u32 a, u32 b, u32 c) { return (sad_u8(a, b, 0) << 16) + c; }),
    op3<B32, B32, B32, B32>("v_sad_u16", [](u32 a, u32 b, u32 c) { return sad_u16(a, b, c); }),
    op3<B32, B32, B32, B32>("v_msad_u8", [](u32 a, u32 b, u32 c) { return msad_u8(a, b, c); }),
    op3<B32, B32, B32, B32>("v_lerp_u8", [](u32 a, u32 b, u32 c) { return lerp_u8(a, b, c); }),
    op3<B32, B32, B32, B32>("v_sad_u32", [](u32 a, u32 b, u32 c) { return (a > b ? a - b : b - a) + c; }),

    op1<B16, B16>("v_mov_b16", copy),
    op1<B16, B16>("v_not_b16", complement),
    op2<B16, B16, B16>("v_and_b16", both),
    op2<B16, B16, B16>("v_or_b16", either),
    op2<B16, B16, B16>("v_xor_b16", differ),
    op2<B16, B16, B16>("v_add_nc_u16", add),
    op2<B16, B16, B16>("v_sub_nc_u16", sub),
    op2<B16, B16, B16>("v_subrev_nc_u16", subrev),
    op2<B16, B16, B16>("v_add_nc_i16", add),
    op2<B16, B16, B16>("v_sub_nc_i16", sub),
    op2<B16, B16, B16>("v_add_nc_u16_clamp",
                       [](u32 a, u32 b) { return clamp_u(static_cast<i64>(a) + b, 0xffff); }),
    op2<B16, B16, B16>("v_sub_nc_u16_clamp",
                       [](u32 a, u32 b) { return clamp_u(static_cast<i64>(a) - b, 0xffff); }),
    op2<I16, I16, I16>("v_add_nc_i16_clamp",
                       [](i32 a, i32 b) { return clamp_s(static_cast<i64>(a) + b, 0x7fff); }),
    op2<I16, I16, I16>("v_sub_nc_i16_clamp",
                       [](i32 a, i32 b) { return clamp_s(static_cast<i64>(a) - b, 0x7fff); }),
    op2<B16, B16, B16>("v_mul_lo_u16", mul),
    op2<B16, B16, B16>("v_lshlrev_b16", [](u32 a, u32 b) { return b << (a & 15); }),
    op2<B16, B16, B16>("v_lshrrev_b16", [](u32 a, u32 b) { return b >> (a & 15); }),
    op2<I16, B16, I16>("v_ashrrev_i16", [](u32 a, i32 b) { return b >> (a & 15); }),
    op2<B16, B16, B16>("v_min_u16", least),
    op2<B16, B16, B16>("v_max_u16", most),
    op2<I16, I16, I16>("v_min_i16", least),
    op2<I16, I16, I16>("v_max_i16", most),
    op3<B16, B16, B16, B16>("v_min3_u16", least3),
    op3<B16, B16, B16, B16>("v_max3_u16", most3),
    op3<B16, B16, B16, B16>("v_med3_u16", middle),
    op3<I16, I16, I16, I16>("v_min3_i16", least3),
    op3<I16, I16, I16, I16>("v_max3_i16", most3),
    op3<I16, I16, I16, I16>("v_med3_i16", middle),
    op3<B16, B16, B16, B16>("v_mad_u16", [](u32 a, u32 b, u32 c) { return a * b + c; }),
    op3<B16, B16, B16, B16>("v_mad_i16", [](u32 a, u32 b, u32 c) { return a * b + c; }),
    op2<B32, HalfBits, HalfBits>("v_pack_b32_f16", [](u32 a, u32 b) { return a | b << 16; }),
    op1<B16, B32>("v_sat_pk_u8_i16",
                  [](u32 a) {
                    return clamp_u(static_cast<int16_t>(a), 255) | clamp_u(static_cast<i32>(a) >> 16, 255)
                                                                       << 8;
                  }),
};

}  // namespace

Operations valu_integer() { return {kTable, sizeof(kTable) / sizeof(kTable[0])}; }

}  // namespace ROCM_SD_ISA
}  // namespace rocm_sd::emu
