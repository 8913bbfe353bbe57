// The ops of token merging against their definitions, at odd sizes too, over memory full of NaN; ties, rows
// of zeros and of NaN; the whole of it against a plain rewriting; refusals. Their examples run with those of
// all ops (measurement/runner_test.cpp).
#include "kernels/token_merge/token_merge.hpp"

#include <algorithm>
#include <numeric>

#include "kernels/select.hpp"
#include "support/tensor_testing.hpp"
#include "support/token_merging.hpp"

namespace rocm_sd::testing_support {

const std::vector<TokenGrid> kGrids = {{1, 1}, {1, 6}, {2, 2}, {3, 2}, {2, 5}, {7, 9}, {8, 8}, {5, 16}};
constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

TEST(TokenGrid, SquaresHaveOneDestinationEachAndEveryTokenAPlace) {
  for (const TokenGrid& grid : kGrids) {
    std::vector<int64_t> places;
    int64_t destinations = 0;
    for (int64_t t = 0; t < grid.tokens(); ++t) {
      const int64_t y = t / grid.width, x = t % grid.width;
      const bool whole = y / 2 * 2 + 1 < grid.height && x / 2 * 2 + 1 < grid.width;
      EXPECT_EQ(grid.is_destination(t), whole && y % 2 == 0 && x % 2 == 0);
      EXPECT_EQ(grid.destinations_before(t), destinations) << grid.height << "x" << grid.width << " " << t;
      if (grid.is_destination(t)) {
        EXPECT_EQ(grid.sorted(t), destinations);
        ++destinations;
      }
      places.push_back(grid.sorted(t));
    }
    EXPECT_EQ(grid.destinations(), destinations);
    std::ranges::sort(places);
    for (int64_t t = 0; t < grid.tokens(); ++t) EXPECT_EQ(places[static_cast<size_t>(t)], t);
  }
}

TEST(UnitTokens, AreTheRowsByTheirLengthsDestinationsFirst) {
  for (const DType dtype : kTypes)
    for (const TokenGrid& grid : kGrids)
      for (const char* impl : {"scalar", "ref"})
        for (const int64_t channels : {1, 3, 70}) {
          const ForcedImpl only("unit_tokens", impl);
          TestExec test;
          const Tensor x = random_tensor({2, grid.tokens(), channels}, dtype, 3);
          const Tensor y = unit_tokens(test.ex, x, grid, dtype);
          expect_tensor_near(y, unit_rows(to_doubles(x), 2, grid, channels), 8 * unit_roundoff(dtype), impl);
          if (dtype == DType::kF32)
            expect_tensor_near(unit_tokens(test.ex, x, grid, DType::kF16),
                               unit_rows(to_doubles(x), 2, grid, channels), 8 * unit_roundoff(DType::kF16),
                               impl);
        }
}

TEST(UnitTokens, ARowOfZerosStaysOne) {
  TestExec test;
  const std::vector<float> zeros(12);
  for (const double v : to_doubles(
           unit_tokens(test.ex, tensor_from(test.device, {1, 4, 3}, zeros.data()), {2, 2}, DType::kF32)))
    EXPECT_EQ(v, 0);
}

TEST(ProductOfRows, IsTheMatrixProduct) {
  for (const auto& [rows, columns, depth] :
       {std::array<int64_t, 3>{1, 1, 1}, {3, 1, 7}, {17, 5, 40}, {75, 33, 323}, {192, 64, 64}}) {
    TestExec test;
    const Tensor a = random_tensor({rows, depth}, DType::kF32, 5),
                 b = random_tensor({columns, depth}, DType::kF32, 6);
    expect_tensor_near(product_of_rows(test.ex, a, b), products(to_doubles(a), to_doubles(b), depth),
                       reduction_tolerance(DType::kF32, depth), concat(rows, "x", columns, "x", depth));
  }
}

TEST(RowArgmax, FindsTheFirstOfTheGreatest) {
  for (const DType dtype : kTypes)
    for (const auto& [rows, cols] :
         {std::pair<int64_t, int64_t>{0, 3}, {1, 1}, {5, 31}, {70, 200}, {2, 4099}})
      for (const char* impl : {"scalar", "ref"}) {
        const ForcedImpl only("row_argmax", impl);
        TestExec test;
        const Tensor x = random_tensor({rows, cols}, dtype, 3, 0.01f);  // in 16 bits many are equal
        EXPECT_EQ(to_doubles(row_argmax(test.ex, x)), greatest(to_doubles(x), rows, cols))
            << impl << " " << dtype_name(dtype);
      }
}

TEST(RowArgmax, PassesOverNaNs) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), low = -std::numeric_limits<float>::infinity();
  const std::vector<float> values = {nan, -3, nan, -3, nan, nan, nan, nan, low, low, low, low};
  for (const char* impl : {"scalar", "ref"}) {
    const ForcedImpl only("row_argmax", impl);
    TestExec test;
    const double lowest = low;
    EXPECT_EQ(to_doubles(row_argmax(test.ex, tensor_from(test.device, {3, 4}, values.data()))),
              (std::vector<double>{-3, 1, lowest, 0, lowest, 0}))
        << impl;
  }
}

