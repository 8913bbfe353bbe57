// Vector operations that use masks (selects, carries, scaled division) or move data between lanes.
#include "emulator/lane_math.hpp"
#include "emulator/operations.hpp"

namespace rocm_sd::emu {
namespace ROCM_SD_ISA {
namespace {

using u32 = uint32_t;
using i32 = int32_t;
using u64 = uint64_t;
using i64 = int64_t;

// The scalar result of an operation that has a vector result as well. It is written when both halves of a
// wave are done, since a source may be a part of it.
struct MaskResult {
  u32 bits[2] = {};
  void set(const Wave& w, uint32_t h, const u32* flag) {
    u32 all = 0;
    for (u32 l = 0; l < kRow; ++l) all |= (flag[l] & 1) << l;
    bits[h] = all & exec_of(w, h);
  }
  void store(Wave& w, const Inst& in) const {
    for (uint32_t h = 0; h < w.halves; ++h) w.sgpr[in.sdst.reg + h] = bits[h];
  }
};

// a +- b +- carry: F gives the 33-bit result, whose bit 32 is the carry or borrow.
template <class F, bool kCarryIn>
void carry(Wave& w, const Inst& in) {
  MaskResult mask;
  for (uint32_t h = 0; h < w.halves; ++h) {
    if (!exec_of(w, h)) continue;
    Buffer<B32> ba, bb, bc, r, flag;
    const u32* a = fetch<B32>(w, in.src[0], h, ba.lane);
    const u32* b = fetch<B32>(w, in.src[1], h, bb.lane);
    if constexpr (kCarryIn) {
      fetch<Mask>(w, in.src[2], h, bc.lane);
    } else {
      ROCM_SD_LANES bc.lane[l] = 0;
    }
    ROCM_SD_LANES {
      const u64 wide = F{}(static_cast<u64>(a[l]), static_cast<u64>(b[l]), static_cast<u64>(bc.lane[l]));
      r.lane[l] = static_cast<u32>(wide);
      flag.lane[l] = static_cast<u32>(wide >> 32);
    }
    if (in.flags & kClamp) ROCM_SD_LANES r.lane[l] = flag.lane[l] & 1 ? in.aux : r.lane[l];
    store_row(w, in.dst.reg, h, r.lane);
    mask.set(w, h, flag.lane);
  }
  mask.store(w, in);
}
constexpr auto plus = [](u64 a, u64 b, u64 c) { return a + b + c; };
constexpr auto minus = [](u64 a, u64 b, u64 c) { return a - b - c; };
constexpr auto minus_reversed = [](u64 a, u64 b, u64 c) { return b - a - c; };

template <class Factor>
void mad64(Wave& w, const Inst& in) {
  MaskResult mask;
  for (uint32_t h = 0; h < w.halves; ++h) {
    if (!exec_of(w, h)) continue;
    Buffer<Factor> ba, bb;
    Buffer<B64> bc, r;
    Buffer<B32> flag;
    const auto* a = fetch<Factor>(w, in.src[0], h, ba.lane);
    const auto* b = fetch<Factor>(w, in.src[1], h, bb.lane);
    const u64* c = fetch<B64>(w, in.src[2], h, bc.lane);
    constexpr bool kSigned = static_cast<typename Factor::T>(-1) < 0;
    ROCM_SD_LANES {
      const u64 product = kSigned ? static_cast<u64>(static_cast<i64>(a[l]) * static_cast<i64>(b[l]))
                                  : static_cast<u64>(a[l]) * static_cast<u64>(b[l]);
      const u64 sum = product + c[l];
      r.lane[l] = sum;
      const bool overflow = kSigned ? static_cast<i64>((product ^ sum) & (c[l] ^ sum)) < 0 : sum < product;
      flag.lane[l] = overflow ? 1 : 0;
    }
    store_result<B64>(w, in, h, r.lane);
    mask.set(w, h, flag.lane);
  }
  mask.store(w, in);
}

// ---- division: v_div_scale brings operands into range, v_div_fmas undoes it ----

template <class T>
struct Division;
template <>
struct Division<float> {
  static constexpr int kFar = 96, kScale = 64, kTiny = 23, kBias = 127;
  static int exponent(float x) { return static_cast<int>(cast<u32>(x) >> 23 & 0xff); }
};
template <>
struct Division<double> {
  static constexpr int kFar = 768, kScale = 128, kTiny = 53, kBias = 1023;
  static int exponent(double x) { return static_cast<int>(cast<u64>(x) >> 52 & 0x7ff); }
};

template <class T>
inline bool is_denormal(T x) {
  return x != 0 && Division<T>::exponent(x) == 0;
}

// s0 is the one to scale: the denominator s1 or the numerator s2.
template <class T>
inline T div_scale(T s0, T s1, T s2, u32& flag) {
  using D = Division<T>;
  flag = 0;
  const bool is_denominator = s0 == s1;
  if (s2 == 0 || s1 == 0) return static_cast<T>(kNan);
  const T quotient = s2 / s1, inverse = T(1) / s1;
  if (D::exponent(s2) - D::exponent(s1) >= D::kFar) {  // the quotient may overflow
    flag = 1;
    return is_denominator ? ldexp_lane(s0, D::kScale) : s0;
  }
  if (is_denormal(s1)) return ldexp_lane(s0, D::kScale);
  const bool tiny = is_denormal(quotient) || quotient == 0;
  if (is_denormal(inverse) && tiny) {
    flag = 1;
    return is_denominator ? ldexp_lane(s0, -D::kScale) : s0;
  }
  if (is_denormal(inverse)) return ldexp_lane(s0, -D::kScale);
  if (tiny) {
    flag = 1;
    return s0 == s2 ? ldexp_lane(s0, D::kScale) : s0;
  }
  if (D::exponent(s2) <= D::kTiny) return ldexp_lane(s0, D::kScale);
  return s0;
}

template <class Ty>
void scale(Wave& w, const Inst& in) {
  MaskResult mask;
  for (uint32_t h = 0; h < w.halves; ++h) {
    if (!exec_of(w, h)) continue;
    Buffer<Ty> b0, b1, b2, r;
    Buffer<B32> flag;
    const auto* s0 = fetch<Ty>(w, in.src[0], h, b0.lane);
    const auto* s1 = fetch<Ty>(w, in.src[1], h, b1.lane);
    const auto* s2 = fetch<Ty>(w, in.src[2], h, b2.lane);
    for (u32 l = 0; l < kRow; ++l) r.lane[l] = div_scale(s0[l], s1[l], s2[l], flag.lane[l]);
    store_result<Ty>(w, in, h, r.lane);
    mask.set(w, h, flag.lane);
  }
  mask.store(w, in);
}

template <class Ty>
void fmas(Wave& w, const Inst& in) {
  using T = typename Ty::T;
  using D = Division<T>;
  for (uint32_t h = 0; h < w.halves; ++h) {
    if (!exec_of(w, h)) continue;
    Buffer<Ty> b0, b1, b2, r;
    const auto* a = fetch<Ty>(w, in.src[0], h, b0.lane);
    const auto* b = fetch<Ty>(w, in.src[1], h, b1.lane);
    const auto* c = fetch<Ty>(w, in.src[2], h, b2.lane);
    const u32 vcc = w.sgpr[kVcc + h];
    for (u32 l = 0; l < kRow; ++l) {
      const T value = sizeof(T) == 8 ? static_cast<T>(__builtin_fma(a[l], b[l], c[l]))
                                     : static_cast<T>(__builtin_fmaf(a[l], b[l], c[l]));
      const int by = D::exponent(c[l]) > D::kBias ? D::kScale : -D::kScale;
      r.lane[l] = vcc >> l & 1 ? ldexp_lane(value, by) : value;
    }
    store_result<Ty>(w, in, h, r.lane);
  }
}

// ---- between lanes ----

u32 lane_value(Wave& w, const Operand& o, u32 lane) {
  if (o.kind == Kind::kVgpr) return vgpr(w, o.reg, lane >> 5)[lane & 31];
  return scalar(w, o);
}
u32 first_active(const Wave& w) {
  if (w.sgpr[kExec]) return static_cast<u32>(__builtin_ctz(w.sgpr[kExec]));
  if (w.halves == 2 && w.sgpr[kExec + 1]) return 32 + static_cast<u32>(__builtin_ctz(w.sgpr[kExec + 1]));
  return 0;
}
void readfirstlane(Wave& w, const Inst& in) {
  w.sgpr[in.dst.reg] = lane_value(w, in.src[0], first_active(w));
}
void readlane(Wave& w, const Inst& in) {
  w.sgpr[in.dst.reg] = lane_value(w, in.src[0], scalar(w, in.src[1]) & (w.lanes - 1));
}
void writelane(Wave& w, const Inst& in) {
  const u32 lane = scalar(w, in.src[1]) & (w.lanes - 1);
  vgpr(w, in.dst.reg, lane >> 5)[lane & 31] = scalar(w, in.src[0]);
}

template <bool kHigh>
void mbcnt(Wave& w, const Inst& in) {
  for (uint32_t h = 0; h < w.halves; ++h) {
    if (!exec_of(w, h)) continue;
    Buffer<B32> ba, bb, r;
    const u32* a = fetch<B32>(w, in.src[0], h, ba.lane);
    const u32* b = fetch<B32>(w, in.src[1], h, bb.lane);
    ROCM_SD_LANES {
      const u32 below = (1u << l) - 1;
      const u32 mask = kHigh ? (h == 0 ? 0 : below) : (h == 0 ? below : 0xffffffff);
      r.lane[l] = static_cast<u32>(__builtin_popcount(a[l] & mask)) + b[l];
    }
    store_row(w, in.dst.reg, h, r.lane);
  }
}

// v_permlane16 and v_permlanex16: lane i of a row of 16 reads the lane that nibble i of the selects names,
// from its own row or from the neighbour. op_sel: fetch inactive lanes, zero instead of keeping.
template <bool kOtherRow, bool kPerLane>
void permlane16(Wave& w, const Inst& in) {
  const u64 selects = kPerLane ? 0 : scalar(w, in.src[1]) | static_cast<u64>(scalar(w, in.src[2])) << 32;
  const bool fetch_inactive = in.aux & 1, bound_zero = in.aux & 2;
  for (uint32_t h = 0; h < w.halves; ++h) {
    const u32 exec = exec_of(w, h);
    if (!exec) continue;
    Buffer<B32> ba, bs, r;
    const u32* a = raw_row(w, in.src[0], h, 0, ba.lane);
    const u32* s = kPerLane ? raw_row(w, in.src[1], h, 0, bs.lane) : nullptr;
    const u32* old = vgpr(w, in.dst.reg, h);
    for (u32 l = 0; l < kRow; ++l) {
      const u32 pick = kPerLane ? s[l] & 15 : static_cast<u32>(selects >> (4 * (l & 15))) & 15;
      const u32 from = ((l & 16) ^ (kOtherRow ? 16 : 0)) + pick;
      const bool readable = fetch_inactive || (exec >> from & 1);
      r.lane[l] = readable ? a[from] : bound_zero ? 0 : old[l];
    }
    store_row(w, in.dst.reg, h, r.lane);
  }
}
void permlane64(Wave& w, const Inst& in) {  // swaps the halves of a wave64
  if (w.halves == 1) return;
  Buffer<B32> low, high;
  const u32* a = vgpr(w, in.src[0].reg, 0);
  const u32* b = vgpr(w, in.src[0].reg, 1);
  ROCM_SD_LANES low.lane[l] = b[l];
  ROCM_SD_LANES high.lane[l] = a[l];
  store_row(w, in.dst.reg, 0, low.lane);
  store_row(w, in.dst.reg, 1, high.lane);
}
void swap(Wave& w, const Inst& in) {
  for (uint32_t h = 0; h < w.halves; ++h) {
    if (!exec_of(w, h)) continue;
    Buffer<B32> a, b;
    const u32* x = vgpr(w, in.dst.reg, h);
    const u32* y = vgpr(w, in.src[0].reg, h);
    ROCM_SD_LANES a.lane[l] = x[l];
    ROCM_SD_LANES b.lane[l] = y[l];
    store_row(w, in.dst.reg, h, b.lane);
    store_row(w, in.src[0].reg, h, a.lane);
  }
}
void nop(Wave&, const Inst&) {}

constexpr auto kV = Class::kValu;
constexpr Type kB = Type::kB32, kM = Type::kMask;

template <class F>
constexpr Operation add_carry(const char* name, F) {
  return {name, &carry<F, false>, kV, 2, 2, false, kB, {kB, kB}};
}
template <class F>
constexpr Operation add_carry_in(const char* name, F) {
  return {name, &carry<F, true>, kV, 2, 3, false, kB, {kB, kB, kM}};
}

constexpr Operation kTable[] = {
    op3<B32, B32, B32, Mask>("v_cndmask_b32", [](u32 a, u32 b, u32 m) { return m ? b : a; }),
    op3<B16, B16, B16, Mask>("v_cndmask_b16", [](u32 a, u32 b, u32 m) { return m ? b : a; }),
    add_carry("v_add_co_u32", plus),
    add_carry("v_sub_co_u32", minus),
    add_carry("v_subrev_co_u32", minus_reversed),
    add_carry_in("v_add_co_ci_u32", plus),
    add_carry_in("v_sub_co_ci_u32", minus),
    add_carry_in("v_subrev_co_ci_u32", minus_reversed),
    {"v_mad_u64_u32", &mad64<B32>, kV, 2, 3, false, Type::kB64, {kB, kB, Type::kB64}},
    {"v_mad_i64_i32", &mad64<I32>, kV, 2, 3, false, Type::kB64, {kB, kB, Type::kB64}},
    {"v_div_scale_f32", &scale<F32>, kV, 2, 3, false, Type::kF32, {Type::kF32, Type::kF32, Type::kF32}},
    {"v_div_scale_f64", &scale<F64>, kV, 2, 3, false, Type::kF64, {Type::kF64, Type::kF64, Type::kF64}},
    {"v_div_fmas_f32", &fmas<F32>, kV, 1, 3, false, Type::kF32, {Type::kF32, Type::kF32, Type::kF32}},
    {"v_div_fmas_f64", &fmas<F64>, kV, 1, 3, false, Type::kF64, {Type::kF64, Type::kF64, Type::kF64}},
    {"v_readfirstlane_b32", &readfirstlane, kV, 1, 1, false, kB, {kB}},
    {"v_readlane_b32", &readlane, kV, 1, 2, false, kB, {kB, kB}},
    {"v_writelane_b32", &writelane, kV, 1, 2, false, kB, {kB, kB}},
    {"v_mbcnt_lo_u32_b32", &mbcnt<false>, kV, 1, 2, false, kB, {kB, kB}},
    {"v_mbcnt_hi_u32_b32", &mbcnt<true>, kV, 1, 2, false, kB, {kB, kB}},
    {"v_permlane16_b32", &permlane16<false, false>, kV, 1, 3, false, kB, {kB, kB, kB}},
    {"v_permlanex16_b32", &permlane16<true, false>, kV, 1, 3, false, kB, {kB, kB, kB}},
    {"v_permlane16_var_b32", &permlane16<false, true>, kV, 1, 2, false, kB, {kB, kB}},
    {"v_permlanex16_var_b32", &permlane16<true, true>, kV, 1, 2, false, kB, {kB, kB}},
    {"v_permlane64_b32", &permlane64, kV, 1, 1, false, kB, {kB}},
    {"v_swap_b32", &swap, kV, 1, 1, false, kB, {kB}},
    {"v_nop", &nop, kV, 0, 0, false, Type::kNone, {}},
};

}  // namespace

Operations valu_lane() { return {kTable, sizeof(kTable) / sizeof(kTable[0])}; }

}  // namespace ROCM_SD_ISA
}  // namespace rocm_sd::emu
