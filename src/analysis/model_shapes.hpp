// The shapes of whole models as a list of problems, one a line: what tests in full size and `bench --shapes`
// read. tests/data/model_shapes.txt is the list of default_shape_sets(), written by `make model-shapes`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/planned_model.hpp"

namespace rocm_sd {

// A model at a size of picture, in one type.
struct ShapeSet {
  std::string model;  // "sdxl", as known_model() takes it
  int64_t height = 512, width = 512;
  DType dtype = DType::kF16;  // f16 or bf16
};

// SD 1.5 and SDXL at 512 x 512 and 1024 x 1024, in f16, then in bf16.
std::vector<ShapeSet> default_shape_sets();

// Every problem of attention, linear, conv2d, group_norm and layer_norm in text to image with guidance and in
// the VAE's encoder, in the types that a GPU computes in: lines "linear 8192x320x320 f16 bias" below
// "# f16 sd15 512x512 unet", a section for each type, model, size and stage. A problem stands once, in the
// first section that has it. Throws as known_model and plan_model.
std::string model_shapes_text(const std::vector<ShapeSet>& sets);

}  // namespace rocm_sd
