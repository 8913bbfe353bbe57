// Register tiles: what a wave holds of a matrix, in the fragments of its matrix instructions (atom.hpp).
//   RegTile     accumulators C [rows][columns], in float
//   ColOperand  the operand B [columns][depth], in 16 bits
//   ColVec      one float for each column of a RegTile: maxima, totals, factors
// Verbs are free functions, destination first. All of them unroll, so that every element stays in a register.
// The methods row(), column(), lane_column() and as_b() are those of atom.hpp.
#pragma once

#include "composable_kernels/atom.hpp"
#include "composable_kernels/tile/lds_tile.hpp"
#include "composable_kernels/tile/unrolled.hpp"

namespace rocm_sd {

// kRowCount, kColumnCount: multiples of 16.
template <class AtomType, int kRowCount, int kColumnCount>
struct RegTile {
  using M = AtomType;
  static constexpr int kRows = kRowCount, kCols = kColumnCount;
  static constexpr int kRowAtoms = kRows / 16, kColAtoms = kCols / 16;
  static constexpr int kElements = static_cast<int>(sizeof(typename M::C) / sizeof(float));  // of an atom
  static_assert(kRowAtoms * 16 == kRows && kColAtoms * 16 == kCols);

  typename M::C atoms[kColAtoms][kRowAtoms];
};

template <class AtomType, int kColumnCount, int kDepthCount>
struct ColOperand {
  using M = AtomType;
  static constexpr int kCols = kColumnCount, kDepth = kDepthCount;
  static_assert(kCols % 16 == 0 && kDepth % 16 == 0);

  typename M::B atoms[kCols / 16][kDepth / 16];
};

// Every lane that holds elements of a column holds its value.
template <class AtomType, int kColumnCount>
struct ColVec {
  using M = AtomType;
  static constexpr int kCols = kColumnCount, kColAtoms = kCols / 16;

