// Files of image upscalers: RRDBNet (ESRGAN, Real-ESRGAN) and SRVGGNetCompact, under the names of their
// original training code today (BasicSR), SPAN and SwinIR.
#pragma once

#include <filesystem>

#include "weights/store.hpp"

namespace rocm_sd {

// Canonical names: of an RRDBNet conv_first, body.{b}.rdb{1..3}.conv{1..5}, conv_body, conv_up{1..}, conv_hr,
// conv_last; of an SRVGGNetCompact body.{n}, convolutions and, between them, slopes [1,C]. Files of RRDBNet
// may have three sets of names: BasicSR's, those before it (RRDB_trunk, trunk_conv, upconv1, HRconv), and the
// oldest (model.0, model.1.sub.0.RDB1.conv1.0, ...). The factor 0.2 of a dense block's result is in its last
// convolution's values. Of a SPAN: span_weights.hpp, of a SwinIR: swinir_weights.hpp. A .safetensors file, or
// one of torch.save. Throws FileError, and FormatError for files of other models (what they hold) and for
// tensors that have no place.
WeightStore open_upscaler(const std::filesystem::path& path, FileAccess access = FileAccess::kRead);
WeightStore upscaler_of(const TensorSet& tensors);

}  // namespace rocm_sd
