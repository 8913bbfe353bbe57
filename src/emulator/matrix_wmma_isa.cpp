// WMMA of RDNA3 and RDNA4: D [16,16] = A [16,K] B [K,16] + C.
//
// `g` of `groups` is the sixteen of lanes that a lane is in; row of A, column of B and of C are lane % 16.
//   RDNA3: element i of A and B has k = i, each sixteen holding the same (the first is read);
//          element i of C has row groups * i + g; 16-bit C fills one half of a register.
//   RDNA4: k = i + (K / groups) g; row of C = i + (16 / groups) g; 16-bit C is packed in pairs.
#include "emulator/lane_math.hpp"
#include "emulator/matrix_core.hpp"
#include "emulator/operations.hpp"

namespace rocm_sd::emu {
namespace ROCM_SD_ISA {
namespace {

enum class Result : uint8_t { kF32, kF16, kBf16, kI32 };

constexpr int kTile = 16;

// Element i of a lane's fragment; of 16-bit floats neg_lo negates the even ones, neg_hi the odd ones. Of
// integers these bits say that they are signed, which kE knows.
template <Element kE, class T>
void signed_row(Wave& w, const Operand& o, uint32_t h, int i, T* row) {
  element_row<kE>(w, o, h, static_cast<uint32_t>(i), row);
  if constexpr (kE == Element::kF16 || kE == Element::kBf16)
    if (i % 2 ? o.neg_hi : o.neg) ROCM_SD_LANES row[l] = -row[l];
}

// A or B as [k][16].
template <Element kE, int kDepth, class T>
void load_fragment(Wave& w, const Inst& in, const Operand& o, T* out) {
  alignas(64) T row[kRow];
  if (!(in.flags & kGfx12)) {
    for (int k = 0; k < kDepth; ++k) {
      signed_row<kE>(w, o, 0, k, row);
      for (int l = 0; l < kTile; ++l) out[k * kTile + l] = row[l];
    }
    return;
  }
  const int groups = static_cast<int>(w.lanes) / kTile, each = kDepth / groups;
  for (uint32_t h = 0; h < w.halves; ++h)
    for (int i = 0; i < each; ++i) {
      signed_row<kE>(w, o, h, i, row);
      for (int s = 0; s < 2; ++s)
        for (int l = 0; l < kTile; ++l)
          out[(i + each * (2 * static_cast<int>(h) + s)) * kTile + l] = row[s * kTile + l];
    }
}

// Where element i of C of lane group g stands.
struct Place {
  int row;    // of C
  int dword;  // of the operand
  bool high;  // 16-bit results only
};
Place place_of(const Wave& w, const Inst& in, Result type, int i, int g) {
  const int groups = static_cast<int>(w.lanes) / kTile;
  const bool half = type == Result::kF16 || type == Result::kBf16;
  if (in.flags & kGfx12) return {i + kTile / groups * g, half ? i / 2 : i, half && i % 2 == 1};
  return {groups * i + g, i, half && (in.src[2].half & 1)};
}

float widen(Result type, uint32_t bits, bool high) {
  if (type == Result::kF32) return cast<float>(bits);
  const uint32_t half = (high ? bits >> 16 : bits) & 0xffff;
  return type == Result::kF16 ? half_to_float(half) : bf16_to_float(half);
}

template <Result kType, class T>
void load_c(Wave& w, const Inst& in, T* c) {
  const int groups = static_cast<int>(w.lanes) / kTile;
  alignas(64) uint32_t buffer[kRow];
  for (int i = 0; i < kTile / groups; ++i)
    for (int g = 0; g < groups; ++g) {
      const Place p = place_of(w, in, kType, i, g);
      const uint32_t part = in.src[2].kind == Kind::kConst ? 0 : static_cast<uint32_t>(p.dword);
      const bool high = p.high && in.src[2].kind != Kind::kConst;
      const uint32_t* raw = raw_row(w, in.src[2], static_cast<uint32_t>(g) / 2, part, buffer) + g % 2 * kTile;
      T* out = c + p.row * kTile;
      if constexpr (kType == Result::kI32) {
        for (int l = 0; l < kTile; ++l) out[l] = static_cast<int32_t>(raw[l]);
      } else {
        for (int l = 0; l < kTile; ++l) out[l] = widen(kType, raw[l], high);
        if (in.src[2].neg_hi)  // of C: the absolute value
          for (int l = 0; l < kTile; ++l) out[l] = __builtin_fabsf(out[l]);
        if (in.src[2].neg)
          for (int l = 0; l < kTile; ++l) out[l] = -out[l];
      }
    }
}

template <Result kType, class T>
void store_d(Wave& w, const Inst& in, const T* c) {
  const int groups = static_cast<int>(w.lanes) / kTile;
  for (int i = 0; i < kTile / groups; ++i)
    for (int g = 0; g < groups; ++g) {
      const Place p = place_of(w, in, kType, i, g);
      uint32_t* raw =
          vgpr(w, in.dst.reg + static_cast<uint32_t>(p.dword), static_cast<uint32_t>(g) / 2) + g % 2 * kTile;
      const T* from = c + p.row * kTile;
      for (int l = 0; l < kTile; ++l) {
        if constexpr (kType == Result::kF32 || kType == Result::kI32) {
          raw[l] = cast<uint32_t>(from[l]);
        } else {
          const uint32_t half = kType == Result::kF16 ? float_to_half(from[l]) : float_to_bf16(from[l]);
          raw[l] = p.high ? (raw[l] & 0xffff) | half << 16 : (raw[l] & 0xffff0000) | half;
        }
      }
    }
}

template <Element kA, Element kB, int kDepth, Result kType, class T>
void product(Wave& w, const Inst& in) {
  alignas(64) T a[kDepth * kTile], b[kDepth * kTile], c[kTile * kTile];
  load_fragment<kA, kDepth>(w, in, in.src[0], a);
  load_fragment<kB, kDepth>(w, in, in.src[1], b);
  load_c<kType>(w, in, c);
  multiply<kTile, kTile, false>(a, b, c, kDepth);
  store_d<kType>(w, in, c);
}

template <Element kA, Element kB, int kDepth, Result kType>
void wmma(Wave& w, const Inst& in) {
  product<kA, kB, kDepth, kType, float>(w, in);
}

// c += sum; clamp saturates.
void add_saturating(const Inst& in, const int32_t* sum, int32_t* c) {
  for (int i = 0; i < kTile * kTile; ++i) {
    const int64_t exact = static_cast<int64_t>(c[i]) + sum[i];
    c[i] = static_cast<int32_t>(exact);
    if (in.flags & kClamp)
      c[i] = static_cast<int32_t>(exact > INT32_MAX ? INT32_MAX : exact < INT32_MIN ? INT32_MIN : exact);
  }
}

// Integers: neg_lo of a source says that it is signed; clamp saturates the sum, which is exact in double.
template <int kBitsEach, int kDepth>
void wmma_int(Wave& w, const Inst& in) {
  constexpr Element kS = kBitsEach == 8 ? Element::kI8 : Element::kI4;
  constexpr Element kU = kBitsEach == 8 ? Element::kU8 : Element::kU4;
  alignas(64) int32_t a[kDepth * kTile], b[kDepth * kTile], c[kTile * kTile], sum[kTile * kTile] = {};
  if (in.src[0].neg)
    load_fragment<kS, kDepth>(w, in, in.src[0], a);
  else
    load_fragment<kU, kDepth>(w, in, in.src[0], a);
  if (in.src[1].neg)
    load_fragment<kS, kDepth>(w, in, in.src[1], b);
  else
    load_fragment<kU, kDepth>(w, in, in.src[1], b);
  Inst plain = in;
  plain.src[2].neg = plain.src[2].neg_hi = false;
  load_c<Result::kI32>(w, plain, c);
  multiply<kTile, kTile, false>(a, b, sum, kDepth);
  add_saturating(in, sum, c);
  store_d<Result::kI32>(w, in, c);
}

// ---- SWMMAC of RDNA4: D += A B with a sparse A (multiply_sparse) ----

// Two bits of src[2] for each element of A that the lane has; index_key (offset1) says which bits of the
// register.
template <int kKept>
void load_picks(Wave& w, const Inst& in, uint8_t* out) {
  const int groups = static_cast<int>(w.lanes) / kTile, each = kKept / groups;
  const int shift = in.offset1 * 2 * each % 32;
  alignas(64) uint32_t buffer[kRow];
  for (uint32_t h = 0; h < w.halves; ++h) {
    const uint32_t* raw = raw_row(w, in.src[2], h, 0, buffer);
    for (int l = 0; l < 32; ++l)
      for (int i = 0; i < each; ++i)
        out[(i + each * (2 * static_cast<int>(h) + l / kTile)) * kTile + l % kTile] =
            static_cast<uint8_t>(raw[l] >> (shift + 2 * i) & 3);
  }
}

// The instruction with its destination as C, where load_c() looks for it.
Inst with_sum(const Inst& in) {
  Inst out = in;
  out.src[2] = in.dst;
  return out;
}

template <Element kA, Element kB, int kDepth, Result kType>
void swmmac(Wave& w, const Inst& in) {
  constexpr int kKept = kDepth / 2;
  alignas(64) float a[kKept * kTile], b[kDepth * kTile], c[kTile * kTile];
  uint8_t pick[kKept * kTile];
  load_fragment<kA, kKept>(w, in, in.src[0], a);
  load_fragment<kB, kDepth>(w, in, in.src[1], b);
  load_picks<kKept>(w, in, pick);
  load_c<kType>(w, with_sum(in), c);
  multiply_sparse<kTile, kTile>(a, pick, b, c, kKept);
  store_d<kType>(w, in, c);
}

template <int kBitsEach, int kDepth>
void swmmac_int(Wave& w, const Inst& in) {
  constexpr Element kS = kBitsEach == 8 ? Element::kI8 : Element::kI4;
  constexpr Element kU = kBitsEach == 8 ? Element::kU8 : Element::kU4;
  constexpr int kKept = kDepth / 2;
  alignas(64) int32_t a[kKept * kTile], b[kDepth * kTile], c[kTile * kTile], sum[kTile * kTile] = {};
  uint8_t pick[kKept * kTile];
  if (in.src[0].neg)
    load_fragment<kS, kKept>(w, in, in.src[0], a);
  else
    load_fragment<kU, kKept>(w, in, in.src[0], a);
  if (in.src[1].neg)
    load_fragment<kS, kDepth>(w, in, in.src[1], b);
  else
    load_fragment<kU, kDepth>(w, in, in.src[1], b);
  load_picks<kKept>(w, in, pick);
  load_c<Result::kI32>(w, with_sum(in), c);
  multiply_sparse<kTile, kTile>(a, pick, b, sum, kKept);
  add_saturating(in, sum, c);
  store_d<Result::kI32>(w, in, c);
}

constexpr Operation sparse(const char* name, Handler run, Type acc) {
  return {name, run, Class::kMatrix, 1, 3, true, Type::kWide, {Type::kWide, Type::kWide, Type::kB32, acc}};
}
constexpr Operation entry(const char* name, Handler run, Type acc) {
  return {name, run, Class::kMatrix, 1, 3, false, Type::kWide, {Type::kWide, Type::kWide, acc}};
}
using E = Element;
constexpr Operation kTable[] = {
    entry("v_wmma_f32_16x16x16_f16", &wmma<E::kF16, E::kF16, 16, Result::kF32>, Type::kF32),
    entry("v_wmma_f32_16x16x16_bf16", &wmma<E::kBf16, E::kBf16, 16, Result::kF32>, Type::kF32),
    entry("v_wmma_f16_16x16x16_f16", &wmma<E::kF16, E::kF16, 16, Result::kF16>, Type::kPkF16),
    entry("v_wmma_bf16_16x16x16_bf16", &wmma<E::kBf16, E::kBf16, 16, Result::kBf16>, Type::kPkBf16),
    entry("v_wmma_i32_16x16x16_iu8", &wmma_int<8, 16>, Type::kB32),
    entry("v_wmma_i32_16x16x16_iu4", &wmma_int<4, 16>, Type::kB32),
    entry("v_wmma_i32_16x16x32_iu4", &wmma_int<4, 32>, Type::kB32),
    entry("v_wmma_f32_16x16x16_fp8_fp8", &wmma<E::kFp8, E::kFp8, 16, Result::kF32>, Type::kF32),
    entry("v_wmma_f32_16x16x16_fp8_bf8", &wmma<E::kFp8, E::kBf8, 16, Result::kF32>, Type::kF32),
    entry("v_wmma_f32_16x16x16_bf8_fp8", &wmma<E::kBf8, E::kFp8, 16, Result::kF32>, Type::kF32),
    entry("v_wmma_f32_16x16x16_bf8_bf8", &wmma<E::kBf8, E::kBf8, 16, Result::kF32>, Type::kF32),
    sparse("v_swmmac_f32_16x16x32_f16", &swmmac<E::kF16, E::kF16, 32, Result::kF32>, Type::kF32),
    sparse("v_swmmac_f32_16x16x32_bf16", &swmmac<E::kBf16, E::kBf16, 32, Result::kF32>, Type::kF32),
    sparse("v_swmmac_f16_16x16x32_f16", &swmmac<E::kF16, E::kF16, 32, Result::kF16>, Type::kPkF16),
    sparse("v_swmmac_bf16_16x16x32_bf16", &swmmac<E::kBf16, E::kBf16, 32, Result::kBf16>, Type::kPkBf16),
    sparse("v_swmmac_i32_16x16x32_iu8", &swmmac_int<8, 32>, Type::kB32),
    sparse("v_swmmac_i32_16x16x32_iu4", &swmmac_int<4, 32>, Type::kB32),
    sparse("v_swmmac_i32_16x16x64_iu4", &swmmac_int<4, 64>, Type::kB32),
    sparse("v_swmmac_f32_16x16x32_fp8_fp8", &swmmac<E::kFp8, E::kFp8, 32, Result::kF32>, Type::kF32),
    sparse("v_swmmac_f32_16x16x32_fp8_bf8", &swmmac<E::kFp8, E::kBf8, 32, Result::kF32>, Type::kF32),
    sparse("v_swmmac_f32_16x16x32_bf8_fp8", &swmmac<E::kBf8, E::kFp8, 32, Result::kF32>, Type::kF32),
    sparse("v_swmmac_f32_16x16x32_bf8_bf8", &swmmac<E::kBf8, E::kBf8, 32, Result::kF32>, Type::kF32),
};

}  // namespace

Operations matrix_wmma() { return {kTable, sizeof(kTable) / sizeof(kTable[0])}; }

}  // namespace ROCM_SD_ISA
}  // namespace rocm_sd::emu
