#include "pipeline/hires.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "pipeline/request_guidance.hpp"

namespace rocm_sd {
namespace {

constexpr int kMaxSide = 4096;

// Latents from `begin` on that are left of `all` where `kept` of them are: half of the rest, rounded down.
int begin_of(int all, int kept) { return (all - kept) / 2; }

constexpr int kTileOverlap = 64;  // A1111's script "SD upscale"

// The request with what the second pass has of its own.
GenerateRequest with_own_options(const GenerateRequest& request) {
  const HiresFix& hires = request.hires;
  GenerateRequest out = request;
  if (hires.cfg_scale) out.cfg_scale = *hires.cfg_scale;
  if (!hires.sampler.empty()) out.sampler = hires.sampler;
  if (!hires.schedule.empty()) out.schedule = hires.schedule;
  if (hires.prompt) {
    out.prompt = *hires.prompt;
    out.prompts.clear();
  }
  if (hires.negative_prompt) {
    out.negative_prompt = hires.negative_prompt;
    out.negative_prompts.clear();
  }
  if (hires.tile_size > 0) {
    out.tile_size = hires.tile_size;
    out.tile_overlap =
        hires.tile_overlap >= 0 ? hires.tile_overlap : std::min(kTileOverlap, hires.tile_size / 16 * 8);
  }
  return out;
}

}  // namespace

HiresSizes hires_sizes(const HiresFix& hires, const PictureSize& first, int multiple) {
  const auto scaled = [](int64_t side, int64_t to, int64_t of) { return static_cast<int>(side * to / of); };
  PictureSize up, target;
  const int w = hires.width, h = hires.height;
  if (w == 0 && h == 0) {
    up = {static_cast<int>(first.width * hires.scale), static_cast<int>(first.height * hires.scale)};
    target = up;
  } else if (h == 0) {
    up = target = {w, scaled(w, first.height, first.width)};
  } else if (w == 0) {
    up = target = {scaled(h, first.width, first.height), h};
  } else {
    target = {w, h};
    const bool wider = int64_t{first.width} * h < int64_t{w} * first.height;
    up = wider ? PictureSize{w, scaled(w, first.height, first.width)}
               : PictureSize{scaled(h, first.width, first.height), h};
  }
  // In latents: what is beyond the target is cut.
  const int up_w = up.width / multiple, up_h = up.height / multiple;
  const int cut_w = (up.width - target.width) / multiple, cut_h = (up.height - target.height) / multiple;
  const PictureSize result{(up_w - cut_w) * multiple, (up_h - cut_h) * multiple};
  require<UsageError>(result.width >= multiple && result.height >= multiple && up_w * multiple <= kMaxSide &&
                          up_h * multiple <= kMaxSide,
                      "hires: a picture of ", first.width, " x ", first.height, " would become ", up.width,
                      " x ", up.height, ", expected ", multiple, " to ", kMaxSide, " on a side");
  return {{up_w * multiple, up_h * multiple}, result};
}

void check_hires(const GenerateRequest& r) {
  const HiresFix& h = r.hires;
  if (!h.active()) return;
  const bool by_size = h.width > 0 || h.height > 0;
  require<UsageError>(by_size || (h.scale >= 1 && h.scale <= 8), "hires-scale: expected 1 to 8, got ",
                      h.scale);
  require<UsageError>(h.width >= 0 && h.height >= 0 && h.width <= kMaxSide && h.height <= kMaxSide,
                      "hires-width, hires-height: expected 0 to ", kMaxSide, ", got ", h.width, " and ",
                      h.height);
  require<UsageError>(h.steps >= 0 && h.steps <= 1000, "hires-steps: expected 0 to 1000, got ", h.steps);
  require<UsageError>(std::isfinite(h.strength) && h.strength > 0 && h.strength <= 1,
                      "hires-denoising-strength: expected a number above 0, at most 1, got ", h.strength);
  if (h.cfg_scale) require_range(*h.cfg_scale, -100, 100, "hires-cfg-scale");
  require<UsageError>(
      r.init_latents.empty() && !r.mask && !r.depth,
      "hires: is for text to image, and for an init-image alone; expected no mask, latents or depth");
  require<UsageError>(h.tile_size >= 0 && h.tile_size <= kMaxSide, "hires-tile-size: expected 0 to ",
                      kMaxSide, ", got ", h.tile_size);
  require<UsageError>(h.tile_overlap >= -1 && h.tile_overlap <= kMaxSide,
                      "hires-tile-overlap: expected 0 to ", kMaxSide, ", got ", h.tile_overlap);
  require<UsageError>(h.tile_overlap == -1 || h.tile_size > 0, "hires-tile-overlap: needs hires-tile-size");
  require<UsageError>(!r.denoising_start && !r.denoising_end,
                      "hires: not with denoising-start or denoising-end");
}

bool redraws_image(const GenerateRequest& request) {
  return request.hires.active() && (request.init_image || !request.init_images.empty());
}

GenerateRequest redrawn(const GenerateRequest& request, const PictureSize& size) {
  GenerateRequest out = with_own_options(request);
  out.width = size.width;
  out.height = size.height;
  if (request.hires.steps > 0) out.steps = request.hires.steps;
  out.init_image.reset();
  out.init_images.clear();
  return out;
}

GenerateRequest second_pass(const GenerateRequest& request, const GenerateRequest& resolved,
                            const PictureSize& size) {
  const HiresFix& hires = request.hires;
  GenerateRequest out = with_own_options(request);
  out.hires = {};
  out.seed = resolved.seed;
  out.seeds = resolved.seeds;
  out.variation_seed = resolved.variation_seed;
  out.batch = resolved.batch;
  out.width = size.width;
  out.height = size.height;
  out.steps = hires.steps > 0 ? hires.steps : request.steps;
  out.strength = hires.strength;
  out.exact_steps = true;
  out.sigmas.clear();
  out.initial_noise.clear();
  return out;
}

std::vector<float> enlarge_latents(const std::vector<float>& latents, const PictureSize& first,
                                   const HiresSizes& sizes, int multiple, LatentResize mode) {
  const int up_w = sizes.enlarged.width / multiple, up_h = sizes.enlarged.height / multiple;
  const int w = sizes.result.width / multiple, h = sizes.result.height / multiple;
  const std::vector<float> large =
      resize_planes(latents, first.height / multiple, first.width / multiple, up_h, up_w, mode);
  const int left = begin_of(up_w, w), top = begin_of(up_h, h);
  const size_t plane = static_cast<size_t>(up_w) * static_cast<size_t>(up_h);
  std::vector<float> out;
  for (size_t p = 0; p < large.size() / plane; ++p)
    for (int y = top; y < top + h; ++y) {
      const auto row = large.begin() + static_cast<ptrdiff_t>(p * plane) + ptrdiff_t{y} * up_w + left;
      out.insert(out.end(), row, row + w);
    }
  return out;
}

Image cut_middle(const Image& image, const PictureSize& size, int multiple) {
  const int left = begin_of(image.width / multiple, size.width / multiple) * multiple,
            top = begin_of(image.height / multiple, size.height / multiple) * multiple;
  Image out{size.width, size.height, {}, {}};
  for (int y = top; y < top + size.height; ++y) {
    const auto row = image.rgb.begin() + 3 * (ptrdiff_t{y} * image.width + left);
    out.rgb.insert(out.rgb.end(), row, row + 3 * ptrdiff_t{size.width});
  }
  return out;
}

}  // namespace rocm_sd
