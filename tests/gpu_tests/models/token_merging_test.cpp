// Which tokens are merged, on the GPU against the host, and as a graph.
#include "models/token_merging.hpp"

#include <gtest/gtest.h>

#include "gpu_tests/against_reference.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;

TEST(TokenMergingOnGpu, ChoosesTheTokensThatTheHostChooses) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32})
    for (const TokenGrid& grid : {TokenGrid{7, 9}, TokenGrid{16, 24}}) {
      const int64_t merged = grid.tokens() / 2, channels = 64;
      const Tensor x = random_tensor({2, grid.tokens(), channels}, dtype, 11);
      const PlacedOp op = [&](Exec& ex, const Place& place) {
        const Tensor placed = place(x);
        const bool host = ex.device().kind() == DeviceKind::kHost;
        return match_tokens(ex, host ? cast(ex, placed, DType::kF32) : placed, grid, merged, dtype);
      };
      const std::vector<double> got = on_gpu("token_places", op), want = on_host("token_places", op);
      // Rounding may swap neighbours in the order of similarity: of those that stay, the order is no matter.
      const auto choice = [&](double place) {
        return std::min(place, static_cast<double>(grid.destinations()));
      };
      size_t same = 0;
      for (size_t i = 0; i < got.size(); ++i) same += choice(got[i]) == choice(want[i]);
      EXPECT_GE(static_cast<double>(same),
                (dtype == DType::kF32 ? 1.0 : 0.95) * static_cast<double>(got.size()))
          << dtype_name(dtype) << " " << grid.tokens();
      expect_same_bits_as_graph(op, concat(dtype));
    }
}

}  // namespace
}  // namespace rocm_sd
