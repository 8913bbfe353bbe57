// Where the windows of a tiled picture lie (tiles.hpp).
#pragma once

#include <cstdint>
#include <vector>

#include "rocm_sd/pipeline.hpp"

namespace rocm_sd {

enum class TileWeights { kUniform, kGaussian };

// The windows of one picture, in latents. Where the picture is not tiled: one that covers it.
struct TileGrid {
  int64_t height = 0, width = 0;    // of a window
  std::vector<int64_t> rows, cols;  // where windows begin; there is one for each pair
  int64_t batch = 1;                // windows in one call of the UNet
  TileWeights weights = TileWeights::kUniform;

  int64_t count() const { return static_cast<int64_t>(rows.size() * cols.size()); }
};

// The fewest windows of `tile` that overlap by at least `overlap` and cover `length`, evenly spread: where
// they begin. 0 <= overlap < tile; a tile that is longer than the picture begins at 0 alone.
std::vector<int64_t> tile_begins(int64_t length, int64_t tile, int64_t overlap);

// The overlap that a request asks for, in pixels: by default half a window.
int resolved_tile_overlap(const GenerateRequest& request, int64_t downscale);

// The grid that a request asks for, for latents [height,width] of `downscale` pixels each. Throws UsageError
// naming the option.
TileGrid make_tile_grid(const GenerateRequest& request, int64_t height, int64_t width, int64_t downscale);

// What each value of a window counts in the average, [height,width].
std::vector<double> window_weights(const TileGrid& grid);

}  // namespace rocm_sd
