// ComfyUI's scaled fp8: weights in float8 with a factor for each tensor, and what says so. The values are the
// stored ones times the factor. Two forms (ComfyUI, QUANTIZATION.md and comfy/utils.py):
//   older   LAYER.scale_weight, LAYER.scale_input, one marker PREFIXscaled_fp8 of 0 to 2 elements for a
//   model; newer   LAYER.weight_scale, LAYER.input_scale, LAYER.comfy_quant: the bytes of {"format":
//   "float8_e4m3fn"}, or the same for all
//           layers in the metadata: _quantization_metadata {"layers": {LAYER: {"format": ...}}}.
// Factors of inputs serve products in fp8 alone and are left.
#pragma once

#include <map>
#include <span>
#include <string>

#include "weights/name_map.hpp"

namespace rocm_sd {

class ScaledFp8 {
 public:
  // Reads the metadata of the component's files. Throws FormatError naming the file where it is malformed.
  explicit ScaledFp8(std::span<const NamedTensor> tensors);

  // True where the tensor belongs to the format and is no weight: it is kept, or is a name in `harmless`.
  // Throws FormatError naming the tensor where it is malformed or tells a format that is not read.
  bool take(const NamedTensor& tensor, std::vector<std::string>& harmless);

  // Gives the weights their factors. Throws FormatError naming the tensor: a factor that is no single finite
  // number above 0, or integers that have one; a layer that is said to be in fp8 and is in another type, or
  // has no factor; a layer in another of ComfyUI's formats. Factors of weights that are not there become
  // names in `unexpected`.
  void attach(WeightMap& weights, std::vector<std::string>& unexpected) const;

 private:
  struct Said {
    std::string format, where;  // "float8_e4m3fn", the tensor or metadata that says so
  };
  const Said* format_of(const std::string& layer) const;

  std::map<std::string, TensorRef> scales_;            // by layer, its full name in the file
  std::map<std::string, Said> formats_;                // the same
  std::map<std::string, Said, std::less<>> metadata_;  // by layer, with or without the prefix
  size_t prefix_ = 0;                                  // bytes of the component's prefix
};

// For reports, by names alone: layers with a factor, those among them that have one for inputs, those that
// name their format.
struct ScaledFp8Counts {
  size_t layers = 0, input_scales = 0, formats = 0;
};
ScaledFp8Counts count_scaled_fp8(std::span<const TensorRef> tensors);

}  // namespace rocm_sd
