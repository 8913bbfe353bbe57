// A group norm and the 3x3 convolution behind it on divided rows, by one exchange in place of two: the rows
// that a rank needs of its neighbours come beside the moments, before the norm, and are normalised here, as
// its own are.
#pragma once

#include "models/row_split.hpp"

namespace rocm_sd {

// conv(silu(group_norm(x))): x [N,R,W,C], padding 1, stride 1 -> this rank's rows of the result. dtype: that
// conv reads.
Tensor norm_silu_conv_of_rows(Exec& ex, const RowSplit& split, Tensor x, const Norm& norm, int64_t groups,
                              DType dtype, ConvArgs args, const ConvOfRows& conv);

}  // namespace rocm_sd
