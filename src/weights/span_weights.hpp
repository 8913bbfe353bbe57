// Files of SPAN (Wan et al., "Swift Parameter-free Attention Network for Efficient Super-Resolution", 2023),
// under the names of its training code.
#pragma once

#include "weights/store.hpp"

namespace rocm_sd {

// By names: block_1.c1_r.* and conv_cat.*, with or without "module." before them.
bool is_span(const TensorSet& tensors);

// Canonical names: conv_1, block_{1..6}.c{1..3}_r, conv_2 (3x3), conv_cat (1x1), upsampler.0 (3x3). While it
// is trained, a 3x3 convolution is a 1x1, a 3x3 and a 1x1 one behind each other (NAME.conv.{0,1,2}) beside a
// 1x1 one (NAME.sk); they are merged into one (section 3.3; sums in double), in float32, in memory that the
// result owns. A file that has only NAME.eval_conv, the merged one, is taken as it is. "input" is a 1x1
// convolution that makes (colour - mean) * 255 of a colour; files that carry no_norm do without. Throws
// FormatError naming the tensor where one is missing, has another shape or has no place.
WeightStore span_of(const TensorSet& tensors);

}  // namespace rocm_sd
