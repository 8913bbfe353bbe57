// MFMA of CDNA: D [M,N] = A [M,K] B [K,N] + C for one or several independent blocks, in wave64.
//
// A lane holds row (A) or column (B) lane % M of block (lane / M) % blocks, with k = i + each * (lane / (M
// blocks)). C: column lane % N; rows come in runs of `run` (4, or 1 in double) a lane; the lanes of a column
// take turns:
//   row = i % run + run * ((lane / N) % turns + turns * ((i / run) % rounds)),
//   block = lane / (N turns) + side * (i / (run rounds)).
// Source: the fragment maps of AMD's matrix instruction calculator.
#include "emulator/lane_math.hpp"
#include "emulator/matrix_core.hpp"
#include "emulator/operations.hpp"
#include "emulator/wrappers.hpp"

namespace rocm_sd::emu {
namespace ROCM_SD_ISA {
namespace {

constexpr int kWave = 64;

template <int kM, int kBlocks, int kRun>
struct Layout {
  static constexpr int kSide =
      kM * kM / kRun >= kWave ? 1 : kWave / (kM * kM / kRun);  // blocks beside each other
  static constexpr int kTurns = kWave / kSide / kM;
  static constexpr int kRounds = kM / (kRun * kTurns);
  static constexpr int kItems = kM * kM * kBlocks / kWave;
  static constexpr int row(int i, int lane) {
    return i % kRun + kRun * (lane / kM % kTurns + kTurns * (i / kRun % kRounds));
  }
  static constexpr int block(int i, int lane) {
    return lane / (kM * kTurns) + kSide * (i / (kRun * kRounds));
  }
};

// A or B as [block][k][M].
template <Element kE, int kM, int kDepth, int kBlocks, class T>
void load_fragment(Wave& w, const Operand& o, T* out) {
  constexpr int kEach = kM * kDepth * kBlocks / kWave;
  constexpr int kStep = kM < 32 ? kM : 32;  // lanes that stay together
  alignas(64) T row[kRow];
  for (int h = 0; h < 2; ++h)
    for (int i = 0; i < kEach; ++i) {
      element_row<kE>(w, o, h, i, row);
      for (int first = 0; first < 32; first += kStep) {
        const int lane = 32 * h + first, block = lane / kM % kBlocks, k = i + kEach * (lane / (kM * kBlocks));
        for (int l = 0; l < kStep; ++l) out[(block * kDepth + k) * kM + l] = row[first + l];
      }
    }
}

// C as [block][M][M].
template <int kM, int kBlocks, class T>
void load_sum(Wave& w, const Operand& o, T* c) {
  using L = Layout<kM, kBlocks, 4>;
  constexpr int kStep = kM < 32 ? kM : 32;
  alignas(64) uint32_t buffer[kRow];
  const bool constant = o.kind == Kind::kConst;
  for (int h = 0; h < 2; ++h)
    for (int i = 0; i < L::kItems; ++i) {
      const uint32_t* raw = raw_row(w, o, h, constant ? 0 : i, buffer);
      for (int first = 0; first < 32; first += kStep) {
        const int lane = 32 * h + first;
        T* out = c + (L::block(i, lane) * kM + L::row(i, lane)) * kM;
        for (int l = 0; l < kStep; ++l) out[l] = cast<T>(raw[first + l]);
      }
    }
}

template <int kM, int kBlocks, class T>
void store_sum(Wave& w, const Operand& o, const T* c) {
  using L = Layout<kM, kBlocks, 4>;
  constexpr int kStep = kM < 32 ? kM : 32;
  for (int h = 0; h < 2; ++h)
    for (int i = 0; i < L::kItems; ++i) {
      uint32_t* raw = vgpr(w, o.reg + i, h);
      for (int first = 0; first < 32; first += kStep) {
        const int lane = 32 * h + first;
        const T* from = c + (L::block(i, lane) * kM + L::row(i, lane)) * kM;
        for (int l = 0; l < kStep; ++l) raw[first + l] = cast<uint32_t>(from[l]);
      }
    }
}

// B with its lanes changed as blgp says (1..7).
Operand swapped_lanes(Wave& w, const Operand& o, uint32_t pattern) {
  const auto from = [pattern](int lane) {
    switch (pattern) {
      case 1: return lane % 32;
      case 2: return 32 + lane % 32;
      case 3: return (lane + 16) % kWave;
      default: return static_cast<int>(pattern - 4) * 16 + lane % 16;
    }
  };
  for (uint32_t d = 0; d < o.dwords; ++d)
    for (int lane = 0; lane < kWave; ++lane)
      w.permuted[d * kWave + static_cast<uint32_t>(lane)] =
          vgpr(w, o.reg + d, static_cast<uint32_t>(from(lane)) / kRow)[from(lane) % 32];
  Operand out = o;
  out.kind = Kind::kPermuted;
  return out;
}

// offset: cbsz, the logarithm of how many blocks share A; offset1: abid, which of them gives it; aux: blgp.
template <Element kA, Element kB, int kM, int kDepth, int kBlocks, class T>
void mfma(Wave& w, const Inst& in) {
  const int shared = 1 << in.offset;
  if (shared > kBlocks || in.offset1 >= shared) run_unknown(w, in);
  alignas(64) T a[kBlocks * kDepth * kM], b[kBlocks * kDepth * kM], c[kBlocks * kM * kM];
  load_fragment<kA, kM, kDepth, kBlocks>(w, in.src[0], a);
  load_fragment<kB, kM, kDepth, kBlocks>(w, in.aux ? swapped_lanes(w, in.src[1], in.aux) : in.src[1], b);
  load_sum<kM, kBlocks>(w, in.src[2], c);
  for (int block = 0; block < kBlocks; ++block)
    multiply<kM, kM, kA == Element::kF32>(a + (block / shared * shared + in.offset1) * kDepth * kM,
                                          b + block * kDepth * kM, c + block * kM * kM, kDepth);
  store_sum<kM, kBlocks>(w, in.dst, c);
}

// SMFMAC: D += A B with a sparse A (multiply_sparse). Two bits of src[2] for each element of A that the lane
// has; with cbsz 0, abid says which bits of the register.
template <Element kA, Element kB, int kM, int kDepth, class T>
void smfmac(Wave& w, const Inst& in) {
  constexpr int kKept = kDepth / 2, kEach = kM * kKept / kWave, kSets = 16 / kEach;
  alignas(64) T a[kKept * kM], b[kDepth * kM], c[kM * kM];
  uint8_t pick[kKept * kM];
  load_fragment<kA, kM, kKept, 1>(w, in.src[0], a);
  load_fragment<kB, kM, kDepth, 1>(w, in.src[1], b);
  load_sum<kM, 1>(w, in.dst, c);
  const int shift = in.offset == 0 ? in.offset1 % kSets * 2 * kEach : 0;
  alignas(64) uint32_t buffer[kRow];
  for (int h = 0; h < 2; ++h) {
    const uint32_t* raw = raw_row(w, in.src[2], h, 0, buffer);
    for (int l = 0; l < 32; ++l)
      for (int i = 0; i < kEach; ++i) {
        const int lane = 32 * h + l;
        pick[(i + kEach * (lane / kM)) * kM + lane % kM] =
            static_cast<uint8_t>(raw[l] >> (shift + 2 * i) & 3);
      }
  }
  multiply_sparse<kM, kM>(a, pick, b, c, kKept);
  store_sum<kM, 1>(w, in.dst, c);
}

// The double forms: one element of A and B a lane; blgp negates A, B and C by its bits.
template <int kM, int kDepth, int kBlocks>
void mfma_f64(Wave& w, const Inst& in) {
  using L = Layout<kM, kBlocks, 1>;
  double a[kBlocks][kDepth][kM], b[kBlocks][kDepth][kM];
  Buffer<F64> c[2][L::kItems];
  const double sign_a = in.aux & 1 ? -1 : 1, sign_b = in.aux & 2 ? -1 : 1, sign_c = in.aux & 4 ? -1 : 1;
  for (uint32_t h = 0; h < 2; ++h) {
    Buffer<F64> ba, bb;
    const double* ra = fetch<F64>(w, in.src[0], h, ba.lane);
    const double* rb = fetch<F64>(w, in.src[1], h, bb.lane);
    for (int l = 0; l < 32; ++l) {
      const int lane = 32 * static_cast<int>(h) + l;
      a[lane / kM % kBlocks][lane / (kM * kBlocks)][lane % kM] = sign_a * ra[l];
      b[lane / kM % kBlocks][lane / (kM * kBlocks)][lane % kM] = sign_b * rb[l];
    }
    Operand part = in.src[2];
    for (int i = 0; i < L::kItems; ++i) {
      const double* rc = fetch<F64>(w, part, h, c[h][i].lane);
      ROCM_SD_LANES c[h][i].lane[l] = sign_c * rc[l];
      if (part.kind != Kind::kConst) part.reg += 2;
    }
  }
  for (int lane = 0; lane < kWave; ++lane)
    for (int i = 0; i < L::kItems; ++i) {
      double& sum = c[lane / 32][i].lane[lane % 32];
      const int block = L::block(i, lane), row = L::row(i, lane), col = lane % kM;
      for (int k = 0; k < kDepth; ++k) sum = __builtin_fma(a[block][k][row], b[block][k][col], sum);
    }
  for (uint32_t h = 0; h < 2; ++h)
    for (int i = 0; i < L::kItems; ++i) {
      const uint32_t reg = in.dst.reg + 2 * static_cast<uint32_t>(i);
      uint32_t *low = vgpr(w, reg, h), *high = vgpr(w, reg + 1, h);
      ROCM_SD_LANES {
        const uint64_t bits = cast<uint64_t>(c[h][i].lane[l]);
        low[l] = static_cast<uint32_t>(bits);
        high[l] = static_cast<uint32_t>(bits >> 32);
      }
    }
}

constexpr Operation entry(const char* name, Handler run, Type acc = Type::kF32) {
  return {name, run, Class::kMatrix, 1, 3, false, Type::kWide, {Type::kWide, Type::kWide, acc}};
}
constexpr Operation sparse(const char* name, Handler run, Type acc = Type::kF32) {
  return {name, run, Class::kMatrix, 1, 3, true, Type::kWide, {Type::kWide, Type::kWide, Type::kB32, acc}};
}
using E = Element;
template <Element kE, int kM, int kDepth, int kBlocks>
constexpr Handler kFloat = &mfma<kE, kE, kM, kDepth, kBlocks, float>;
template <int kM, int kDepth, int kBlocks>
constexpr Handler kInt = &mfma<E::kI8, E::kI8, kM, kDepth, kBlocks, int32_t>;
template <Element kA, Element kB>
constexpr Handler kWide8 = &mfma<kA, kB, 16, 32, 1, float>;
template <Element kE>
constexpr Handler kSparse16 = &smfmac<kE, kE, 16, 32, float>;
template <Element kE>
constexpr Handler kSparse32 = &smfmac<kE, kE, 32, 16, float>;
template <Element kA, Element kB>
constexpr Handler kSparseWide8 = &smfmac<kA, kB, 16, 64, float>;
template <Element kA, Element kB>
constexpr Handler kSparseTall8 = &smfmac<kA, kB, 32, 32, float>;
template <Element kA, Element kB>
constexpr Handler kTall8 = &mfma<kA, kB, 32, 16, 1, float>;
constexpr Type kI = Type::kB32, kD = Type::kF64;
constexpr Element kFp = E::kFp8Fnuz, kBf = E::kBf8Fnuz;

// gfx942 names the blocks (_2b_), gfx90a writes the type without an underscore.
constexpr Operation kTable[] = {
    entry("v_mfma_f32_32x32x1_2b_f32", kFloat<E::kF32, 32, 1, 2>),
    entry("v_mfma_f32_32x32x1f32", kFloat<E::kF32, 32, 1, 2>),
    entry("v_mfma_f32_16x16x1_4b_f32", kFloat<E::kF32, 16, 1, 4>),
    entry("v_mfma_f32_16x16x1f32", kFloat<E::kF32, 16, 1, 4>),
    entry("v_mfma_f32_4x4x1_16b_f32", kFloat<E::kF32, 4, 1, 16>),
    entry("v_mfma_f32_4x4x1f32", kFloat<E::kF32, 4, 1, 16>),
    entry("v_mfma_f32_32x32x2_f32", kFloat<E::kF32, 32, 2, 1>),
    entry("v_mfma_f32_32x32x2f32", kFloat<E::kF32, 32, 2, 1>),
    entry("v_mfma_f32_16x16x4_f32", kFloat<E::kF32, 16, 4, 1>),
    entry("v_mfma_f32_16x16x4f32", kFloat<E::kF32, 16, 4, 1>),
    entry("v_mfma_f32_32x32x4_2b_f16", kFloat<E::kF16, 32, 4, 2>),
    entry("v_mfma_f32_32x32x4f16", kFloat<E::kF16, 32, 4, 2>),
    entry("v_mfma_f32_16x16x4_4b_f16", kFloat<E::kF16, 16, 4, 4>),
    entry("v_mfma_f32_16x16x4f16", kFloat<E::kF16, 16, 4, 4>),
    entry("v_mfma_f32_4x4x4_16b_f16", kFloat<E::kF16, 4, 4, 16>),
    entry("v_mfma_f32_4x4x4f16", kFloat<E::kF16, 4, 4, 16>),
    entry("v_mfma_f32_32x32x8_f16", kFloat<E::kF16, 32, 8, 1>),
    entry("v_mfma_f32_32x32x8f16", kFloat<E::kF16, 32, 8, 1>),
    entry("v_mfma_f32_16x16x16_f16", kFloat<E::kF16, 16, 16, 1>),
    entry("v_mfma_f32_16x16x16f16", kFloat<E::kF16, 16, 16, 1>),
    entry("v_mfma_f32_32x32x4_2b_bf16", kFloat<E::kBf16, 32, 4, 2>),
    entry("v_mfma_f32_32x32x4bf16_1k", kFloat<E::kBf16, 32, 4, 2>),
    entry("v_mfma_f32_16x16x4_4b_bf16", kFloat<E::kBf16, 16, 4, 4>),
    entry("v_mfma_f32_16x16x4bf16_1k", kFloat<E::kBf16, 16, 4, 4>),
    entry("v_mfma_f32_4x4x4_16b_bf16", kFloat<E::kBf16, 4, 4, 16>),
    entry("v_mfma_f32_4x4x4bf16_1k", kFloat<E::kBf16, 4, 4, 16>),
    entry("v_mfma_f32_32x32x8_bf16", kFloat<E::kBf16, 32, 8, 1>),
    entry("v_mfma_f32_32x32x8bf16_1k", kFloat<E::kBf16, 32, 8, 1>),
    entry("v_mfma_f32_16x16x16_bf16", kFloat<E::kBf16, 16, 16, 1>),
    entry("v_mfma_f32_16x16x16bf16_1k", kFloat<E::kBf16, 16, 16, 1>),
    entry("v_mfma_f32_32x32x4bf16", kFloat<E::kBf16, 32, 4, 1>),
    entry("v_mfma_f32_16x16x8bf16", kFloat<E::kBf16, 16, 8, 1>),
    entry("v_mfma_i32_32x32x4_2b_i8", kInt<32, 4, 2>, kI),
    entry("v_mfma_i32_32x32x4i8", kInt<32, 4, 2>, kI),
    entry("v_mfma_i32_16x16x4_4b_i8", kInt<16, 4, 4>, kI),
    entry("v_mfma_i32_16x16x4i8", kInt<16, 4, 4>, kI),
    entry("v_mfma_i32_4x4x4_16b_i8", kInt<4, 4, 16>, kI),
    entry("v_mfma_i32_4x4x4i8", kInt<4, 4, 16>, kI),
    entry("v_mfma_i32_32x32x8i8", kInt<32, 8, 1>, kI),
    entry("v_mfma_i32_16x16x16i8", kInt<16, 16, 1>, kI),
    entry("v_mfma_i32_32x32x16_i8", kInt<32, 16, 1>, kI),
    entry("v_mfma_i32_16x16x32_i8", kInt<16, 32, 1>, kI),
    entry("v_mfma_f32_16x16x32_fp8_fp8", kWide8<kFp, kFp>),
    entry("v_mfma_f32_16x16x32_fp8_bf8", kWide8<kFp, kBf>),
    entry("v_mfma_f32_16x16x32_bf8_fp8", kWide8<kBf, kFp>),
    entry("v_mfma_f32_16x16x32_bf8_bf8", kWide8<kBf, kBf>),
    entry("v_mfma_f32_32x32x16_fp8_fp8", kTall8<kFp, kFp>),
    entry("v_mfma_f32_32x32x16_fp8_bf8", kTall8<kFp, kBf>),
    entry("v_mfma_f32_32x32x16_bf8_fp8", kTall8<kBf, kFp>),
    entry("v_mfma_f32_32x32x16_bf8_bf8", kTall8<kBf, kBf>),
    entry("v_mfma_f32_32x32x2bf16", kFloat<E::kBf16, 32, 2, 2>),
    entry("v_mfma_f32_16x16x2bf16", kFloat<E::kBf16, 16, 2, 4>),
    entry("v_mfma_f32_4x4x2bf16", kFloat<E::kBf16, 4, 2, 16>),
    entry("v_mfma_f32_16x16x8_xf32", kFloat<E::kXf32, 16, 8, 1>),
    entry("v_mfma_f32_32x32x4_xf32", kFloat<E::kXf32, 32, 4, 1>),
    sparse("v_smfmac_f32_16x16x32_f16", kSparse16<E::kF16>),
    sparse("v_smfmac_f32_32x32x16_f16", kSparse32<E::kF16>),
    sparse("v_smfmac_f32_16x16x32_bf16", kSparse16<E::kBf16>),
    sparse("v_smfmac_f32_32x32x16_bf16", kSparse32<E::kBf16>),
    sparse("v_smfmac_i32_16x16x64_i8", &smfmac<E::kI8, E::kI8, 16, 64, int32_t>, kI),
    sparse("v_smfmac_i32_32x32x32_i8", &smfmac<E::kI8, E::kI8, 32, 32, int32_t>, kI),
    sparse("v_smfmac_f32_16x16x64_fp8_fp8", kSparseWide8<kFp, kFp>),
    sparse("v_smfmac_f32_16x16x64_fp8_bf8", kSparseWide8<kFp, kBf>),
    sparse("v_smfmac_f32_16x16x64_bf8_fp8", kSparseWide8<kBf, kFp>),
    sparse("v_smfmac_f32_16x16x64_bf8_bf8", kSparseWide8<kBf, kBf>),
    sparse("v_smfmac_f32_32x32x32_fp8_fp8", kSparseTall8<kFp, kFp>),
    sparse("v_smfmac_f32_32x32x32_fp8_bf8", kSparseTall8<kFp, kBf>),
    sparse("v_smfmac_f32_32x32x32_bf8_fp8", kSparseTall8<kBf, kFp>),
    sparse("v_smfmac_f32_32x32x32_bf8_bf8", kSparseTall8<kBf, kBf>),
    {"v_mfma_f64_16x16x4_f64", &mfma_f64<16, 4, 1>, Class::kMatrix, 1, 3, false, kD, {kD, kD, kD}},
    {"v_mfma_f64_16x16x4f64", &mfma_f64<16, 4, 1>, Class::kMatrix, 1, 3, false, kD, {kD, kD, kD}},
    {"v_mfma_f64_4x4x4_4b_f64", &mfma_f64<4, 4, 4>, Class::kMatrix, 1, 3, false, kD, {kD, kD, kD}},
    {"v_mfma_f64_4x4x4f64", &mfma_f64<4, 4, 4>, Class::kMatrix, 1, 3, false, kD, {kD, kD, kD}},
};

}  // namespace

Operations matrix_mfma() { return {kTable, sizeof(kTable) / sizeof(kTable[0])}; }

}  // namespace ROCM_SD_ISA
}  // namespace rocm_sd::emu
