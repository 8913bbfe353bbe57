// The tensors of a component as a converter writes them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "weights/checkpoint.hpp"

namespace rocm_sd {

// Canonical names that belong in a written component: what the configuration does not run (SD 2's last text
// layer, the projection of a CLIPTextModel) is left out.
std::vector<std::string> written_names(const WeightStore& store, const nlohmann::json& config);

// The tensors under Diffusers' or LDM names, in type `dtype` where they are floats. The store must outlive
// the result. Attention of the VAE is linear in Diffusers and a 1x1 convolution in LDM files. Throws
// FormatError for a tensor that the LDM layout cannot hold.
std::vector<TensorToWrite> diffusers_tensors(const WeightStore& store, const nlohmann::json& config,
                                             std::optional<DType> dtype);
std::vector<TensorToWrite> ldm_tensors(const WeightStore& store, const nlohmann::json& config, ModelKind kind,
                                       std::optional<DType> dtype);

}  // namespace rocm_sd
