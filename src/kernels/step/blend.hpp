// blend: mixes two latents by a mask, as inpainting does after every prediction.
#pragma once

#include "runtime/exec.hpp"

namespace rocm_sd {

// a * mask + b * (1 - mask), element by element; all f32, contiguous and of one shape. Throws ShapeError
// otherwise.
Tensor blend(Exec& ex, const Tensor& a, const Tensor& b, const Tensor& mask);

}  // namespace rocm_sd
