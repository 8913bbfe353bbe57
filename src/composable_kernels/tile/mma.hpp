// Products of tiles by the matrix unit, C += A B. Letters behind mma say how the operands lie: a t follows
// the one that is stored transposed. C is a RegTile; A lies in LDS; B lies in registers or in LDS.
//   mma_ABt(c, a, b)   a [rows of c][depth], b [columns of c][depth]
//   mma_AtB(c, a, b)   a [depth][rows of c], b [depth][columns of c]
//   mma_AtBt(c, a, b)  a [depth][rows of c], b [columns of c][depth]
// stream(tile): an A whose fragments are read Arch::kFragmentsAhead ahead of their use and no more, so that
// the compiler does not read a whole tile into registers.
#pragma once

#include "composable_kernels/tile/register_tile.hpp"

namespace rocm_sd {

// ---- fragments: 16 x 16 of an operand ----

// Of A: rows from `row` on, depths from `depth` on.
template <class M, class T, int kRows, int kCols, class Layout>
ROCM_SD_DEVICE typename M::A fragment_a(const LdsTile<T, kRows, kCols, Layout>& a, int row, int depth) {
  static_assert(!Layout::kTransposed);
  return M::load(a.at(row, depth), Layout::kLd);
}
// The same of the transposed of a tile [depth][row].
template <class M, class T, int kRows, int kCols, class Layout>
ROCM_SD_DEVICE typename M::A fragment_at(const LdsTile<T, kRows, kCols, Layout>& a, int row, int depth) {
  if constexpr (!Layout::kTransposed)
    return M::load_transposed(a.at(depth, row), Layout::kLd);
  else if constexpr (Layout::kSkip != 0)
    return M::load(a.at(depth, row), Layout::kLd, Layout::kSkip);
  else
    return M::load(a.at(depth, row), Layout::kLd);
}
// Of B^T [columns][depth], for column atom `col` and depth atom `depth`.
template <class M, int kCols, int kDepth>
ROCM_SD_DEVICE const typename M::B& fragment_bt(const ColOperand<M, kCols, kDepth>& b, int col, int depth) {
  return b.atoms[col][depth];
}
// Depths of an operand, from atom `first` on.
template <class Operand>
struct DepthsFrom {
  const Operand& of;
  int first;
};
template <class M, class Operand>
ROCM_SD_DEVICE const typename M::B& fragment_bt(const DepthsFrom<Operand>& b, int col, int depth) {
  return b.of.atoms[col][b.first + depth];
}
template <class M, class T, int kRows, int kCols, class Layout>
ROCM_SD_DEVICE typename M::B fragment_bt(const LdsTile<T, kRows, kCols, Layout>& b, int col, int depth) {
  return M::load_b(b.at(col * 16, depth * 16), Layout::kLd);
}

// ---- both operands in LDS, depth by depth ----

// The fragments of a at one depth stay, those of b come one by one.
template <class Arch, class M, int kRows, int kCols, class T, int kDepth, class LayoutA, class LayoutB>
ROCM_SD_DEVICE void mma_ABt(RegTile<M, kRows, kCols>& c, const LdsTile<T, kRows, kDepth, LayoutA>& a,
                            const LdsTile<T, kCols, kDepth, LayoutB>& b) {
  ROCM_SD_UNROLL
  for (int d = 0; d < kDepth / 16; ++d) {
    typename M::A rows[kRows / 16];
    ROCM_SD_UNROLL
    for (int r = 0; r < kRows / 16; ++r) rows[r] = fragment_a<M>(a, r * 16, d * 16);
    ROCM_SD_UNROLL
    for (int j = 0; j < kCols / 16; ++j) {
      const typename M::B column = fragment_bt<M>(b, j, d);
      ROCM_SD_UNROLL
      for (int r = 0; r < kRows / 16; ++r) M::mma(c.atoms[j][r], rows[r], column);
    }
    if (d % 2 == 1) Arch::fence_schedule();
  }
}
// The fragments of b at one depth stay, those of a come one by one.
template <class Arch, class M, int kRows, int kCols, class T, int kDepth, class LayoutA, class LayoutB>
ROCM_SD_DEVICE void mma_AtBt(RegTile<M, kRows, kCols>& c, const LdsTile<T, kDepth, kRows, LayoutA>& a,
                             const LdsTile<T, kCols, kDepth, LayoutB>& b) {
  ROCM_SD_UNROLL
  for (int d = 0; d < kDepth / 16; ++d) {
    typename M::B columns[kCols / 16];
    ROCM_SD_UNROLL
    for (int j = 0; j < kCols / 16; ++j) columns[j] = fragment_bt<M>(b, j, d);
    ROCM_SD_UNROLL
    for (int r = 0; r < kRows / 16; ++r) {
      const typename M::A row = fragment_at<M>(a, r * 16, d * 16);
      ROCM_SD_UNROLL
      for (int j = 0; j < kCols / 16; ++j) M::mma(c.atoms[j][r], row, columns[j]);
      if (r % 2 == 1) Arch::fence_schedule();
    }
  }
}

// ---- streamed ----

template <class Tile>
struct Streamed {
  using T = typename Tile::T;
  Tile tile;
};
template <class Tile>
ROCM_SD_DEVICE Streamed<Tile> stream(const Tile& tile) {
  return {tile};
}

// use(n, load(n)) for every n < kCount, with kFragmentsAhead fragments loaded ahead of their use.
template <class Arch, class Fragment, int kCount, class Load, class Use>
ROCM_SD_DEVICE void stream_fragments(const Load& load, const Use& use) {
  constexpr int kRing = Arch::kFragmentsAhead + 1;
  Fragment ring[kRing];
  ROCM_SD_UNROLL
  for (int n = 0; n < kRing - 1 && n < kCount; ++n) ring[n] = load(n);
  ROCM_SD_UNROLL
  for (int n = 0; n < kCount; ++n) {
    if (n + kRing - 1 < kCount) ring[(n + kRing - 1) % kRing] = load(n + kRing - 1);
    Arch::fence_schedule();
    use(n, ring[n % kRing]);
  }
}

// Row by row of a.
template <class Arch, class M, int kRows, int kCols, class T, int kDepth, class Layout, class B>
ROCM_SD_DEVICE void mma_ABt(RegTile<M, kRows, kCols>& c, const Streamed<LdsTile<T, kRows, kDepth, Layout>>& a,
                            const B& b) {
  constexpr int kDepths = kDepth / 16;
  stream_fragments<Arch, typename M::A, kRows / 16 * kDepths>(
      [&](int n) { return fragment_a<M>(a.tile, n / kDepths * 16, n % kDepths * 16); },
      [&](int n, const typename M::A& fragment) {
        ROCM_SD_UNROLL
        for (int j = 0; j < kCols / 16; ++j)
          M::mma(c.atoms[j][n / kDepths], fragment, fragment_bt<M>(b, j, n % kDepths));
      });
}

// Depth by depth; b, the weights of a softmax, become 16 bits as they are used. kSum, for Arch::kCutsWeights:
// they are added to sums, each lane's to its own.
template <class Arch, bool kSum, class M, int kRows, int kCols, class T, int kDepth, class Layout>
ROCM_SD_DEVICE void mma_AtB(RegTile<M, kRows, kCols>& c, const Streamed<LdsTile<T, kDepth, kRows, Layout>>& a,
                            const RegTile<M, kDepth, kCols>& b, ColVec<M, kCols>& sums) {
  constexpr int kRowAtoms = kRows / 16;
  typename M::B columns[kCols / 16];
  stream_fragments<Arch, typename M::A, kDepth / 16 * kRowAtoms>(
      [&](int n) { return fragment_at<M>(a.tile, n % kRowAtoms * 16, n / kRowAtoms * 16); },
      [&](int n, const typename M::A& fragment) {
        ROCM_SD_UNROLL
        for (int j = 0; j < kCols / 16; ++j) {
          if (n % kRowAtoms == 0) {
            const typename M::C& weights = b.atoms[j][n / kRowAtoms];
            if constexpr (Arch::kCutsWeights)
              columns[j] = M::template as_weights<kSum>(weights, sums.x[j]);
            else
              columns[j] = M::as_b(weights);
          }
          M::mma(c.atoms[j][n % kRowAtoms], fragment, columns[j]);
        }
      });
}

}  // namespace rocm_sd
