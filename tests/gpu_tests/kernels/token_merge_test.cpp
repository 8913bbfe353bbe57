// The ops of token merging on the GPU against the reference: odd sizes, every type, equal similarities.
#include "kernels/token_merge/token_merge.hpp"

#include <gtest/gtest.h>

#include "gpu_tests/against_reference.hpp"
#include "support/token_merging.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;

const std::vector<DType> kTypes = {DType::kF16, DType::kBF16, DType::kF32};
const std::vector<TokenGrid> kGrids = {{2, 2}, {3, 2}, {7, 9}, {16, 24}};

TEST(GpuTokenMerge, UnitTokens) {
  for (const DType from : kTypes)
    for (const DType to : kTypes)
      for (const TokenGrid& grid : kGrids)
        for (const int64_t channels : {1, 40, 323}) {
          if (grid.tokens() > 100 && channels > 1) continue;  // the reference seeks each token
          if (from != to && from != DType::kF32) continue;
          const Tensor x = random_tensor({2, grid.tokens(), channels}, from, 3);
          expect_like_reference(
              "unit_tokens",
              [&](Exec& ex, const Place& place) { return unit_tokens(ex, place(x), grid, to); },
              8 * unit_roundoff(to), concat(from, " ", to, " ", channels));
        }
}

TEST(GpuTokenMerge, RowArgmaxTakesTheFirst) {
  for (const DType dtype : kTypes)
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 1}, {5, 31}, {70, 200}, {2, 4099}}) {
      const Tensor x = random_tensor({rows, cols}, dtype, 3, 0.01f);  // in 16 bits many are equal
      const PlacedOp op = [&](Exec& ex, const Place& place) { return row_argmax(ex, place(x)); };
      EXPECT_EQ(on_gpu("row_argmax", op), greatest(to_doubles(x), rows, cols))
          << dtype_name(dtype) << " " << cols;
    }
}

TEST(GpuTokenMerge, Places) {
  for (const TokenGrid& grid : kGrids)
    for (const bool ties : {false, true}) {
      const std::vector<float> matches = random_matches(2, grid, 9, ties);
      const Tensor x = tensor_from(host_device(), {2, grid.sources(), 2}, matches.data());
      for (const int64_t merged : {int64_t{0}, grid.sources() / 2, grid.sources()}) {
        const PlacedOp op = [&](Exec& ex, const Place& place) {
          return token_places(ex, place(x), grid, merged);
        };
        EXPECT_EQ(on_gpu("token_places", op), places_of(matches, 2, grid, merged)) << grid.tokens();
      }
    }
}

TEST(GpuTokenMerge, MergesAndUnmerges) {
  const TokenGrid grid{7, 9};
  const int64_t merged = 30, left = grid.tokens() - merged;
  const std::vector<double> places = places_of(random_matches(2, grid, 4, false), 2, grid, merged);
  const std::vector<float> stored(places.begin(), places.end());
  const Tensor at = tensor_from(host_device(), {2, grid.tokens()}, stored.data());
  for (const DType dtype : kTypes)
    for (const int64_t channels : {1, 40, 323, 700}) {
      const Tensor x = random_tensor({2, grid.tokens(), channels}, dtype, 5);
      const Tensor y = random_tensor({2, left, channels}, dtype, 6);
      expect_like_reference(
          "merge_tokens",
          [&](Exec& ex, const Place& place) { return merge_tokens(ex, place(x), place(at), left); },
          4 * unit_roundoff(dtype), concat("merge ", dtype, " ", channels));
      for (const DType result : {dtype, DType::kF32}) {
        const Tensor residual = random_tensor(x.shape(), result, 7);
        expect_like_reference(
            "unmerge_tokens",
            [&](Exec& ex, const Place& place) {
              return unmerge_tokens(ex, place(y), place(at), place(residual));
            },
            4 * unit_roundoff(result), concat("unmerge ", dtype, " ", channels));
      }
    }
}

}  // namespace
}  // namespace rocm_sd
