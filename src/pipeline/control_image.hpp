// What a ControlNet sees: the request's image at the size that is drawn, resized and prepared as asked.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rocm_sd/image.hpp"

namespace rocm_sd {

// A1111's modes for an image of another shape: stretched; covering, the middle cut out; or whole, in the
// middle of a ground that has the median colour of the image's border.
enum class ControlResize { kStretch, kCrop, kFill };
ControlResize parse_control_resize(std::string_view name);  // "just", "crop", "fill"; throws UsageError
const char* control_resize_label(ControlResize how);        // "Just Resize", as A1111 has it

Image resize_control(const Image& image, ControlResize how, int width, int height);

struct ControlPreprocess {
  std::string name = "none";     // as parse_control_preprocess() lists them
  double low = 100, high = 200;  // canny's thresholds; low: of the one of threshold, scribble, scribble_xdog
  double factor = 1;             // tile's: how many times smaller before it is enlarged again
};
// "canny", "canny:50:150", "tile:4". Throws UsageError.
ControlPreprocess parse_control_preprocess(std::string_view text);
Image preprocess_control(const Image& image, const ControlPreprocess& how);

// Edges by Canny's method (Canny 1986) in OpenCV's form: white on black. Sobel derivatives of each channel,
// of which the one with the largest |dx| + |dy| counts; the pixel must not be below its neighbours along the
// gradient; edges begin above `high` and go on above `low`.
Image canny(const Image& image, double low, double high);

// [height,width,3] in 0..1. mask [height,width], or empty: where it is 0.5 or more the pixel is -1
// (inpainting).
std::vector<float> control_floats(const Image& image, bool bgr, const std::vector<float>& mask = {});

}  // namespace rocm_sd
