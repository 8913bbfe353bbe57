// The parts of a Stable Diffusion checkpoint and the kinds of checkpoint.
#pragma once

#include <cstdint>
#include <string_view>
#include "base/prediction.hpp"

namespace rocm_sd {

enum class Component { kUnet, kVae, kTextEncoder, kTextEncoder2, kTinyVae };
inline constexpr Component kComponents[] = {Component::kUnet, Component::kVae, Component::kTextEncoder,
                                            Component::kTextEncoder2, Component::kTinyVae};

// Diffusers' folder name: "unet", "vae", "text_encoder", "text_encoder_2"; "tiny_vae" for TAESD.
std::string_view component_name(Component component);

// The refiner's only text encoder is kTextEncoder2 (OpenCLIP bigG), as in Diffusers.
enum class ModelKind { kSd1, kSd2, kSdxl, kSdxlRefiner };
std::string_view model_kind_name(ModelKind kind);  // "sd1", "sd2", "sdxl", "sdxl_refiner"

// What a UNet's inputs beside the 4 latents say: "inpainting" (9 in all), "instruct-pix2pix" (8), "depth"
// (5); empty: nothing.
std::string_view unet_variant(int64_t in_channels);

std::string_view prediction_name(Prediction prediction);  // "epsilon", "v_prediction", "sample"

}  // namespace rocm_sd
