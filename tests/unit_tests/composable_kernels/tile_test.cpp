// The nouns of tile/ and the pipelines, with one lane: small integers, which 16-bit floats hold exactly, so
// that every result is compared for equality with plain loops.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "composable_kernels/arch/scalar.hpp"
#include "composable_kernels/pipeline/policy.hpp"
#include "composable_kernels/tile/mma.hpp"

namespace rocm_sd {
namespace {

using M = Atom<Scalar, Half>;

// An integer of [-4, 4] for each place and seed.
float value_at(int row, int column, int seed) {
  return static_cast<float>((row * 31 + column * 17 + seed * 7) % 9 - 4);
}

template <class Tile>
struct Lds {
  alignas(16) std::vector<Half> memory = std::vector<Half>(Tile::kElements + 8);
  Tile tile() {
    return {reinterpret_cast<Half*>((reinterpret_cast<uintptr_t>(memory.data()) + 15) / 16 * 16)};
  }
  explicit Lds(int seed) {
    for (int r = 0; r < Tile::kRows; ++r)
      for (int c = 0; c < Tile::kCols; ++c) store(*tile().at(r, c), value_at(r, c, seed));
  }
};

template <int kRows, int kCols>
RegTile<M, kRows, kCols> accumulators(int seed) {
  RegTile<M, kRows, kCols> t;
  for_each(t, [&](float& x, int r, int c) { x = value_at(r, c, seed); });
  return t;
}

// c + sum over k of a(row, k) b(k, column), for every element.
template <int kRows, int kCols, class A, class B>
void expect_product(RegTile<M, kRows, kCols>& got, int depth, const A& a, const B& b) {
  for_each(got, [&](float x, int r, int c) {
    float want = value_at(r, c, 9);
    for (int k = 0; k < depth; ++k) want += a(r, k) * b(k, c);
    EXPECT_EQ(x, want) << r << ", " << c;
  });
}
float a_of(int r, int k) { return value_at(r, k, 1); }
float a_transposed(int r, int k) { return value_at(k, r, 1); }
float b_of(int k, int c) { return value_at(k, c, 2); }
float b_transposed(int k, int c) { return value_at(c, k, 2); }

template <class Layout>
void expect_bijective() {
  using Tile = LdsTile<Half, 32, 64, Layout>;
  std::set<int> places;
  for (int r = 0; r < 32; ++r)
    for (int c = 0; c < 64; ++c) {
      const int at = Layout::element(r, c);
      EXPECT_TRUE(at >= 0 && at < Tile::kElements && places.insert(at).second) << r << ", " << c;
    }
}

TEST(LdsTile, LayoutsGiveEveryElementAPlaceOfItsOwn) {
  expect_bijective<RowMajor<64>>();
  expect_bijective<RowMajor<72>>();
  expect_bijective<ColumnMajor<36>>();
  expect_bijective<SwizzledRows<64, 8>>();
}

TEST(LdsTile, SwizzleKeepsPiecesWholeAndBeginsAnewAfterEightRows) {
  using Layout = SwizzledRows<64, 8>;
  for (int r = 0; r < 32; ++r)
    for (int c = 0; c < 64; ++c) {
      EXPECT_EQ(Layout::element(r, c), Layout::element(r, c / 8 * 8) + c % 8);
      EXPECT_EQ(Layout::element(r + 8, c), Layout::element(r, c) + 8 * Layout::kLd);
    }
  for (int c = 0; c < 64;
       c += 8) {  // eight rows' pieces of one column lie in eight different pieces of a row
    std::set<int> pieces;
    for (int r = 0; r < 8; ++r) pieces.insert(Layout::element(r, c) % 64);
    EXPECT_EQ(pieces.size(), 8U);
  }
}

TEST(LdsTile, PartsAreWhereTheWholeHasThem) {
  Lds<LdsTile<Half, 48, 80, RowMajor<88>>> rows(1);
  Lds<LdsTile<Half, 48, 80, ColumnMajor<56>>> columns(1);
  const auto a = columns_from<16>(rows_from<16>(rows.tile(), 32), 48);
  const auto b = columns_from<16>(rows_from<16>(columns.tile(), 32), 48);
  for (int r = 0; r < 16; ++r)
    for (int c = 0; c < 16; ++c) {
      EXPECT_EQ(to_float(*a.at(r, c)), value_at(32 + r, 48 + c, 1));
      EXPECT_EQ(to_float(*b.at(r, c)), value_at(32 + r, 48 + c, 1));
    }
}

TEST(Mma, StreamedABt) {
  Lds<LdsTile<Half, 48, 80, RowMajor<88>>> a(1);
  Lds<LdsTile<Half, 32, 80, RowMajor<84>>> b(2);
  ColOperand<M, 32, 80> held;
  load(held, b.tile());
  auto c = accumulators<48, 32>(9), again = c;
  mma_ABt<Scalar>(c, stream(a.tile()), held);
  mma_ABt<Scalar>(again, stream(a.tile()), b.tile());
  expect_product(c, 80, a_of, b_transposed);
  expect_product(again, 80, a_of, b_transposed);
}

TEST(Mma, StreamedAtBFromEitherLayout) {
  Lds<LdsTile<Half, 32, 48, RowMajor<56>>> rows(1);
  Lds<LdsTile<Half, 32, 48, ColumnMajor<40>>> columns(1);
  const auto b = accumulators<32, 16>(2);
  auto c = accumulators<48, 16>(9), again = c;
  ColVec<Atom<Scalar, Half>, 16> unused;
  mma_AtB<Scalar, false>(c, stream(rows.tile()), b, unused);
  mma_AtB<Scalar, false>(again, stream(columns.tile()), b, unused);
  expect_product(c, 32, a_transposed, b_of);
  expect_product(again, 32, a_transposed, b_of);
}

TEST(Mma, OfTwoTilesInLds) {
  Lds<LdsTile<Half, 48, 32, RowMajor<40>>> a(1);
  Lds<LdsTile<Half, 32, 48, ColumnMajor<40>>> at(1);
  Lds<LdsTile<Half, 64, 32, RowMajor<40>>> b(2);
  auto c = accumulators<48, 64>(9), again = c;
  mma_ABt<Scalar>(c, a.tile(), b.tile());
  mma_AtBt<Scalar>(again, at.tile(), b.tile());
  expect_product(c, 32, a_of, b_transposed);
  expect_product(again, 32, a_transposed, b_transposed);
}

TEST(RegTile, ColumnsAreFoldedScaledAndSelected) {
  auto t = accumulators<48, 32>(3);
  ColVec<M, 32> most, chosen;
  col_max<Scalar>(most, t);
  select_row<37>(chosen, t);
  for_each_column(most, [](float x, int c) {
    float want = -5;
    for (int r = 0; r < 48; ++r) want = std::max(want, value_at(r, c, 3));
    EXPECT_EQ(x, want) << c;
  });
  ColVec<M, 32> own;
  lane_max<Scalar>(own, t);
  max_lanes(own);
  for_each(own, [](float x, float all) { EXPECT_EQ(x, all); }, most);
  for_each_column(chosen, [](float x, int c) { EXPECT_EQ(x, value_at(37, c, 3)) << c; });
  scale(t, most);
  for_each(t, [&](float x, int r, int c) { EXPECT_EQ(x, value_at(r, c, 3) * most.x[c / 16][c % 16]); });
  std::multiset<int> columns;
  once_per_column(most, [&](float, int c) { columns.insert(c); });
  for (int c = 0; c < 32; ++c) EXPECT_EQ(columns.count(c), 1U);
}

TEST(RegTile, PowersOfTwoAndTheirSums) {
  auto t = accumulators<32, 16>(4), plain = t;
  ColVec<M, 16> base, sums;
  for_each_column(base, [](float& x, int c) { x = static_cast<float>(c % 3); });
  fill(sums, 1);
  exp2_and_sum<Scalar>(t, 2, base, sums);
  exp2<Scalar>(plain, 2, base);
  std::vector<float> want(16, 1);
  for_each(t, [&](float x, int r, int c) {
    EXPECT_EQ(x, std::exp2(2 * value_at(r, c, 4) - static_cast<float>(c % 3)));
    want[static_cast<size_t>(c)] += x;  // powers of two of a narrow range: exact in any order
  });
  for_each(plain, [&](float x, int r, int c) {
    EXPECT_EQ(x, std::exp2(2 * value_at(r, c, 4) - static_cast<float>(c % 3)));
  });
  for_each_column(sums, [&](float x, int c) { EXPECT_EQ(x, want[static_cast<size_t>(c)]); });
}

TEST(RegTile, ColumnsBecomeRows) {
  Lds<LdsTile<Half, 32, 48, RowMajor<56>>> lds(0);
  const auto t = accumulators<48, 32>(6);
  store_columns(lds.tile(), t);
  for (int r = 0; r < 32; ++r)
    for (int c = 0; c < 48; ++c) EXPECT_EQ(to_float(*lds.tile().at(r, c)), value_at(c, r, 6));
}

// ---- copies and pipelines ----

struct Matrix {
  std::vector<Half> memory;
  int rows;
  Matrix(int row_count, int seed) : memory(static_cast<size_t>(row_count) * 96), rows(row_count) {
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < 96; ++c) store(memory[static_cast<size_t>(r * 96 + c)], value_at(r, c, seed));
  }
  GlobalView<const Half> view() const { return {memory.data(), 96, rows}; }
};

// Rows [first, ...) of a matrix with `rows` rows, from column `column` on; rows behind the last repeat it.
template <class Tile>
void expect_rows(const Tile& tile, int first, int rows, int column, int width, int seed) {
  for (int r = 0; r < Tile::kRows; ++r)
    for (int c = 0; c < width; ++c)
      ASSERT_EQ(to_float(*tile.at(r, c)), value_at(std::min(first + r, rows - 1), column + c, seed))
          << "row " << first << " + " << r << ", column " << c;
}

template <class Policy, class Layout>
void check_copy() {
  using Tile = LdsTile<Half, 32, 48, Layout>;
  Lds<Tile> lds(0);
  const Matrix matrix(41, 5);
  typename Policy::template Copy<Scalar, 1, 40, Tile> copy;
  copy.issue(rows_from(matrix.view(), 16, 32), lds.tile());
  copy.land(lds.tile());
  Policy::template commit<Scalar>();
  Policy::template wait<Scalar>();
  expect_rows(lds.tile(), 16, 41, 0, 40, 5);
  for (int r = 0; r < 32; ++r)  // what lies beyond the copied columns stays
    for (int c = 40; c < 48; ++c) EXPECT_EQ(to_float(*lds.tile().at(r, c)), value_at(r, c, 0));
  fill_columns<Scalar, 1, 40>(lds.tile(), [](int c) { return c == 40 ? 1.0f : 0.0f; });
  for (int r = 0; r < 32; ++r)
    EXPECT_EQ(to_float(*lds.tile().at(r, 41)) + to_float(*lds.tile().at(r, 40)), 1);
  expect_rows(lds.tile(), 16, 41, 0, 40, 5);
}

TEST(Pipeline, CopiesRowsAndRepeatsTheLast) {
  check_copy<RegisterStaged, RowMajor<56>>();
  check_copy<RegisterStaged, ColumnMajor<36>>();
  check_copy<RegisterStaged, ColumnMajor<36, 12>>();
  check_copy<AsyncCopies, RowMajor<56>>();
}

TEST(Pipeline, StoresTheRowsThatExist) {
  Lds<LdsTile<Half, 32, 48, RowMajor<52>>> lds(3);
  std::vector<Half> out(40 * 64, Half{0x7e00});
  store_rows<Scalar, 1, 40>(GlobalView<Half>{out.data(), 64, 21}, lds.tile());
  for (int r = 0; r < 40; ++r)
    for (int c = 0; c < 64; ++c) {
      const Half x = out[static_cast<size_t>(r * 64 + c)];
      if (r < 21 && c < 40)
        EXPECT_EQ(to_float(x), value_at(r, c, 3));
      else
        EXPECT_EQ(x.bits, 0x7e00) << r << ", " << c;
    }
}

template <bool kTransposed, int kStageCount>
struct PairShape {
  using Arch = Scalar;
  static constexpr int kThreads = 1, kStages = kStageCount, kWidth = 40;
  using KeyTile = LdsTile<Half, 32, 48, RowMajor<56>>;
  using ValueTile = LdsTile<Half, 32, 48, std::conditional_t<kTransposed, ColumnMajor<40>, RowMajor<56>>>;
};
template <bool kTransposed, int kStageCount>
struct ChunkShape {
  using Arch = Scalar;
  static constexpr int kThreads = 1, kStages = kStageCount;
  using KeyChunk = LdsTile<Half, 48, 32, RowMajor<40>>;  // 3 chunks of channels, 3 of keys
  using ValueChunk = LdsTile<Half, 16, 96, std::conditional_t<kTransposed, ColumnMajor<24>, RowMajor<104>>>;
};

std::vector<Half> poisoned(int elements) {
  return std::vector<Half>(static_cast<size_t>(elements) + 8, Half{0x7e00});
}
Half* aligned(std::vector<Half>& memory) {
  return reinterpret_cast<Half*>((reinterpret_cast<uintptr_t>(memory.data()) + 15) / 16 * 16);
}

// Keys are whole until keys_read(), values until values_read(), for ends within and at the end of a tile.
template <class Policy, class Shape>
void check_pairs() {
  for (const int rows : {1, 32, 33, 95, 160}) {
    const Matrix keys(rows, 1), values(rows, 2);
    using Tiles = typename Policy::template Pairs<Shape>;
    std::vector<Half> lds = poisoned(Tiles::kLdsElements);
    Tiles tiles(aligned(lds), keys.view(), values.view());
    tiles.start(0);
    for (int first = 0; first < rows; first += 32) {
      tiles.begin(first);
      expect_rows(tiles.keys(), first, rows, 0, 40, 1);
      tiles.keys_read();
      expect_rows(tiles.values(), first, rows, 0, 40, 2);
      tiles.values_read();
    }
  }
}

TEST(Pipeline, PairsArriveInOrderAndStayUntilTheyAreRead) {
  check_pairs<RegisterStaged, PairShape<true, 1>>();
  check_pairs<RegisterStaged, PairShape<true, 2>>();
  check_pairs<RegisterStaged, PairShape<false, 2>>();
  check_pairs<AsyncCopies, PairShape<false, 2>>();
  check_pairs<AsyncCopies, PairShape<false, 3>>();
}

template <class Policy, class Shape>
void check_chunks() {
  for (const int rows : {1, 16, 48, 49, 130}) {
    const Matrix keys(rows, 1), values(rows, 2);
    using Chunks = typename Policy::template Chunks<Shape>;
    static_assert(Chunks::kKeyChunks == 3 && Chunks::kValueChunks == 3);
    std::vector<Half> lds = poisoned(Chunks::kLdsElements);
    Chunks chunks(aligned(lds), keys.view(), values.view());
    chunks.start(0);
    for (int first = 0; first < rows; first += 48)
      for (int n = 0; n < 6; ++n) {
        chunks.begin(first, n);
        if (n < 3)
          expect_rows(chunks.keys(n), first, rows, n * 32, 32, 1);
        else
          expect_rows(chunks.values(n), first + (n - 3) * 16, rows, 0, 96, 2);
        chunks.end(n);
      }
  }
}

TEST(Pipeline, ChunksArriveInOrderAndStayUntilTheyAreRead) {
  check_chunks<RegisterStaged, ChunkShape<true, 1>>();
  check_chunks<RegisterStaged, ChunkShape<false, 2>>();
  check_chunks<AsyncCopies, ChunkShape<false, 2>>();
  check_chunks<AsyncCopies, ChunkShape<false, 3>>();
}

}  // namespace
}  // namespace rocm_sd