  float x[kColAtoms][M::kColumns];
};

// ---- ColVec ----

// f(value&) for every value, or f(value&, other's values ...) for the values of one column.
template <class M, int kCols, class F, class... Others>
ROCM_SD_DEVICE void for_each(ColVec<M, kCols>& v, const F& f, Others&&... others) {
  ROCM_SD_UNROLL
  for (int a = 0; a < kCols / 16; ++a) {
    ROCM_SD_UNROLL
    for (int c = 0; c < M::kColumns; ++c) f(v.x[a][c], others.x[a][c]...);
  }
}
template <class M, int kCols>
ROCM_SD_DEVICE void fill(ColVec<M, kCols>& v, float value) {
  for_each(v, [&](float& x) { x = value; });
}

// An element of the lane in its column number c of an atom.
template <class M>
ROCM_SD_DEVICE int element_of_slot(int c) {
  int found = 0;
  ROCM_SD_UNROLL
  for (int i = static_cast<int>(sizeof(typename M::C) / sizeof(float)) - 1; i >= 0; --i)
    found = M::lane_column(i) == c ? i : found;
  return found;
}
// f(value&, column), by every lane that holds the column.
template <class M, int kCols, class F>
ROCM_SD_DEVICE void for_each_column(ColVec<M, kCols>& v, const F& f) {
  ROCM_SD_UNROLL
  for (int a = 0; a < kCols / 16; ++a) {
    ROCM_SD_UNROLL
    for (int c = 0; c < M::kColumns; ++c) f(v.x[a][c], a * 16 + M::column(element_of_slot<M>(c)));
  }
}
// f(value, column), once per column: by the lane that holds the column's first row.
template <class M, int kCols, class F>
ROCM_SD_DEVICE void once_per_column(const ColVec<M, kCols>& v, const F& f) {
  ROCM_SD_UNROLL
  for (int a = 0; a < kCols / 16; ++a) {
    ROCM_SD_UNROLL
    for (int c = 0; c < M::kColumns; ++c) {
      const int i = element_of_slot<M>(c);
      if (M::row(i) == 0) f(v.x[a][c], a * 16 + M::column(i));
    }
  }
}
// Folds over the lanes that share a column; every one of them gets the result.
template <class M, int kCols>
ROCM_SD_DEVICE void sum_lanes(ColVec<M, kCols>& v) {
  for_each(v, [](float& x) { x = M::column_sum(x); });
}

// ---- RegTile ----

// f(element&, row, column, values of its column in the vectors ...); row and column are those of the tile.
template <class M, int kRows, int kCols, class F, class... Vecs>
ROCM_SD_DEVICE void for_each(RegTile<M, kRows, kCols>& t, const F& f, Vecs&... vecs) {
  ROCM_SD_UNROLL
  for (int a = 0; a < kCols / 16; ++a) {
    ROCM_SD_UNROLL
    for (int r = 0; r < kRows / 16; ++r) {
      ROCM_SD_UNROLL
      for (int i = 0; i < RegTile<M, kRows, kCols>::kElements; ++i)
        f(t.atoms[a][r].x[i], r * 16 + M::row(i), a * 16 + M::column(i), vecs.x[a][M::lane_column(i)]...);
    }
  }
}
template <class M, int kRows, int kCols>
ROCM_SD_DEVICE void zero(RegTile<M, kRows, kCols>& t) {
  ROCM_SD_UNROLL
  for (int a = 0; a < kCols / 16; ++a) {
    ROCM_SD_UNROLL
    for (int r = 0; r < kRows / 16; ++r) t.atoms[a][r] = typename M::C{};
  }
}
// Each column times its value.
template <class M, int kRows, int kCols>
ROCM_SD_DEVICE void scale(RegTile<M, kRows, kCols>& t, const ColVec<M, kCols>& by) {
  for_each(t, [](float& x, int, int, float factor) { x *= factor; }, by);
}
// Each column's maximum: of the lane's own elements, and of all.
template <class Arch, class M, int kRows, int kCols>
ROCM_SD_DEVICE void lane_max(ColVec<M, kCols>& most, RegTile<M, kRows, kCols>& t) {
  fill(most, -__builtin_inff());
  for_each(t, [](float& x, int, int, float& m) { m = Arch::max(m, x); }, most);
}
template <class M, int kCols>
ROCM_SD_DEVICE void max_lanes(ColVec<M, kCols>& v) {
  for_each(v, [](float& x) { x = M::column_max(x); });
}
template <class Arch, class M, int kRows, int kCols>
ROCM_SD_DEVICE void col_max(ColVec<M, kCols>& most, RegTile<M, kRows, kCols>& t) {
  lane_max<Arch>(most, t);
  max_lanes(most);
}
// t = 2^(scale t - base of the column); sums: each column's sum of the lane's own elements is added to it.
template <class Arch, class M, int kRows, int kCols>
ROCM_SD_DEVICE void exp2(RegTile<M, kRows, kCols>& t, float scale, const ColVec<M, kCols>& base) {
  if constexpr (Arch::kFloatPairs) {
    ROCM_SD_UNROLL
    for (int a = 0; a < kCols / 16; ++a) {
      ROCM_SD_UNROLL
      for (int r = 0; r < kRows / 16; ++r) {
        float* const x = t.atoms[a][r].x;
        ROCM_SD_UNROLL
        for (int i = 0; i < RegTile<M, kRows, kCols>::kElements; i += 2)
          Arch::scale_pair(x[i], x[i + 1], scale, base.x[a][M::lane_column(i)]);
      }
    }
    for_each(t, [](float& x, int, int) { x = Arch::exp2(x); });
  } else {
    for_each(t, [&](float& x, int, int, float from) { x = Arch::exp2(x * scale - from); }, base);
  }
}
template <class Arch, class M, int kRows, int kCols>
ROCM_SD_DEVICE void exp2_and_sum(RegTile<M, kRows, kCols>& t, float scale, const ColVec<M, kCols>& base,
                                 ColVec<M, kCols>& sums) {
  if constexpr (Arch::kFloatPairs) {  // two sums: of a lane's even and odd elements
    exp2<Arch>(t, scale, base);
    ColVec<M, kCols> odd;
    fill(odd, 0);
    ROCM_SD_UNROLL
    for (int a = 0; a < kCols / 16; ++a) {
      ROCM_SD_UNROLL
      for (int n = 0; n < kRows / 16 * RegTile<M, kRows, kCols>::kElements; ++n) {
        const int r = n / RegTile<M, kRows, kCols>::kElements, i = n % RegTile<M, kRows, kCols>::kElements;
        (n % 2 == 0 ? sums : odd).x[a][M::lane_column(i)] += t.atoms[a][r].x[i];
      }
    }
    for_each(sums, [](float& x, float other) { x += other; }, odd);
  } else {
    for_each(
        t,
        [&](float& x, int, int, float from, float& sum) {
          x = Arch::exp2(x * scale - from);
          sum += x;
        },
        base, sums);
  }
}
// The tile's row kRow as values of the columns, in every lane of the column.
template <int kRow, class M, int kRows, int kCols>
ROCM_SD_DEVICE void select_row(ColVec<M, kCols>& v, const RegTile<M, kRows, kCols>& t) {
  fill(v, 0);
  ROCM_SD_UNROLL
  for (int a = 0; a < kCols / 16; ++a) {
    ROCM_SD_UNROLL
    for (int i = 0; i < RegTile<M, kRows, kCols>::kElements; ++i)
      if (M::row(i) == kRow % 16) v.x[a][M::lane_column(i)] += t.atoms[a][kRow / 16].x[i];
  }
  sum_lanes(v);
}

// ---- from and to LDS ----

// The rows of `tile` become columns of the operand.
template <class M, int kCols, int kDepth, class T, class Layout>
ROCM_SD_DEVICE void load(ColOperand<M, kCols, kDepth>& b, const LdsTile<T, kCols, kDepth, Layout>& tile) {
  ROCM_SD_UNROLL
  for (int a = 0; a < kCols / 16; ++a) {
    ROCM_SD_UNROLL
    for (int d = 0; d < kDepth / 16; ++d) b.atoms[a][d] = M::load_b(tile.at(a * 16, d * 16), Layout::kLd);
  }
}
// The columns of t become rows of `tile`, rounded to its type.
template <class T, class Layout, class M, int kRows, int kCols>
ROCM_SD_DEVICE void store_columns(const LdsTile<T, kCols, kRows, Layout>& tile,
                                  const RegTile<M, kRows, kCols>& t) {
  ROCM_SD_UNROLL
  for (int a = 0; a < kCols / 16; ++a) {
    ROCM_SD_UNROLL
    for (int r = 0; r < kRows / 16; ++r)
      M::store_columns(tile.at(a * 16, r * 16), Layout::kLd, t.atoms[a][r]);
  }
}

}  // namespace rocm_sd
