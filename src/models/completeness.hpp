// Whether a checkpoint's components hold the tensors of their models, all of them and no others: a tensor
// that is missing, or left over, would silently make another model.
#pragma once

#include <string>

#include "weights/checkpoint.hpp"

namespace rocm_sd {

// "unet of sd15.safetensors", for messages about the component's configuration.
std::string config_title(const Checkpoint& checkpoint, Component component);

// Compares names, shapes and types of every component with what its configuration builds; no values are read.
// Tensors of a component are used, or belong to the few that models are known to leave (the projection of a
// first text encoder, the layer that SD 2 does not run, a VAE without its encoder), or are an error. Throws
// FormatError naming the tensors by their names in the file, ShapeError for a shape.
void require_complete(const Checkpoint& checkpoint);
void require_complete(const Checkpoint& checkpoint, Component component);

}  // namespace rocm_sd
