#include "pipeline/inpaint.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/error.hpp"
#include "base/text.hpp"
#include "pipeline/box_blur.hpp"
#include "pipeline/image_sizes.hpp"
#include "pipeline/pixels.hpp"
#include "pipeline/soft_inpaint.hpp"

namespace rocm_sd {
namespace {

constexpr int kMultiple = 8, kMaxSide = 4096;

size_t at(int64_t i) { return static_cast<size_t>(i); }

// values [height,width,4]
void blur(std::vector<float>& values, int64_t width, int64_t height, double sigma) {
  for (int64_t c = 0; c < 4; ++c) {
    std::vector<float> plane(at(width * height));
    for (int64_t i = 0; i < width * height; ++i) plane[at(i)] = values[at(4 * i + c)];
    blur_by_boxes(plane, width, height, sigma);
    for (int64_t i = 0; i < width * height; ++i) values[at(4 * i + c)] = plane[at(i)];
  }
}

Image area_of(const Image& image, const PictureArea& area) {
  Image out{area.width, area.height, {}, {}};
  const std::vector<uint8_t> rgb = opaque_rgb(image);
  for (int y = area.top; y < area.top + area.height; ++y) {
    const auto row = rgb.begin() + 3 * (ptrdiff_t{y} * image.width + area.left);
    out.rgb.insert(out.rgb.end(), row, row + 3 * ptrdiff_t{area.width});
  }
  return out;
}

// [height,width] of 0..1
Image grey_image(const std::vector<float>& values, int width, int height) {
  Image out{width, height, {}, {}};
  for (const float v : values)
    out.rgb.insert(out.rgb.end(), 3, static_cast<uint8_t>(std::nearbyint(v * 255.0f)));
  return out;
}

// One side of an area brought to `wanted` places within 0..limit: half of what is missing before it.
void widen(int& begin, int& length, int wanted, int limit) {
  const int missing = wanted - length;
  begin -= missing / 2;
  length = wanted;
  if (begin + length >= limit) begin = limit - length;
  begin = std::max(begin, 0);
  length = std::min(length, limit - begin);
}

}  // namespace

MaskedContent masked_content(const GenerateRequest& r) {
  std::string name = r.masked_content;
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  if (name == "auto") return r.outpaint.active() ? MaskedContent::kFill : MaskedContent::kOriginal;
  if (name == "original") return MaskedContent::kOriginal;
  if (name == "fill") return MaskedContent::kFill;
  if (name == "latent noise") return MaskedContent::kNoise;
  require<UsageError>(name == "latent nothing",
                      "masked-content: expected auto, original, fill, latent noise or latent nothing, got \"",
                      printable(r.masked_content), "\"");
  return MaskedContent::kNothing;
}

std::vector<float> fill_masked(const std::vector<float>& pixels, const std::vector<float>& mask, int width,
                               int height) {
  const int64_t count = int64_t{width} * height;
  std::vector<float> known(at(4 * count));  // colours times alpha, alpha
  for (int64_t i = 0; i < count; ++i) {
    const float alpha = 1 - mask[at(i)];
    for (int64_t c = 0; c < 3; ++c) known[at(4 * i + c)] = (pixels[at(3 * i + c)] * 0.5f + 0.5f) * alpha;
    known[at(4 * i + 3)] = alpha;
  }
  struct Layer {
    double sigma;
    int times;
  };
  std::vector<float> sums(at(4 * count), 0.0f);  // composed, times alpha
  for (const Layer& layer : {Layer{256, 1}, {64, 1}, {16, 2}, {4, 4}, {2, 2}, {0, 1}}) {
    std::vector<float> over = known;
    blur(over, width, height, layer.sigma);
    for (int time = 0; time < layer.times; ++time)
      for (int64_t i = 0; i < count; ++i) {
        const float rest = 1 - over[at(4 * i + 3)];
        for (int64_t c = 0; c < 4; ++c)
          sums[at(4 * i + c)] = over[at(4 * i + c)] + sums[at(4 * i + c)] * rest;
      }
  }
  std::vector<float> out(pixels.size());
  for (int64_t i = 0; i < count; ++i) {
    const float alpha = sums[at(4 * i + 3)];
    for (int64_t c = 0; c < 3; ++c) {
      const float colour = alpha > 0 ? sums[at(4 * i + c)] / alpha : 0;
      out[at(3 * i + c)] = std::clamp(2 * colour - 1, -1.0f, 1.0f);
    }
  }
  return out;
}

PictureArea masked_area(const std::vector<float>& mask, int image_width, int image_height, int padding,
                        int width, int height) {
  int left = image_width, top = image_height, right = -1, bottom = -1;
  for (int y = 0; y < image_height; ++y)
    for (int x = 0; x < image_width; ++x) {
      if (std::nearbyint(mask[at(int64_t{y} * image_width + x)] * 255.0f) == 0) continue;
      left = std::min(left, x), right = std::max(right, x);
      top = std::min(top, y), bottom = std::max(bottom, y);
    }
  require<UsageError>(right >= 0, "only-masked: nothing of the mask is white");
  left = std::max(left - padding, 0), top = std::max(top - padding, 0);
  right = std::min(right + 1 + padding, image_width), bottom = std::min(bottom + 1 + padding, image_height);
  PictureArea area{left, top, right - left, bottom - top};
  const double shape = static_cast<double>(width) / height;
  if (static_cast<double>(area.width) / area.height > shape)
    widen(area.top, area.height, static_cast<int>(area.width / shape), image_height);
  else
    widen(area.left, area.width, static_cast<int>(area.height * shape), image_width);
  return area;
}

MaskedPart masked_part(const GenerateRequest& request, int width, int height) {
  MaskedPart part{request, {}, *request.init_image, {}};
  const Image& image = part.original;
  part.mask =
      mask_to_floats(*request.mask, image.width, image.height, request.mask_blur, request.mask_invert);
  GenerateRequest& r = part.request;
  r.width = request.width > 0 ? request.width : width;
  r.height = request.height > 0 ? request.height : height;
  part.area =
      masked_area(part.mask, image.width, image.height, request.only_masked_padding, r.width, r.height);
  const PictureSize size{r.width, r.height};
  r.init_image = resized(area_of(image, part.area), size, PictureFilter::kLanczos);
  const Image grey = grey_image(part.mask, image.width, image.height);
  r.mask = resized(area_of(grey, part.area), size, PictureFilter::kLanczos);
  r.mask_invert = false;
  return part;
}

Image MaskedPart::pasted(const Image& drawn) const {
  const Image small = resized(drawn, {area.width, area.height}, PictureFilter::kLanczos);
  Image out{original.width, original.height, opaque_rgb(original), {}};
  for (int y = 0; y < area.height; ++y)
    for (int x = 0; x < area.width; ++x) {
      const int64_t to = int64_t{area.top + y} * out.width + area.left + x,
                    from = int64_t{y} * area.width + x;
      const float weight = mask[at(to)];
      for (int64_t c = 0; c < 3; ++c)
        out.rgb[at(3 * to + c)] = static_cast<uint8_t>(
            std::nearbyint(small.rgb[at(3 * from + c)] * weight + out.rgb[at(3 * to + c)] * (1 - weight)));
    }
  return out;
}

GenerateRequest outpainted(const GenerateRequest& request) {
  const Outpaint& grow = request.outpaint;
  const Image& image = *request.init_image;
  const std::vector<uint8_t> rgb = opaque_rgb(image);
  const auto rounded = [](int side) { return (side + kMultiple - 1) / kMultiple * kMultiple; };
  const int width = rounded(image.width + grow.left + grow.right),
            height = rounded(image.height + grow.up + grow.down);
  require<UsageError>(width <= kMaxSide && height <= kMaxSide, "outpaint: a canvas of ", width, " x ", height,
                      ", expected at most ", kMaxSide, " on a side");
  // What rounding adds grows where the canvas grows anyhow, at the end if it does there or nowhere.
  const int more_w = width - image.width - grow.left - grow.right,
            more_h = height - image.height - grow.up - grow.down;
  const int left = grow.left + (grow.left > 0 && grow.right == 0 ? more_w : 0),
            top = grow.up + (grow.up > 0 && grow.down == 0 ? more_h : 0);
  const int right = width - left - image.width, bottom = height - top - image.height;
  const int into = 2 * request.mask_blur;
  const int first_x = left > 0 ? left + into : 0, first_y = top > 0 ? top + into : 0;
  const int end_x = right > 0 ? width - right - into : width,
            end_y = bottom > 0 ? height - bottom - into : height;
  GenerateRequest out = request;
  Image canvas{width, height, std::vector<uint8_t>(at(int64_t{width} * height * 3)), {}};
  Image mask = canvas;
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) {
      const int64_t to = int64_t{y} * width + x;
      const bool kept = x >= first_x && x < end_x && y >= first_y && y < end_y;
      const int64_t from = int64_t{std::clamp(y - top, 0, image.height - 1)} * image.width +
                           std::clamp(x - left, 0, image.width - 1);
      for (int64_t c = 0; c < 3; ++c) {
        canvas.rgb[at(3 * to + c)] = rgb[at(3 * from + c)];
        mask.rgb[at(3 * to + c)] = kept ? 0 : 255;
      }
    }
  out.width = width;
  out.height = height;
  out.init_image = std::move(canvas);
  out.mask = std::move(mask);
  out.masked_content = masked_content(request) == MaskedContent::kFill ? "fill" : request.masked_content;
  return out;
}

