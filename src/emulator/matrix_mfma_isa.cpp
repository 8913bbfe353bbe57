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

template <Element kA, Element kB, int kM, int kDepth, int kBlocks, class T>
void mfma(Wave& w, const Inst& in) {
  using L = Layout<kM, kBlocks, 4>;
  constexpr int kStep = kM < 32 ? kM : 32;
  alignas(64) T a[kBlocks * kDepth * kM], b[kBlocks * kDepth * kM], c[kBlocks * kM * kM];
  load_fragment<kA, kM, kDepth, kBlocks>(w, in.src[0], a);
  load_fragment<kB, kM, kDepth, kBlocks>(w, in.src[1], b);
  alignas(64) uint32_t buffer[kRow];
  const bool constant = in.src[2].kind == Kind::kConst;
  for (int h = 0; h < 2; ++h)
    for (int i = 0; i < L::kItems; ++i) {
      const uint32_t* raw = raw_row(w, in.src[2], h, constant ? 0 : i, buffer);
      for (int first = 0; first < 32; first += kStep) {
        const int lane = 32 * h + first;
        T* out = c + (L::block(i, lane) * kM + L::row(i, lane)) * kM;
        for (int l = 0; l < kStep; ++l) out[l] = cast<T>(raw[first + l]);
      }
    }
  for (int block = 0; block < kBlocks; ++block)
    multiply<kM, kM, kA == Element::kF32>(a + block * kDepth * kM, b + block * kDepth * kM,
                                          c + block * kM * kM, kDepth);
  for (int h = 0; h < 2; ++h)
    for (int i = 0; i < L::kItems; ++i) {
      uint32_t* raw = vgpr(w, in.dst.reg + i, h);
      for (int first = 0; first < 32; first += kStep) {
        const int lane = 32 * h + first;
        const T* from = c + (L::block(i, lane) * kM + L::row(i, lane)) * kM;
        for (int l = 0; l < kStep; ++l) raw[first + l] = cast<uint32_t>(from[l]);
      }
    }
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
using E = Element;
template <Element kE, int kM, int kDepth, int kBlocks>
constexpr Handler kFloat = &mfma<kE, kE, kM, kDepth, kBlocks, float>;
template <int kM, int kDepth, int kBlocks>
constexpr Handler kInt = &mfma<E::kI8, E::kI8, kM, kDepth, kBlocks, int32_t>;
template <Element kA, Element kB>
constexpr Handler kWide8 = &mfma<kA, kB, 16, 32, 1, float>;
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
    {"v_mfma_f64_16x16x4_f64", &mfma_f64<16, 4, 1>, Class::kMatrix, 1, 3, false, kD, {kD, kD, kD}},
    {"v_mfma_f64_16x16x4f64", &mfma_f64<16, 4, 1>, Class::kMatrix, 1, 3, false, kD, {kD, kD, kD}},
    {"v_mfma_f64_4x4x4_4b_f64", &mfma_f64<4, 4, 4>, Class::kMatrix, 1, 3, false, kD, {kD, kD, kD}},
    {"v_mfma_f64_4x4x4f64", &mfma_f64<4, 4, 4>, Class::kMatrix, 1, 3, false, kD, {kD, kD, kD}},
};

}  // namespace

Operations matrix_mfma() { return {kTable, sizeof(kTable) / sizeof(kTable[0])}; }

}  // namespace ROCM_SD_ISA
}  // namespace rocm_sd::emu
