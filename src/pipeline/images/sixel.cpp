// Sixels by libsixel, where the build found it.
#include "base/error.hpp"
#include "pipeline/images/terminal.hpp"

#ifdef ROCM_SD_HAS_SIXEL
#include <sixel.h>

#include <memory>
#include <vector>
#endif

namespace rocm_sd {

#ifdef ROCM_SD_HAS_SIXEL

bool has_sixel() { return true; }

std::string encode_sixel(const Image& image) {
  const auto check = [](SIXELSTATUS status) {
    require<GenerationError>(SIXEL_SUCCEEDED(status), "sixel: libsixel: ", sixel_helper_format_error(status));
  };
  std::string out;
  const auto write = [](char* data, int size, void* to) {
    static_cast<std::string*>(to)->append(data, static_cast<size_t>(size));
    return size;
  };
  sixel_output_t* output = nullptr;
  check(sixel_output_new(&output, write, &out, nullptr));
  const std::unique_ptr<sixel_output_t, void (*)(sixel_output_t*)> owned_output(output, sixel_output_unref);
  sixel_dither_t* dither = nullptr;
  check(sixel_dither_new(&dither, 256, nullptr));
  const std::unique_ptr<sixel_dither_t, void (*)(sixel_dither_t*)> owned_dither(dither, sixel_dither_unref);
  std::vector<unsigned char> pixels(image.rgb.begin(), image.rgb.end());  // which it changes
  check(sixel_dither_initialize(dither, pixels.data(), image.width, image.height, SIXEL_PIXELFORMAT_RGB888,
                                SIXEL_LARGE_AUTO, SIXEL_REP_AUTO, SIXEL_QUALITY_HIGH));
  check(sixel_encode(pixels.data(), image.width, image.height, 3, dither, output));
  return out;
}

#else

bool has_sixel() { return false; }

std::string encode_sixel(const Image&) {
  throw UsageError(
      "preview-terminal: this program was built without libsixel, which sixel needs (libsixel-dev)");
}

#endif

}  // namespace rocm_sd
