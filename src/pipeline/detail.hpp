// Detailer: parts of a finished picture drawn again, larger, by inpainting their surroundings alone
// (inpaint.hpp's masked_part), and put back.
#pragma once

#include <utility>

#include "pipeline/inpaint.hpp"
#include "pipeline/loopback.hpp"

namespace rocm_sd {

// "8,16,64,48": left, top, width, height. Throws UsageError.
Detailer::Box parse_detail_box(std::string_view text);

// The boxes around the white areas of a mask that hang together (by sides or corners), from the top; of those
// smaller than 4 x 4 pixels none.
std::vector<Detailer::Box> boxes_of_mask(const Image& mask);

// Where the request's parts lie in a picture of this size. Throws UsageError for none, for too many, and for
// boxes beyond the picture.
std::vector<Detailer::Box> detail_boxes(const Detailer& use, int width, int height);

// The request that draws one part of `picture` again: image `index` of the batch, which has this seed.
GenerateRequest detail_request(const GenerateRequest& request, const Image& picture, const Detailer::Box& box,
                               size_t index, uint64_t seed);

// What the memory of such a request is planned by: its pictures, and a part of one of `width` x `height`
// (where the request says no size).
std::pair<GenerateRequest, GenerateRequest> detail_plans(const GenerateRequest& request, int width,
                                                         int height);

// The request's pictures, and then each part of them.
GenerateResult draw_details(const GenerateRequest& request, const DrawOnce& draw);

}  // namespace rocm_sd
