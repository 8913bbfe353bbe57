// row_range: rows of numbers stretched to 0..1, as FreeU's second version weighs the pixels of a map.
#pragma once

#include "runtime/exec.hpp"

namespace rocm_sd {

// factor * (x - least) / (most - least) with the least and the most of each row, 0 in rows of one value:
// x [rows, cols] f32, contiguous -> [rows, cols] f32. Throws ShapeError otherwise.
Tensor row_range(Exec& ex, const Tensor& x, float factor);

}  // namespace rocm_sd
