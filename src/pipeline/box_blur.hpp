// Gaussian blurs as Pillow makes them.
#pragma once

#include <cstdint>
#include <vector>

namespace rocm_sd {

// plane [height,width] blurred in place by a Gaussian of this standard deviation, as three boxes (Gwosdek et
// al., "Theoretical Foundations of Gaussian Convolution by Extended Box Filtering", 2011); the border
// repeats. Nothing where it is 0 or less.
void blur_by_boxes(std::vector<float>& plane, int64_t width, int64_t height, double sigma);

}  // namespace rocm_sd
