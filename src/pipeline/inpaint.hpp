// Inpainting as A1111 does it: what the repainted part begins as, the surroundings of a mask alone, canvases
// that grow. Written from its behaviour (modules/masking.py, processing.py).
#pragma once

#include <string>
#include <vector>

#include "rocm_sd/pipeline.hpp"

namespace rocm_sd {

enum class MaskedContent { kOriginal, kFill, kNoise, kNothing };
// The request's: by A1111's words, "auto" resolved. Throws UsageError.
MaskedContent masked_content(const GenerateRequest& request);

// pixels [height,width,3] in -1..1 with what is masked (mask [height,width], 1 is masked) painted over by
// blurs of the rest, the widest first, the narrowest on top.
std::vector<float> fill_masked(const std::vector<float>& pixels, const std::vector<float>& mask, int width,
                               int height);

struct PictureArea {
  int left = 0, top = 0, width = 0, height = 0;
};
// Around all places where the mask is not 0, `padding` further, widened within the image to the shape of
// width x height where there is room. Throws UsageError for an empty mask.
PictureArea masked_area(const std::vector<float>& mask, int image_width, int image_height, int padding,
                        int width, int height);

// A request for the mask's surroundings alone, and what makes of its pictures the whole again.
struct MaskedPart {
  GenerateRequest request;  // whose mask is blurred
  PictureArea area;
  Image original;
  std::vector<float> mask;  // of the original's size, blurred
  Image pasted(const Image& part) const;
};
// width, height: of the part where the request says none.
MaskedPart masked_part(const GenerateRequest& request, int width, int height);

// The request with the canvas grown: its image, its mask, its size. Sides become multiples of 8; the mask
// reaches two blurs into the image.
GenerateRequest outpainted(const GenerateRequest& request);

// Throws UsageError for numbers out of range and modes without what they work on.
void check_inpainting(const GenerateRequest& request);

}  // namespace rocm_sd
