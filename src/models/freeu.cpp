#include "models/freeu.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

#include "base/error.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/resample/resample.hpp"
#include "kernels/row_range/row_range.hpp"
#include "models/controlnet.hpp"
#include "models/layer_ops.hpp"

namespace rocm_sd {
namespace {

using Function = std::function<double(double h, double w)>;  // of angles

// Those that an axis of one pixel does not have are left out.
std::vector<Function> low_frequencies(bool tall, bool wide) {
  std::vector<Function> out = {[](double, double) { return 1.0; }};
  const auto both = [&out](const auto& angle) {
    out.push_back([angle](double h, double w) { return std::cos(angle(h, w)); });
    out.push_back([angle](double h, double w) { return std::sin(angle(h, w)); });
  };
  if (tall) both([](double h, double) { return h; });
  if (wide) both([](double, double w) { return w; });
  if (tall && wide) both([](double h, double w) { return h + w; });
  return out;
}

// values [N*H*W] times map [N,H,W,C], added to sum.
Tensor add_by_pixel(Exec& ex, const Tensor& sum, const Tensor& map, const Tensor& values) {
  const Shape rows{values.numel(), map.dim(3)};
  return add_scaled(ex, sum.reshape(rows), map.reshape(rows), values.reshape({values.numel()}))
      .reshape(map.shape());
}

// The first half of the channels, amplified: [N,H,W,C/2].
Tensor amplified_half(Exec& ex, const FreeULevel& level, const Tensor& map, const Tensor& half) {
  if (!level.by_mean) return affine(ex, half, level.backbone, 0);
  const int64_t images = map.dim(0), pixels = map.dim(1) * map.dim(2), channels = map.dim(3);
  Tensor mean = resample(ex, map.reshape({images * pixels, channels, 1, 1}), 1, 1, ResampleMode::kArea);
  mean = as_dtype(ex, mean.reshape({images, pixels}), DType::kF32);
  return add_by_pixel(ex, half, half, row_range(ex, mean, level.backbone - 1));
}

}  // namespace

FreeU make_freeu(Device& device, const UNetConfig& config, int64_t images, int64_t height, int64_t width,
                 const std::vector<double>& values, bool second) {
  FreeU freeu;
  int64_t level = std::ranges::count_if(config.down, &UNetBlockConfig::resamples);
  int64_t before = config.down.back().channels;  // of the maps that a block's first layer reads
  for (size_t i = 0; i < config.up.size(); ++i) {
    std::vector<FreeULevel>& own = freeu.blocks.emplace_back();
    const auto add = [&](size_t which) -> FreeULevel& {
      return own.emplace_back(make_freeu_level(device, images, halved(height, level), halved(width, level),
                                               values[which], values[which + 2]));
    };
    if (!second && i < 2) add(i);
    for (size_t which = 0; second && which < 2; ++which) {
      const int64_t channels = config.down.front().channels * (which == 0 ? 4 : 2);
      if (before != channels && config.up[i].channels != channels) continue;
      FreeULevel& made = add(which);
      made.by_mean = true;
      made.channels = channels;
    }
    before = config.up[i].channels;
    if (config.up[i].resamples) --level;
  }
  return freeu;
}

FreeULevel make_freeu_level(Device& device, int64_t images, int64_t height, int64_t width, double backbone,
                            double skip) {
  FreeULevel level;
  level.backbone = static_cast<float>(backbone);
  for (const Function& function : low_frequencies(height > 1, width > 1)) {
    std::vector<float> values, scaled;
    for (int64_t n = 0; n < images; ++n)
      for (int64_t y = 0; y < height; ++y)
        for (int64_t x = 0; x < width; ++x) {
          const auto angle = [](int64_t at, int64_t of) {
            return 2 * std::numbers::pi * static_cast<double>(at) / static_cast<double>(of);
          };
          const double value = function(angle(y, height), angle(x, width));
          values.push_back(static_cast<float>(value));
          scaled.push_back(static_cast<float>((skip - 1) * value));
        }
    const Shape shape{images * height * width};
    level.functions.push_back(level.functions.empty() ? Tensor() : tensor_from(device, shape, values.data()));
    level.scaled.push_back(tensor_from(device, shape, scaled.data()));
  }
  return level;
}

void apply_freeu(Exec& ex, const FreeULevel& level, Tensor& map, Tensor& skip) {
  const int64_t images = map.dim(0), height = map.dim(1), width = map.dim(2), half = map.dim(3) / 2;
  require(level.scaled.at(0).numel() == images * height * width && skip.dim(1) == height, "freeu: made for ",
          level.scaled.at(0).numel(), " pixels, got ", map.shape(), " and ", skip.shape());
  const Tensor first = ex.alloc({images, height, width, half}, map.dtype());
  copy_into(ex, map.narrow(3, 0, half), first);
  const Tensor amplified = ex.alloc(map.shape(), map.dtype());
  copy_into(ex, amplified_half(ex, level, map, first), amplified.narrow(3, 0, half));
  copy_into(ex, map.narrow(3, half, map.dim(3) - half), amplified.narrow(3, half, map.dim(3) - half));
  map = amplified;
  const Tensor zero = affine(ex, skip, 0, 0);
  Tensor filtered = skip;
  for (size_t i = 0; i < level.scaled.size(); ++i) {
    const Tensor part = level.functions[i] ? add_by_pixel(ex, zero, skip, level.functions[i]) : skip;
    const Tensor mean = resample(ex, part, 1, 1, ResampleMode::kArea);                // [N,1,1,C]
    const Tensor spread = resample(ex, mean, height, width, ResampleMode::kNearest);  // [N,H,W,C]
    filtered = add_by_pixel(ex, filtered, spread, level.scaled[i]);
  }
  skip = filtered;
}

}  // namespace rocm_sd
