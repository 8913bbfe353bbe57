// Where windows lie, for every length up to a bound, and what a plan with tiles takes. Pictures in tiles are
// compared with Diffusers' UNet by tests/integration_tests/test_tiled_diffusion.py.
#include "pipeline/tile_grid.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"
#include "pipeline/load.hpp"
#include "runtime/devices.hpp"

namespace rocm_sd {
namespace {

TEST(TileGrid, CoversWithTheFewestWindowsThatOverlapEnough) {
  for (int64_t length = 1; length <= 40; ++length)
    for (int64_t tile = 1; tile <= 12; ++tile)
      for (int64_t overlap = 0; overlap < tile; ++overlap) {
        const auto begins = tile_begins(length, tile, overlap);
        const std::string what = concat(length, " by ", tile, " over ", overlap);
        if (tile >= length) {
          EXPECT_EQ(begins, std::vector<int64_t>{0}) << what;
          continue;
        }
        ASSERT_EQ(begins.front(), 0) << what;
        ASSERT_EQ(begins.back() + tile, length) << what;
        int64_t least = length, most = 0;
        for (size_t i = 1; i < begins.size(); ++i) {
          const int64_t step = begins[i] - begins[i - 1];
          ASSERT_GE(tile - step, overlap) << what;
          least = std::min(least, step);
          most = std::max(most, step);
        }
        ASSERT_LE(most - least, 1) << what << ": evenly spread";
        const auto windows = static_cast<int64_t>(begins.size());
        ASSERT_LT((windows - 2) * (tile - overlap) + tile, length) << what << ": one fewer would do";
      }
}

TEST(TileGrid, WeightsAreSymmetricAndGreatestInTheMiddle) {
  const TileGrid grid{.height = 6, .width = 9, .rows = {0}, .cols = {0}, .weights = TileWeights::kGaussian};
  const std::vector<double> weights = window_weights(grid);
  ASSERT_EQ(weights.size(), 54u);
  for (size_t i = 0; i < weights.size(); ++i) EXPECT_NEAR(weights[i], weights[53 - i], 1e-15);
  EXPECT_EQ(std::max_element(weights.begin(), weights.end()) - weights.begin(), 2 * 9 + 4);
  EXPECT_GT(weights.front(), 0);
}

TEST(TileGrid, NamesWhatItRefuses) {
  const auto message = [](GenerateRequest request) {
    try {
      make_tile_grid(request, 16, 16, 8);
    } catch (const UsageError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(message({.tile_size = 64, .tile_overlap = 8, .tile_batch = 3, .tile_weights = "gaussian"}), "");
  EXPECT_EQ(message({.tile_size = -8}), "tile-size: expected a multiple of 8, or 0 for none, got -8");
  EXPECT_EQ(message({.tile_size = 64, .tile_overlap = -2}),
            "tile-overlap: expected a multiple of 8 below tile-size (64), got -2");
  EXPECT_EQ(message({.tile_overlap = 8}), "tile-overlap: needs tile-size");
  EXPECT_EQ(message({.tile_size = 64, .tile_batch = 65}), "tile-batch: expected 1 to 64, got 65");
  EXPECT_EQ(message({.tile_weights = "flat"}), "tile-weights: expected uniform or gaussian, got \"flat\"");
}

TEST(TileGrid, ThePlanIsThatOfAWindow) {
  Pipeline pipeline = load_pipeline(
      {.model = std::string(ROCM_SD_SOURCE_DIR) + "/models/demo", .dtype = "f32"}, host_device());
  const auto unet = [&](int size, int batch, int tile, int tile_batch) {
    GenerateRequest request{.prompt = "a red apple", .width = size, .height = size, .batch = batch};
    request.tile_size = tile;
    request.tile_batch = tile_batch;
    return pipeline.plan(request).unet;
  };
  const uint64_t window = unet(64, 1, 0, 1);
  EXPECT_EQ(unet(512, 1, 64, 1), window) << "64 times the picture";
  EXPECT_GT(unet(512, 1, 0, 1), 8 * window);
  EXPECT_EQ(unet(512, 1, 64, 3), unet(64, 3, 0, 1));
  EXPECT_EQ(unet(64, 1, 512, 8), window) << "a window is no larger than the picture, nor in a call twice";
}

}  // namespace
}  // namespace rocm_sd