TEST(TokenPlaces, RankTheSourcesAndShareTheDestinations) {
  for (const TokenGrid& grid : kGrids)
    for (const bool ties : {false, true})
      for (const char* impl : {"scalar", "ref"}) {
        if (grid.destinations() == 0) continue;
        const ForcedImpl only("token_places", impl);
        TestExec test;
        const std::vector<float> matches = random_matches(2, grid, 9, ties);
        const Tensor x = tensor_from(test.device, {2, grid.sources(), 2}, matches.data());
        for (const int64_t merged : {int64_t{0}, int64_t{1}, grid.sources() / 2, grid.sources()})
          EXPECT_EQ(to_doubles(token_places(test.ex, x, grid, merged)), places_of(matches, 2, grid, merged))
              << impl << " " << grid.height << "x" << grid.width << " " << merged;
      }
}

TEST(MergeTokens, AreMeansAndComeApartAgain) {
  for (const DType dtype : kTypes)
    for (const int64_t channels : {1, 70, 400})
      for (const char* impl : {"scalar", "ref"}) {
        const ForcedImpl first("merge_tokens", impl), second("unmerge_tokens", impl);
        TestExec test;
        const TokenGrid grid{7, 9};
        const int64_t merged = 30, groups = grid.tokens() - merged;
        const std::vector<double> places = places_of(random_matches(3, grid, 4, false), 3, grid, merged);
        const std::vector<float> stored(places.begin(), places.end());
        const Tensor at = tensor_from(test.device, {3, grid.tokens()}, stored.data());
        const Tensor x = random_tensor({3, grid.tokens(), channels}, dtype, 5);
        const Tensor residual = random_tensor(x.shape(), dtype, 6);
        const Tensor y = merge_tokens(test.ex, x, at, groups);
        expect_tensor_near(y, means_of(to_doubles(x), places, 3, groups, channels), 4 * unit_roundoff(dtype),
                           impl);
        expect_tensor_near(unmerge_tokens(test.ex, y, at, residual),
                           taken_apart(to_doubles(y), places, to_doubles(residual), 3, channels),
                           4 * unit_roundoff(dtype), impl);
      }
}

TEST(MergeTokens, GroupsOfNoneAreZeroAndMapsMayBeWider) {
  TestExec test;
  const std::vector<float> places = {2, 0, 2, 2};
  const Tensor at = tensor_from(test.device, {1, 4}, places.data());
  const Tensor y = merge_tokens(test.ex, random_tensor({1, 4, 5}, DType::kF16, 5), at, 4);
  const std::vector<double> rows = to_doubles(y);
  for (size_t c = 0; c < 5; ++c) EXPECT_EQ(rows[5 + c], 0) << c;
  EXPECT_EQ(unmerge_tokens(test.ex, y, at, random_tensor({1, 4, 5}, DType::kF32, 6)).dtype(), DType::kF32);
}

TEST(TokenMerging, RefusesOtherShapesAndTypes) {
  TestExec test;
  const TokenGrid grid{4, 4};
  const auto f32 = [](const Shape& shape) { return random_tensor(shape, DType::kF32, 1); };
  EXPECT_THROW(unit_tokens(test.ex, f32({1, 15, 4}), grid, DType::kF32), ShapeError);
  EXPECT_THROW(row_argmax(test.ex, f32({4, 0})), ShapeError);
  EXPECT_THROW(row_argmax(test.ex, f32({4})), ShapeError);
  EXPECT_THROW(product_of_rows(test.ex, f32({4, 3}), f32({4, 5})), ShapeError);
  EXPECT_THROW(token_places(test.ex, f32({1, 12, 2}), grid, 13), ShapeError);
  EXPECT_THROW(token_places(test.ex, f32({1, 11, 2}), grid, 3), ShapeError);
  EXPECT_THROW(merge_tokens(test.ex, f32({1, 16, 4}), f32({1, 15}), 9), ShapeError);
  EXPECT_THROW(unmerge_tokens(test.ex, f32({1, 9, 4}), f32({1, 16}), f32({1, 16, 5})), ShapeError);
  EXPECT_THROW(unmerge_tokens(test.ex, f32({1, 9, 4}), f32({2, 16}), f32({1, 16, 4})), ShapeError);
}

}  // namespace rocm_sd::testing_support
