// Reproducible normal noise for batches of latents.
#include "schedulers/noise.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.hpp"
#include "schedulers/names.hpp"
#include "schedulers/noise_sources.hpp"

namespace rocm_sd {

NoiseKind parse_noise_kind(std::string_view name) {
  const std::string wanted = normalized_name(name);
  for (const std::string_view known : {"gpu", "nv", "cuda", "philox"})
    if (wanted == known) return NoiseKind::kPhilox;
  for (const std::string_view known : {"cpu", "torch", "torchcpu"})
    if (wanted == known) return NoiseKind::kTorchCpu;
  const std::array<std::string, 5> known = {"gpu", "nv", "cuda", "philox", "cpu"};
  throw_unknown_name("noise source", name, known);
}

std::string_view to_string(NoiseKind kind) { return kind == NoiseKind::kPhilox ? "gpu" : "cpu"; }

std::unique_ptr<NoiseSource> make_noise_source(NoiseKind kind, uint64_t seed) {
  return kind == NoiseKind::kPhilox ? make_philox_noise(seed) : make_torch_cpu_noise(seed);
}

std::vector<ImageSeed> batch_seeds(const ImageSeed& first, int64_t images) {
  std::vector<ImageSeed> seeds;
  const bool varied = first.variation_strength != 0;
  for (int64_t i = 0; i < images; ++i) {
    ImageSeed image = first;
    (varied ? image.variation_seed : image.seed) += static_cast<uint64_t>(i);
    seeds.push_back(image);
  }
  return seeds;
}

BatchNoise::BatchNoise(NoiseKind kind, std::vector<ImageSeed> seeds, int64_t channels, int64_t height,
                       int64_t width, NoiseOrigin origin)
    : kind_(kind), seeds_(std::move(seeds)), origin_(origin) {
  require<UsageError>(!seeds_.empty() && channels > 0 && height > 0 && width > 0,
                      "noise: needs at least one image and positive sizes, not ", seeds_.size(),
                      " images of ", channels, "x", height, "x", width);
  shape_ = {static_cast<int64_t>(seeds_.size()), height, width, channels};
  if (origin_.height <= 0 || origin_.width <= 0) origin_ = {height, width};
  for (const ImageSeed& image : seeds_) {
    require<UsageError>(image.variation_strength >= 0 && image.variation_strength <= 1,
                        "variation strength must be within 0..1, not ", image.variation_strength);
    sources_.push_back(make_noise_source(kind_, image.seed));
  }
}

std::vector<float> BatchNoise::next() {
  std::vector<float> out = draw(first_);
  first_ = false;
  return out;
}

// The latents' noise: of the origin's size with the variation mixed in, and then in the middle of this size.
// The image's generator gives what lies around it.
std::vector<float> BatchNoise::first_of(size_t image) {
  const int64_t height = shape_[1], width = shape_[2], channels = shape_[3];
  const bool resized = origin_.height != height || origin_.width != width;
  std::vector<float> own(static_cast<size_t>(height * width * channels));
  std::vector<float> noise(static_cast<size_t>(origin_.height * origin_.width * channels));
  sources_[image]->fill(own);
  if (resized)
    make_noise_source(kind_, seeds_[image].seed)->fill(noise);
  else
    noise = own;
  if (seeds_[image].variation_strength > 0) {
    std::vector<float> variation(noise.size());
    make_noise_source(kind_, seeds_[image].variation_seed)->fill(variation);
    noise = slerp_noise(seeds_[image].variation_strength, noise, variation, channels, origin_.height,
                        origin_.width);
  }
  if (!resized) return noise;
  // The margins are rounded down, below zero, too, and the same is cut on both sides (A1111).
  const auto half = [](int64_t v) { return v >= 0 ? v / 2 : -((1 - v) / 2); };
  const int64_t dx = half(width - origin_.width), dy = half(height - origin_.height);
  const int64_t w = dx >= 0 ? origin_.width : origin_.width + 2 * dx,
                h = dy >= 0 ? origin_.height : origin_.height + 2 * dy;
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t y = 0; y < h; ++y)
      for (int64_t x = 0; x < w; ++x)
        own[static_cast<size_t>((c * height + y + std::max<int64_t>(dy, 0)) * width + x +
                                std::max<int64_t>(dx, 0))] =
            noise[static_cast<size_t>((c * origin_.height + y + std::max<int64_t>(-dy, 0)) * origin_.width +
                                      x + std::max<int64_t>(-dx, 0))];
  return own;
}

std::vector<float> BatchNoise::draw(bool first) {
  const int64_t height = shape_[1], width = shape_[2], channels = shape_[3];
  const size_t count = static_cast<size_t>(height * width * channels);
  std::vector<float> out(static_cast<size_t>(shape_.numel()));
  std::vector<float> image(count);  // [C,H,W]
  for (size_t n = 0; n < seeds_.size(); ++n) {
    if (first)
      image = first_of(n);
    else
      sources_[n]->fill(image);
    float* to = out.data() + n * count;  // [H,W,C]
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t i = 0; i < height * width; ++i) to[i * channels + c] = image[c * height * width + i];
  }
  return out;
}

std::vector<float> slerp_noise(double strength, std::span<const float> a, std::span<const float> b,
                               int64_t channels, int64_t height, int64_t width) {
  require(a.size() == b.size() && a.size() == static_cast<size_t>(channels * height * width),
          "slerp_noise: expected two noises of ", channels, "x", height, "x", width, ", got ", a.size(),
          " and ", b.size(), " values");
  std::vector<double> cosines(static_cast<size_t>(channels * width));  // [C,W]
  double mean = 0;
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t x = 0; x < width; ++x) {
      double aa = 0, bb = 0, ab = 0;
      for (int64_t y = 0; y < height; ++y) {
        const double va = a[(c * height + y) * width + x], vb = b[(c * height + y) * width + x];
        aa += va * va;
        bb += vb * vb;
        ab += va * vb;
      }
      const double cosine = ab / std::sqrt(aa * bb);
      cosines[c * width + x] = cosine;
      mean += cosine / static_cast<double>(cosines.size());
    }
  // As A1111: nearly parallel noises are mixed linearly, strength weighing a.
  const bool parallel = mean > 0.9995;
  std::vector<float> out(a.size());
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t x = 0; x < width; ++x) {
      const double angle = std::acos(std::clamp(cosines[c * width + x], -1.0, 1.0));
      const double weight_a = parallel ? strength : std::sin((1 - strength) * angle) / std::sin(angle);
      const double weight_b = parallel ? 1 - strength : std::sin(strength * angle) / std::sin(angle);
      for (int64_t y = 0; y < height; ++y) {
        const int64_t i = (c * height + y) * width + x;
        out[i] = static_cast<float>(weight_a * a[i] + weight_b * b[i]);
      }
    }
  return out;
}

}  // namespace rocm_sd
