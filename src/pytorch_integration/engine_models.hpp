// The engine's UNet and VAE over the parameters of live PyTorch modules: one operator call a forward, on
// PyTorch's current stream and with its memory. Python owns the numbers (rocm_sd_ops.engine_modules).
#pragma once

#include <string>
#include <vector>

#include "pytorch_integration/torch_tensor.hpp"

namespace rocm_sd::torch_ops {

// tensors: the module's state under `names` (one a line), Diffusers' or LDM's; all on one device, of one
// type, in which is computed. They are used where they lie wherever the kernels take that layout. config:
// Diffusers' config.json, or empty where the shapes say it. Throws FormatError, ShapeError or Declined with
// the reason for a model that the engine does not have.
int64_t new_engine_unet(std::vector<AtTensor> tensors, std::string names, std::string config);
// half: "decoder" or "encoder". Its input is what comes after post_quant_conv, its output what comes before
// quant_conv, as with the modules vae.decoder and vae.encoder.
int64_t new_engine_vae(std::vector<AtTensor> tensors, std::string names, std::string config,
                       std::string half);
void drop_engine_model(int64_t id);  // an unknown id is no error

// sample [N,C,H,W], timestep [N] f32, text [N,T,W], text_embeds [N,P] and time_ids [N,I] f32 (SDXL),
// guidance [N,G] (LCM) -> [N,C',H,W], channels_last. same_text: the text is the previous call's, whose keys
// and values are used again. Throws UsageError for an unknown id.
AtTensor engine_unet(int64_t id, AtTensor sample, AtTensor timestep, AtTensor text, OptionalAt text_embeds,
                     OptionalAt time_ids, OptionalAt guidance, bool same_text);
// x [N,C,H,W] -> [N,C',H',W'], channels_last. bands: of rows that a decoder works in; the result is the same.
AtTensor engine_vae(int64_t id, AtTensor x, int64_t bands);

}  // namespace rocm_sd::torch_ops
