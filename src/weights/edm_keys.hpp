// Keys by which single files of SDXL models that were trained as EDM (Karras et al. 2022) say so:
// Playground 2.5's edm_mean and edm_std, CosXL's edm_vpred.sigma_max and edm_vpred.sigma_min. ComfyUI's
// comfy/supported_models.py (class SDXL) and Diffusers' from_single_file read the same.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "weights/tensor_set.hpp"

namespace rocm_sd {

// Whether the file has one of these keys.
bool has_edm_keys(const TensorSet& tensors);

// The scheduler_config.json that such a model's folder has. Throws FormatError where a key's partner is
// missing, or where a tensor has another number of values than it should or one that is not a positive
// number.
nlohmann::json edm_scheduler_config(const TensorSet& tensors);

// The fields of the VAE's config.json that edm_mean and edm_std set: latents_mean, latents_std,
// scaling_factor; an empty object where the file has neither.
nlohmann::json edm_vae_fields(const TensorSet& tensors);

}  // namespace rocm_sd
