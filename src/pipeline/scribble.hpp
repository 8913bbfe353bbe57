// Preprocessors that make lines by thresholds, as A1111's ControlNet extension computes them with OpenCV:
// borders are mirrored, the border's own pixel not repeated.
#pragma once

#include "rocm_sd/image.hpp"

namespace rocm_sd {

// 255 where a value is above the threshold, else 0; each channel by itself (OpenCV's binary threshold).
Image binarised(const Image& image, double threshold);
// White lines on black, of dark lines on a light ground: where the least channel is below the threshold
// (ControlNet's "scribble").
Image scribble(const Image& image, double threshold);
// The same of a photo, by an extended difference of Gaussians (Winnemoeller et al. 2012) as A1111's
// scribble_xdog: where a channel is darker than its surroundings, under deviations of 0.5 and 5 pixels, by
// more than half of the threshold.
Image scribble_of_photo(const Image& image, double threshold);
// Of a soft edge map (HED), as A1111's scribble_hed after its network: ridges above 127, widened to lines.
Image scribble_of_edges(const Image& map);

}  // namespace rocm_sd
