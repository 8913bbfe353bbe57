#include "pipeline/tiles.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/step/blend.hpp"

namespace rocm_sd {
namespace {

constexpr int64_t kLatentChannels = 4;

}  // namespace

uint64_t tiled_buffer_bytes(const TileGrid& grid, int64_t rows, int64_t height, int64_t width) {
  const int64_t values = rows * height * width + grid.count() * grid.height * grid.width;
  return static_cast<uint64_t>(values * kLatentChannels) * sizeof(float);
}

TiledUnet::TiledUnet(Exec& ex, UnetStage& stage, const TileGrid& grid, int64_t images, int64_t height,
                     int64_t width, const Tensor& extra)
    : stage_(stage), grid_(grid), images_(images), conditions_(stage.shape().conditions) {
  require(stage.shape().batch == images * grid.batch && stage.shape().height == grid.height &&
              stage.shape().width == grid.width,
          "tiles: the UNet's stage is of another shape");
  Device& device = ex.device();
  const Shape shape{conditions_ * images, height, width, kLatentChannels};
  const std::vector<float> zeros(static_cast<size_t>(shape.numel()));
  whole_ = tensor_from(device, shape, zeros.data());  // finite, so that a share of 0 leaves nothing of it
  const std::vector<double> weights = window_weights(grid);
  std::vector<double> sums(static_cast<size_t>(height * width));
  std::vector<float> share;
  for (const int64_t row : grid.rows)
    for (const int64_t col : grid.cols) {
      share.clear();
      for (int64_t y = 0; y < grid.height; ++y)
        for (int64_t x = 0; x < grid.width; ++x) {
          const double weight = weights[static_cast<size_t>(y * grid.width + x)];
          double& sum = sums[static_cast<size_t>((row + y) * width + col + x)];
          sum += weight;
          share.insert(share.end(), kLatentChannels, static_cast<float>(weight / sum));
        }
      const Shape window{1, grid.height, grid.width, kLatentChannels};
      windows_.push_back({row, col, tensor_from(device, window, share.data())});
    }
  if (!extra) return;
  extra_ = make_tensor(device, extra.shape(), stage.extra_channels().dtype());
  copy_into(ex, extra, extra_);
}

uint64_t TiledUnet::buffer_bytes() const {
  uint64_t bytes = whole_.bytes() + (extra_ ? extra_.bytes() : 0);
  for (const Window& window : windows_) bytes += window.share.bytes();
  return bytes;
}

// The window's part of an image of the whole: [1,height,width,C].
Tensor TiledUnet::cut(const Tensor& whole, int64_t index, const Window& window) const {
  return whole.narrow(0, index, 1).narrow(1, window.row, grid_.height).narrow(2, window.col, grid_.width);
}

// Windows from `first` on into the rows of one call; the last window again where there are no more.
void TiledUnet::gather(Exec& ex, const Tensor& scaled_input, int64_t first, const Tensor& input) const {
  for (int64_t k = 0; k < conditions_; ++k)
    for (int64_t g = 0; g < grid_.batch; ++g) {
      const Window& window = windows_[static_cast<size_t>(std::min(first + g, grid_.count() - 1))];
      for (int64_t n = 0; n < images_; ++n) {
        const int64_t row = (k * grid_.batch + g) * images_ + n;
        copy_into(ex, cut(scaled_input, k * images_ + n, window), input.narrow(0, row, 1));
        for (const auto& control : stage_.controls()) control->cut_hint(ex, row, window.row, window.col);
        if (extra_)
          copy_into(ex, cut(extra_, k * images_ + n, window), stage_.extra_channels().narrow(0, row, 1));
      }
    }
}

// A running average: each window brings its share of the weights so far.
void TiledUnet::average(Exec& ex, const Tensor& predicted, int64_t first) const {
  const int64_t end = std::min(first + grid_.batch, grid_.count());
  for (int64_t k = 0; k < conditions_; ++k)
    for (int64_t at = first; at < end; ++at)
      for (int64_t n = 0; n < images_; ++n) {
        const Window& window = windows_[static_cast<size_t>(at)];
        const Tensor part = predicted.narrow(0, (k * grid_.batch + at - first) * images_ + n, 1);
        const Tensor target = cut(whole_, k * images_ + n, window);
        const Tensor before = ex.alloc(part.shape(), DType::kF32);
        copy_into(ex, target, before);
        copy_into(ex, blend(ex, part, before, window.share), target);
      }
}

Tensor TiledUnet::operator()(Exec& ex, const Tensor& scaled_input, double timestep, const RunWatch& watch) {
  const Tensor input =
      ex.alloc({conditions_ * grid_.batch * images_, grid_.height, grid_.width, kLatentChannels},
               scaled_input.dtype());
  for (int64_t first = 0; first < grid_.count(); first += grid_.batch) {
    gather(ex, scaled_input, first, input);
    average(ex, stage_.step(ex, input, timestep, watch), first);
  }
  return whole_;
}

}  // namespace rocm_sd