void check_inpainting(const GenerateRequest& r) {
  const MaskedContent content = masked_content(r);
  require<UsageError>(content == MaskedContent::kOriginal || r.mask || r.outpaint.active(),
                      "masked-content: needs a mask, or outpaint");
  require<UsageError>(!r.only_masked || (r.mask && r.init_image),
                      "only-masked: needs an init-image and a mask");
  require<UsageError>(!r.only_masked || !soft_settings(r.mask_blend),
                      "mask-blend: soft: not with only-masked, whose part is put back by its mask");
  require<UsageError>(r.only_masked_padding >= 0 && r.only_masked_padding <= 1024,
                      "only-masked-padding: expected 0 to 1024, got ", r.only_masked_padding);
  for (const int side : {r.outpaint.left, r.outpaint.right, r.outpaint.up, r.outpaint.down})
    require<UsageError>(side >= 0 && side <= kMaxSide, "outpaint: expected 0 to ", kMaxSide, ", got ", side);
  if (r.init_images.empty()) return;
  const auto count = static_cast<int>(r.init_images.size());
  require<UsageError>(!r.mask && !r.outpaint.active(), "init-images: not with a mask or outpaint");
  require<UsageError>(count <= 64 && (r.batch == 1 || r.batch == count),
                      "init-images: expected one for each of ", r.batch, " images, got ", count);
}

}  // namespace rocm_sd
