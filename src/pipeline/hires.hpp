// The second pass of A1111's "Hires. fix": its sizes, and the request that it is.
#pragma once

#include <optional>
#include <vector>

#include "pipeline/image_sizes.hpp"
#include "pipeline/latent_resize.hpp"

namespace rocm_sd {

// The first pass's picture is enlarged to `enlarged`, of which the middle, `result`, is drawn; both multiples
// of the latents' side.
struct HiresSizes {
  PictureSize enlarged, result;
};
// first: the first pass's size. multiple: pixels of a latent. Throws UsageError for sizes beyond what is
// drawn.
HiresSizes hires_sizes(const HiresFix& hires, const PictureSize& first, int multiple);

// Throws UsageError for numbers out of range, and for what a second pass does not go with.
void check_hires(const GenerateRequest& request);

// Whether the init image takes the first pass's place: it is enlarged and drawn again (A1111's script "SD
// upscale", by windows of the latents).
bool redraws_image(const GenerateRequest& request);
// What is drawn then, but for the pictures that it starts from: image to image with the request's own
// strength.
GenerateRequest redrawn(const GenerateRequest& request, const PictureSize& size);

// The second pass, but for what it starts from. resolved: the first pass's, its seeds drawn.
GenerateRequest second_pass(const GenerateRequest& request, const GenerateRequest& resolved,
                            const PictureSize& size);

// The first pass's latents [images,4,h,w] at the second's size.
std::vector<float> enlarge_latents(const std::vector<float>& latents, const PictureSize& first,
                                   const HiresSizes& sizes, int multiple, LatentResize mode);
// The middle of the image. A1111 cuts what is odd at the end.
Image cut_middle(const Image& image, const PictureSize& size, int multiple);

}  // namespace rocm_sd
