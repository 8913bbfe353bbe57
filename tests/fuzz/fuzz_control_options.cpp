// Fuzzes what a request says of a ControlNet's picture: names of types, ways of resizing and preprocessors
// are read or refused by a UsageError; what was read gives pictures and masks of the asked size with values
// in range.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "base/error.hpp"
#include "pipeline/control_image.hpp"
#include "pipeline/pixels.hpp"
#include "pipeline/request.hpp"

namespace {

using namespace rocm_sd;

constexpr int kMaxSide = 24;

void check(bool ok) {
  if (!ok) std::abort();
}

struct Bytes {
  const unsigned char* at;
  size_t left;
  unsigned char next() { return left == 0 ? 0 : (--left, *at++); }
  std::string_view text(size_t most) {
    const size_t size = std::min(left, most);
    const std::string_view out(reinterpret_cast<const char*>(at), size);
    at += size;
    left -= size;
    return out;
  }
};

// Whether f gave an answer; a UsageError is the other right one.
template <class F>
bool accepts(F f) {
  try {
    f();
    return true;
  } catch (const UsageError&) {
    return false;
  }
}

Image picture_of(Bytes& bytes) {
  Image image{1 + bytes.next() % kMaxSide, 1 + bytes.next() % kMaxSide, {}, {}};
  image.rgb.resize(3 * static_cast<size_t>(image.width) * static_cast<size_t>(image.height));
  std::generate(image.rgb.begin(), image.rgb.end(), [&] { return bytes.next(); });
  return image;
}

void check_size(const Image& image, int width, int height) {
  check(image.width == width && image.height == height);
  check(image.rgb.size() == 3 * static_cast<size_t>(width) * static_cast<size_t>(height));
}

void fuzz_pictures(const ControlPreprocess& how, Bytes& bytes) {
  const int width = 1 + bytes.next() % kMaxSide, height = 1 + bytes.next() % kMaxSide;
  const auto resize = static_cast<ControlResize>(bytes.next() % 3);
  const bool bgr = bytes.next() % 2 == 0;
  const Image mask_image = picture_of(bytes), source = picture_of(bytes);
  const std::vector<float> mask = mask_to_floats(mask_image, width, height, 0);
  check(mask.size() == static_cast<size_t>(width) * static_cast<size_t>(height));
  for (const float m : mask) check(m >= 0 && m <= 1);
  const Image sized = resize_control(source, resize, width, height);
  check_size(sized, width, height);
  const Image prepared = preprocess_control(sized, how);
  check_size(prepared, width, height);
  const std::vector<float> pixels =
      control_floats(prepared, bgr, how.name == "inpaint" ? mask : std::vector<float>{});
  check(pixels.size() == 3 * mask.size());
  for (const float p : pixels) check(p == -1 || (p >= 0 && p <= 1));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  Bytes bytes{data, size};
  const std::string_view text = bytes.text(bytes.next() % 40);
  accepts(
      [&] { check(parse_control_type(text) >= 0 && !control_type_label(parse_control_type(text)).empty()); });
  accepts([&] { parse_control_resize(text); });
  ControlPreprocess how;
  if (accepts([&] { how = parse_control_preprocess(text); })) {
    check((how.name != "canny" || how.low <= how.high) && how.low >= 0 && how.low <= 65535);
    check(std::isfinite(how.high) && how.factor >= 1 && std::isfinite(how.factor));
    fuzz_pictures(how, bytes);
  }
  return 0;
}
