#include "pipeline/preview.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.hpp"
#include "base/text.hpp"
#include "base/utf8.hpp"

namespace rocm_sd {
namespace {

struct Projection {
  std::array<std::array<float, 3>, 4> factors;  // of each latent's channels for red, green and blue
  std::array<float, 3> bias;
};
constexpr Projection kSd = {{{{0.3512f, 0.2297f, 0.3227f},
                              {0.3250f, 0.4974f, 0.2350f},
                              {-0.2829f, 0.1762f, 0.2721f},
                              {-0.2120f, -0.2616f, -0.7177f}}},
                            {0, 0, 0}};
constexpr Projection kSdxl = {{{{0.3651f, 0.4232f, 0.4341f},
                                {-0.2533f, -0.0042f, 0.1068f},
                                {0.1076f, 0.1111f, -0.0362f},
                                {-0.3165f, -0.2492f, -0.2188f}}},
                              {0.1084f, -0.0175f, -0.0011f}};

}  // namespace

Image project_latents(const float* latents, int height, int width, ModelKind kind) {
  const Projection& p = kind == ModelKind::kSdxl || kind == ModelKind::kSdxlRefiner ? kSdxl : kSd;
  const size_t pixels = static_cast<size_t>(height) * static_cast<size_t>(width);
  Image out{width, height, std::vector<uint8_t>(3 * pixels), {}};
  for (size_t i = 0; i < pixels; ++i)
    for (size_t c = 0; c < 3; ++c) {
      float v = p.bias[c];
      for (size_t k = 0; k < 4; ++k) v += latents[4 * i + k] * p.factors[k][c];
      v = std::clamp((v + 1) / 2, 0.0f, 1.0f);
      out.rgb[3 * i + c] = std::isfinite(v) ? static_cast<uint8_t>(std::nearbyint(v * 255.0f)) : 0;
    }
  return out;
}

void check_preview(const PreviewUse& preview) {
  const std::string& mode = preview.mode;
  require<UsageError>(mode == "none" || mode == "proj" || mode == "tae" || mode == "vae",
                      "preview: expected none, proj, tae or vae, got \"", printable(mode), "\"");
  require<UsageError>(preview.interval >= 1 && preview.interval <= 1000,
                      "preview-interval: expected 1 to 1000, got ", preview.interval);
}

}  // namespace rocm_sd
