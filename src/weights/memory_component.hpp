// One component of a live model: tensors that lie in memory, under the names of any known layout.
#pragma once

#include "weights/component_loader.hpp"

namespace rocm_sd {

// The component with canonical names and its configuration: `config` (the keys of Diffusers' config.json)
// where it is given, else derived from the shapes. Throws FormatError where the tensors are not of that
// component.
LoadedComponent component_in_memory(const TensorSet& tensors, Component component,
                                    std::optional<nlohmann::json> config = {});

}  // namespace rocm_sd
