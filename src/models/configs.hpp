// Model configurations as rows: the known models by name, and any other that a config.json of Diffusers or
// transformers describes.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/embed/embed.hpp"
#include "kernels/epilogue.hpp"

namespace rocm_sd {

struct ClipConfig {
  int64_t vocabulary = 49408, width = 768, heads = 12, mlp_width = 3072;
  int64_t layers = 12, positions = 77;
  Activation activation = Activation::kQuickGelu;
  float norm_eps = 1e-5f;
  int64_t projection = 0;           // width of text_projection's output; 0: the model has none
  bool use_attention_mask = false;  // padding is hidden from the tokens (Diffusers' SD 1 and 2 pipelines)
  // Whose state is the pooled one: the first token with this id. 2 (a mistake that old configs carry) means
  // the token with the highest id, which is the end of text in CLIP's own vocabulary.
  int64_t eos_token_id = 2;
  bool causal = true;  // a token sees those before it: text; not an image's patches
};

// CLIP's image encoder (transformers' CLIPVisionModelWithProjection).
struct ClipVisionConfig {
  int64_t width = 1280, heads = 16, mlp_width = 5120, layers = 32;
  int64_t image_size = 224, patch_size = 14;  // of a square, in pixels
  int64_t projection = 1024;                  // width of the embedding
  Activation activation = Activation::kGelu;
  float norm_eps = 1e-5f;

  int64_t side() const { return image_size / patch_size; }
  int64_t tokens() const { return side() * side() + 1; }  // the class token and one for each patch
};

// One resolution of a UNet, down or up.
struct UNetBlockConfig {
  int64_t channels = 0;
  int resnets = 2;  // up blocks have one more than the down block of their resolution
  // Transformer blocks after each resnet; empty: the block has no attention at all.
  std::vector<int> transformer_layers;
  int64_t heads = 8;
  int64_t context_width = 768;
  bool only_cross_attention = false;  // the first attention of a transformer block reads the text as well
  bool resamples = true;              // ends with a downsampler (down) or upsampler (up)
};

struct UNetMidConfig {
  std::vector<int> transformer_layers = {1};  // one entry; empty: UNetMidBlock2D, a single resnet
  int64_t heads = 8;
  int64_t context_width = 768;
};

struct UNetConfig {
  int64_t in_channels = 4, out_channels = 4;
  std::vector<UNetBlockConfig> down, up;  // up in the order of running, coarsest first
  std::optional<UNetMidConfig> mid;
  int64_t norm_groups = 32;
  float norm_eps = 1e-5f;
  int conv_in_kernel = 3, conv_out_kernel = 3;
  bool center_input = false;       // 2 x - 1 first
  int64_t time_width = 1280;       // of the time embedding
  TimestepEmbeddingArgs timestep;  // of the sinusoidal part, block 0's channels wide
  int64_t time_cond_width = 0;     // LCM's guidance embedding; 0: none
  // SDXL: pooled text and sizes added to the time embedding. 0: none.
  int64_t added_time_width = 0;  // sinusoidal width of each of the time ids
  int64_t added_width = 0;       // pooled text + ids * added_time_width

  bool has_added_conditions() const { return added_width > 0; }
  int64_t context_width() const;  // of the text states; 0 where no block has attention
};

struct VaeConfig {
  int64_t image_channels = 3, latent_channels = 4;
  std::vector<int64_t> channels = {128, 256, 512, 512};  // finest resolution first
  int resnets = 2;                                       // per encoder block; decoder blocks have one more
  int64_t norm_groups = 32;
  bool quant_conv = true, post_quant_conv = true;
  bool mid_attention = true;
  double scaling_factor = 0.18215;  // latents for the sampler = (z - shift_factor) * scaling_factor
  double shift_factor = 0;
  // Of the latents, by channel; empty: none. With both, Diffusers' SDXL pipelines put latents for the sampler
  // = (z - mean) * scaling_factor / std in place of the line above; its SD 1 and 2 pipelines read neither.
  std::vector<double> latents_mean, latents_std;
  bool force_upcast = true;  // fp16 overflows in this VAE (bf16 does not)
  // Not the model's: the decoder leaves out its last doubling, so that the finest level, most of its work,
  // sees a quarter of the pixels, and its picture is resized twofold at the end. An approximation; needs two
  // levels or more.
  bool half_size_finest = false;

  int64_t downscale() const { return int64_t{1} << (channels.size() - 1); }
};

struct TaesdConfig {
  int64_t image_channels = 3, latent_channels = 4;
  std::vector<int64_t> encoder_channels = {64, 64, 64, 64}, decoder_channels = {64, 64, 64, 64};
  std::vector<int> encoder_blocks = {1, 3, 3, 3}, decoder_blocks = {3, 3, 3, 1};
  double scaling_factor = 1, shift_factor = 0;

  int64_t downscale() const { return int64_t{1} << (decoder_channels.size() - 1); }
};

namespace configs {
// Text encoders: CLIP ViT-L/14 (SD 1, SDXL), OpenCLIP ViT-H/14 up to the layer that SD 2 uses, OpenCLIP
// ViT-bigG/14 (SDXL).
ClipConfig clip_l();
ClipConfig openclip_h();
ClipConfig openclip_bigg();
// Image encoders of IP-Adapters: OpenCLIP ViT-H/14 and ViT-bigG/14.
ClipVisionConfig vision_h();
ClipVisionConfig vision_bigg();
// UNets. in_channels: 4, 9 (inpainting: latents, mask, masked picture) or 8 (instruct-pix2pix).
UNetConfig unet_sd1(int64_t in_channels = 4);
UNetConfig unet_sd2(int64_t in_channels = 4);  // epsilon and v, 512 and 768 alike
UNetConfig unet_sdxl(int64_t in_channels = 4);
UNetConfig unet_sdxl_refiner();
VaeConfig vae_sd();
VaeConfig vae_sdxl();
TaesdConfig taesd();  // TAESD and TAESDXL
}  // namespace configs

// From the JSON of UNet2DConditionModel, AutoencoderKL, AutoencoderTiny (Diffusers) and CLIPTextModel,
// CLIPTextModelWithProjection, CLIPVisionModelWithProjection (transformers). `what` names the file in
// messages. Throw FormatError naming the field, what was expected and what came; an option that is not
// implemented is refused by name. A UNet's or VAE's field that is unknown here is refused too, unless it is
// null or false.
UNetConfig unet_config(const nlohmann::json& json, std::string_view what);
VaeConfig vae_config(const nlohmann::json& json, std::string_view what);
TaesdConfig taesd_config(const nlohmann::json& json, std::string_view what);
ClipConfig clip_config(const nlohmann::json& json, std::string_view what);
ClipVisionConfig clip_vision_config(const nlohmann::json& json, std::string_view what);

}  // namespace rocm_sd
