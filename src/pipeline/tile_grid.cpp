#include "pipeline/tile_grid.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

constexpr double kGaussianVariance = 0.01;  // of the window's side squared: Mixture of Diffusers' own

TileWeights parse_tile_weights(const std::string& name) {
  if (name == "uniform") return TileWeights::kUniform;
  require<UsageError>(name == "gaussian", "tile-weights: expected uniform or gaussian, got \"",
                      printable(name), "\"");
  return TileWeights::kGaussian;
}

// A window's weights along one side.
std::vector<double> side_weights(int64_t length, TileWeights weights) {
  std::vector<double> out(static_cast<size_t>(length), 1.0);
  if (weights == TileWeights::kUniform) return out;
  const auto side = static_cast<double>(length);
  for (int64_t i = 0; i < length; ++i) {
    const double from_middle = (static_cast<double>(i) - (side - 1) / 2) / side;
    out[static_cast<size_t>(i)] = std::exp(-from_middle * from_middle / (2 * kGaussianVariance));
  }
  return out;
}

}  // namespace

std::vector<int64_t> tile_begins(int64_t length, int64_t tile, int64_t overlap) {
  if (tile >= length) return {0};
  const int64_t room = length - tile, step = tile - overlap;
  const int64_t steps = (room + step - 1) / step;
  std::vector<int64_t> out;
  for (int64_t i = 0; i <= steps; ++i) out.push_back(room * i / steps);
  return out;
}

int resolved_tile_overlap(const GenerateRequest& request, int64_t downscale) {
  if (request.tile_overlap != -1 || request.tile_size <= 0) return request.tile_overlap;
  return static_cast<int>(request.tile_size / 2 / downscale * downscale);
}

TileGrid make_tile_grid(const GenerateRequest& request, int64_t height, int64_t width, int64_t downscale) {
  TileGrid grid{.height = height, .width = width, .rows = {0}, .cols = {0}};
  grid.weights = parse_tile_weights(request.tile_weights);
  require<UsageError>(request.tile_batch >= 1 && request.tile_batch <= 64,
                      "tile-batch: expected 1 to 64, got ", request.tile_batch);
  require<UsageError>(request.tile_size > 0 || request.tile_overlap == -1, "tile-overlap: needs tile-size");
  if (request.tile_size == 0) return grid;
  const int64_t size = request.tile_size, overlap = resolved_tile_overlap(request, downscale);
  require<UsageError>(size > 0 && size % downscale == 0, "tile-size: expected a multiple of ", downscale,
                      ", or 0 for none, got ", size);
  require<UsageError>(overlap >= 0 && overlap < size && overlap % downscale == 0,
                      "tile-overlap: expected a multiple of ", downscale, " below tile-size (", size,
                      "), got ", request.tile_overlap);
  const int64_t tile = size / downscale, shared = overlap / downscale;
  grid.height = std::min(tile, height);
  grid.width = std::min(tile, width);
  grid.rows = tile_begins(height, tile, shared);
  grid.cols = tile_begins(width, tile, shared);
  grid.batch = std::min<int64_t>(request.tile_batch, grid.count());
  return grid;
}

std::vector<double> window_weights(const TileGrid& grid) {
  const auto down = side_weights(grid.height, grid.weights), across = side_weights(grid.width, grid.weights);
  std::vector<double> out;
  for (const double y : down)
    for (const double x : across) out.push_back(y * x);
  return out;
}

}  // namespace rocm_sd
