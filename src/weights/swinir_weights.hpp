// Files of SwinIR (Liang et al., "SwinIR: Image Restoration Using Swin Transformer", 2021): the authors' and
// those that other programs trained from them.
#pragma once

#include "weights/store.hpp"

namespace rocm_sd {

// Whether the names are those of a SwinIR.
bool is_swinir(const TensorSet& tensors);

// Canonical names: input (a convolution of one pixel: the mean of the training images is taken off, the range
// made what the network reads), conv_first, patch_embed.norm, layers.{i}.blocks.{j}.norm1, attn.qkv,
// attn.proj, attn.positions (the table of relative positions, [(2w-1)^2,heads]), norm2, mlp.fc1, mlp.fc2,
// layers.{i}.conv, norm, conv_after_body, conv_before_upsample.0, upsample.{n}, conv_up{n}, conv_hr,
// conv_last. The last layer's values have the range and the mean again. Masks and indices that files hold are
// left out: they follow from the sizes. Throws FormatError for names that have no place.
WeightStore swinir_of(const TensorSet& tensors);

// The side of the windows of a table with so many rows, (2 side - 1)^2; 0: no side has so many.
int64_t window_side(int64_t table_rows);

}  // namespace rocm_sd
