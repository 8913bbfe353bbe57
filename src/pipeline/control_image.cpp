#include "pipeline/control_image.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.hpp"
#include "base/text.hpp"
#include "pipeline/options.hpp"
#include "pipeline/pixels.hpp"
#include "pipeline/scribble.hpp"

namespace rocm_sd {
namespace {

size_t at(const Image& image, int x, int y) {
  return 3 * (static_cast<size_t>(y) * static_cast<size_t>(image.width) + static_cast<size_t>(x));
}

Image blank(int width, int height, const std::array<uint8_t, 3>& colour) {
  Image out{width, height, {}, {}};
  const size_t pixels = static_cast<size_t>(width) * static_cast<size_t>(height);
  out.rgb.reserve(3 * pixels);
  for (size_t i = 0; i < pixels; ++i) out.rgb.insert(out.rgb.end(), colour.begin(), colour.end());
  return out;
}

// `from` with its pixel (left, top) at the upper left corner of `to`; negative ones lie inside `to`.
void paste(const Image& from, int left, int top, Image& to) {
  for (int y = std::max(0, -top); y < to.height && y + top < from.height; ++y)
    for (int x = std::max(0, -left); x < to.width && x + left < from.width; ++x)
      std::copy_n(&from.rgb[at(from, x + left, y + top)], 3, &to.rgb[at(to, x, y)]);
}

// Of the pixels at the four sides, channel by channel, as numpy.median and a cast to 8 bits give it.
std::array<uint8_t, 3> border_colour(const Image& image) {
  std::array<uint8_t, 3> out{};
  for (size_t c = 0; c < 3; ++c) {
    std::vector<int> values;
    for (int x = 0; x < image.width; ++x)
      for (const int y : {0, image.height - 1}) values.push_back(image.rgb[at(image, x, y) + c]);
    for (int y = 0; y < image.height; ++y)
      for (const int x : {0, image.width - 1}) values.push_back(image.rgb[at(image, x, y) + c]);
    std::sort(values.begin(), values.end());
    out[c] = static_cast<uint8_t>((values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2);
  }
  return out;
}

Image resized(const Image& image, int width, int height) {
  return floats_to_image(image_to_floats(image, width, height), width, height);
}

template <class Change>
Image each_value(const Image& image, const Change& change) {
  Image out = image;
  for (size_t i = 0; i < out.rgb.size(); i += 3) change(&out.rgb[i]);
  return out;
}

Image grey(const Image& image) {
  return each_value(image, [](uint8_t* p) {
    const double luma = 0.299 * p[0] + 0.587 * p[1] + 0.114 * p[2];  // ITU-R BT.601
    p[0] = p[1] = p[2] = static_cast<uint8_t>(std::nearbyint(luma));
  });
}

Image tile(const Image& image, double factor) {
  if (factor <= 1) return image;
  const auto smaller = [&](int side) { return std::max(1, static_cast<int>(std::nearbyint(side / factor))); };
  return resized(resized(image, smaller(image.width), smaller(image.height)), image.width, image.height);
}

}  // namespace

ControlResize parse_control_resize(std::string_view name) {
  if (name == "just") return ControlResize::kStretch;
  if (name == "crop") return ControlResize::kCrop;
  require<UsageError>(name == "fill", "control-resize: expected just, crop or fill, got \"", printable(name),
                      "\"");
  return ControlResize::kFill;
}

const char* control_resize_label(ControlResize how) {
  switch (how) {
    case ControlResize::kStretch: return "Just Resize";
    case ControlResize::kCrop: return "Crop and Resize";
    case ControlResize::kFill: return "Resize and Fill";
  }
  return "?";
}

Image resize_control(const Image& image, ControlResize how, int width, int height) {
  require<UsageError>(image.width >= 1 && image.height >= 1, "control-image: has no pixels");
  const double across = static_cast<double>(width) / image.width,
               down = static_cast<double>(height) / image.height;
  if (how == ControlResize::kStretch || across == down) return resized(image, width, height);
  const bool crop = how == ControlResize::kCrop;
  const double scale = crop ? std::max(across, down) : std::min(across, down);
  const auto side = [&](int length, int least) {
    const int scaled = static_cast<int>(std::nearbyint(length * scale));
    return crop ? std::max(scaled, least) : std::clamp(scaled, 1, least);
  };
  const Image whole = resized(image, side(image.width, width), side(image.height, height));
  Image out = blank(width, height, crop ? std::array<uint8_t, 3>{} : border_colour(image));
  // The offsets as A1111 rounds them.
  const auto offset = [](int from, int to) { return from >= to ? (from - to) / 2 : -((to - from) / 2); };
  paste(whole, offset(whole.width, width), offset(whole.height, height), out);
  return out;
}

ControlPreprocess parse_control_preprocess(std::string_view text) {
  ControlPreprocess out;
  std::vector<double> numbers;
  const size_t colon = std::min(text.find(':'), text.size());
  out.name = text.substr(0, colon);
  for (size_t begin = colon; begin < text.size();) {
    const size_t end = std::min(text.find(':', begin + 1), text.size());
    numbers.push_back(parse_number(text.substr(begin + 1, end - begin - 1), 0, 65535));
    begin = end;
  }
  const bool is_canny = out.name == "canny", is_tile = out.name == "tile";
  const bool has_threshold = out.name == "threshold" || out.name == "scribble" || out.name == "scribble_xdog";
  if (has_threshold) out.low = out.name == "scribble_xdog" ? 32 : 127;
  require<UsageError>(
      is_canny || is_tile || has_threshold || out.name == "none" || out.name == "invert" ||
          out.name == "grey" || out.name == "inpaint" || out.name == "scribble_hed",
      "control-preprocess: expected none, canny[:LOW:HIGH], invert, grey, tile[:FACTOR], inpaint, "
      "threshold[:T], scribble[:T], scribble_xdog[:T] or scribble_hed, got \"",
      printable(text), "\"");
  const size_t takes = is_canny ? 2 : is_tile || has_threshold ? 1 : 0;
  require<UsageError>(takes != 1 || numbers.empty() || !has_threshold || numbers[0] <= 255,
                      "control-preprocess: ", out.name, ": expected a threshold from 0 to 255, got ",
                      numbers.empty() ? 0 : numbers[0]);
  if (has_threshold && !numbers.empty()) out.low = numbers[0];
  require<UsageError>(numbers.empty() || numbers.size() == takes, "control-preprocess: ", out.name, " takes ",
                      takes, " numbers, or none, got \"", printable(text), "\"");
  if (is_canny && !numbers.empty()) out.low = numbers[0], out.high = numbers[1];
  if (is_tile && !numbers.empty()) out.factor = numbers[0];
  require<UsageError>(!is_canny || out.low <= out.high,
                      "control-preprocess: canny: expected LOW up to HIGH, got ", out.low, " and ", out.high);
  require<UsageError>(out.factor >= 1 && out.factor <= 64,
                      "control-preprocess: tile: expected a factor from 1 to 64, got ", out.factor);
  return out;
}

Image preprocess_control(const Image& image, const ControlPreprocess& how) {
  if (how.name == "canny") return canny(image, how.low, how.high);
  if (how.name == "invert")
    return each_value(image, [](uint8_t* p) {
      for (int c = 0; c < 3; ++c) p[c] = static_cast<uint8_t>(255 - p[c]);
    });
  if (how.name == "grey") return grey(image);
  if (how.name == "tile") return tile(image, how.factor);
  if (how.name == "threshold") return binarised(image, how.low);
  if (how.name == "scribble") return scribble(image, how.low);
  if (how.name == "scribble_xdog") return scribble_of_photo(image, how.low);
  if (how.name == "scribble_hed") return scribble_of_edges(image);
  return image;
}

std::vector<float> control_floats(const Image& image, bool bgr, const std::vector<float>& mask) {
  std::vector<float> out(image.rgb.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t channel = i % 3, from = i - channel + (bgr ? 2 - channel : channel);
    const bool masked = !mask.empty() && mask[i / 3] >= 0.5f;
    out[i] = masked ? -1.0f : static_cast<float>(image.rgb[from]) / 255.0f;
  }
  return out;
}

}  // namespace rocm_sd
