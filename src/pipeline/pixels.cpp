#include "pipeline/pixels.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.hpp"
#include "kernels/resample/resample.hpp"

namespace rocm_sd {
namespace {

size_t count_of(int width, int height) { return static_cast<size_t>(width) * static_cast<size_t>(height); }

// v over white, rounded as Pillow's paste does.
uint8_t on_white(uint8_t v, uint8_t alpha) {
  const unsigned sum = v * unsigned{alpha} + 255u * (255u - alpha) + 128u;
  return static_cast<uint8_t>(((sum >> 8) + sum) >> 8);
}

// pixels [height,width,channels] at another size.
std::vector<float> resized(const std::vector<float>& pixels, int width, int height, int channels,
                           int new_width, int new_height, ResampleMode mode) {
  if (width == new_width && height == new_height) return pixels;
  Arena arena(host_device());
  Exec ex(arena);
  const Tensor x = tensor_from(host_device(), {1, height, width, channels}, pixels.data());
  return to_floats(host_device(), resample(ex, x, new_height, new_width, mode));
}

// One pass of a separable Gaussian along x; called twice with the picture transposed in between.
std::vector<float> blur_rows_transposed(const std::vector<float>& mask, int width, int height, int sigma) {
  const int radius = 3 * sigma;
  std::vector<float> weights(static_cast<size_t>(2 * radius + 1));
  float sum = 0;
  for (int i = -radius; i <= radius; ++i)
    sum += weights[static_cast<size_t>(i + radius)] =
        std::exp(-0.5f * static_cast<float>(i * i) / static_cast<float>(sigma * sigma));
  std::vector<float> out(mask.size());
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) {
      float total = 0;
      for (int i = -radius; i <= radius; ++i)
        total += weights[static_cast<size_t>(i + radius)] *
                 mask[count_of(width, y) + static_cast<size_t>(std::clamp(x + i, 0, width - 1))];
      out[count_of(height, x) + static_cast<size_t>(y)] = total / sum;
    }
  return out;
}

// ITU-R BT.601 luma of a pixel, 0..1.
float grey_of(const uint8_t* rgb) { return (0.299f * rgb[0] + 0.587f * rgb[1] + 0.114f * rgb[2]) / 255.0f; }

// Weights of the four taps around a position that lies `t` behind the second one (Keys 1981, a = -0.75).
std::array<float, 4> cubic_taps(float t) {
  constexpr float a = -0.75f;
  const auto near = [](float x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
  const auto far = [](float x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
  return {far(t + 1), near(t), near(1 - t), far(2 - t)};
}

// One axis of torch's bicubic interpolation (align_corners=false): [rows,from] -> [to,rows], transposed.
std::vector<float> bicubic_transposed(const std::vector<float>& values, int rows, int from, int to) {
  std::vector<float> out(count_of(rows, to));
  const float scale = static_cast<float>(from) / static_cast<float>(to);
  for (int x = 0; x < to; ++x) {
    const float at = (static_cast<float>(x) + 0.5f) * scale - 0.5f;
    const float whole = std::floor(at);
    const std::array<float, 4> taps = cubic_taps(at - whole);
    for (int y = 0; y < rows; ++y) {
      float sum = 0;
      for (int k = 0; k < 4; ++k)
        sum += taps[static_cast<size_t>(k)] *
               values[count_of(from, y) +
                      static_cast<size_t>(std::clamp(static_cast<int>(whole) - 1 + k, 0, from - 1))];
      out[count_of(rows, x) + static_cast<size_t>(y)] = sum;
    }
  }
  return out;
}

}  // namespace

std::vector<uint8_t> opaque_rgb(const Image& image) {
  std::vector<uint8_t> out = image.rgb;
  for (size_t i = 0; i < out.size() && !image.alpha.empty(); ++i)
    out[i] = on_white(image.rgb[i], image.alpha[i / 3]);
  return out;
}

std::vector<float> torch_bicubic(const std::vector<float>& values, int width, int height, int new_width,
                                 int new_height) {
  const auto across = bicubic_transposed(values, height, width, new_width);  // [new_width,height]
  return bicubic_transposed(across, new_width, height, new_height);          // [new_height,new_width]
}

std::vector<float> image_to_floats(const Image& image, int width, int height) {
  const std::vector<uint8_t> rgb = opaque_rgb(image);
  std::vector<float> pixels(rgb.size());
  std::ranges::transform(rgb, pixels.begin(),
                         [](uint8_t value) { return static_cast<float>(value) / 127.5f - 1.0f; });
  const bool smaller = width < image.width || height < image.height;
  return resized(pixels, image.width, image.height, 3, width, height,
                 smaller ? ResampleMode::kLanczos3 : ResampleMode::kBicubic);
}

Image floats_to_image(const std::vector<float>& pixels, int width, int height) {
  Image out{width, height, std::vector<uint8_t>(pixels.size()), {}};
  std::transform(pixels.begin(), pixels.end(), out.rgb.begin(), [](float v) {
    return static_cast<uint8_t>(std::nearbyint(std::clamp(v * 0.5f + 0.5f, 0.0f, 1.0f) * 255.0f));
  });
  return out;
}

std::vector<float> mask_to_floats(const Image& mask, int width, int height, int blur, bool invert) {
  std::vector<float> values(count_of(mask.width, mask.height));
  // A transparent picture says by its holes what to repaint (the web UIs' and OpenAI's convention).
  const bool by_alpha = std::any_of(mask.alpha.begin(), mask.alpha.end(), [](uint8_t a) { return a < 255; });
  for (size_t i = 0; i < values.size(); ++i) {
    const uint8_t* p = &mask.rgb[3 * i];
    values[i] = by_alpha ? 1.0f - static_cast<float>(mask.alpha[i]) / 255.0f : grey_of(p);
    if (invert) values[i] = 1 - values[i];
  }
  values = resized(values, mask.width, mask.height, 1, width, height,
                   width < mask.width ? ResampleMode::kArea : ResampleMode::kBilinear);
  if (blur > 0)
    values = blur_rows_transposed(blur_rows_transposed(values, width, height, blur), height, width, blur);
  for (float& v : values) v = std::clamp(v, 0.0f, 1.0f);
  return values;
}

std::vector<float> latent_mask(const std::vector<float>& mask, int width, int height, int factor,
                               MaskDownscale how) {
  if (how == MaskDownscale::kNearest) {
    std::vector<float> out;
    for (int y = 0; y < height / factor; ++y)
      for (int x = 0; x < width / factor; ++x)
        out.push_back(mask[count_of(width, y * factor) + static_cast<size_t>(x * factor)] >= 0.5f ? 1 : 0);
    return out;
  }
  std::vector<float> out =
      resized(mask, width, height, 1, width / factor, height / factor, ResampleMode::kArea);
  for (float& v : out) v = std::nearbyint(v);
  return out;
}

std::vector<float> depth_to_floats(const Image& depth, int width, int height) {
  std::vector<float> values(count_of(depth.width, depth.height));
  for (size_t i = 0; i < values.size(); ++i) values[i] = grey_of(&depth.rgb[3 * i]);
  values = torch_bicubic(values, depth.width, depth.height, width, height);  // [height,width]
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const float low = *least, range = *most - low;
  for (float& v : values) v = range > 0 ? 2 * (v - low) / range - 1 : 0.0f;
  return values;
}

Image composite(const Image& picture, const std::vector<float>& original, const std::vector<float>& mask) {
  Image out = picture;
  const Image under = floats_to_image(original, picture.width, picture.height);
  for (size_t i = 0; i < mask.size(); ++i)
    for (size_t c = 3 * i; c < 3 * i + 3; ++c)
      out.rgb[c] =
          static_cast<uint8_t>(std::nearbyint(picture.rgb[c] * mask[i] + under.rgb[c] * (1.0f - mask[i])));
  return out;
}

}  // namespace rocm_sd
