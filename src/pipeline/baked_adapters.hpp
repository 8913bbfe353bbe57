// LoRAs merged into the weights that a converter writes.
#pragma once

#include <memory>

#include "pipeline/adapters.hpp"
#include "weights/component_tensors.hpp"

namespace rocm_sd {

// The checkpoint's weights with these LoRAs merged, in their order: what a pipeline draws with, before it is
// rounded. The checkpoint must outlive the result. Throws what AdapterLibrary::open throws.
std::shared_ptr<const ChangedWeights> bake_adapters(const Checkpoint& checkpoint,
                                                    const std::vector<LoraUse>& uses,
                                                    const std::string& lora_dir);

}  // namespace rocm_sd
