// What the files beside a model hold, told without one: LoRAs, ControlNets, T2I-Adapters, IP-Adapters, image
// encoders, embeddings.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "weights/tensor_set.hpp"

namespace rocm_sd {

// Adds to a report of inspect() what kind of file this is; leaves it as it is for none of the above.
// Keys: adapter, controlnet, t2i_adapter, ip_adapter, image_encoder or embedding, and type; problem for one
// that would not load.
void describe_adapter(nlohmann::ordered_json& report, const TensorSet& tensors);

// The same for people, lines of "name         value".
std::string adapter_text(const nlohmann::ordered_json& report);

}  // namespace rocm_sd
