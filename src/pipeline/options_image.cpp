// Options of image to image, of tiled diffusion, and size conditions.
#include "pipeline/latents_file.hpp"
#include "pipeline/option_tables.hpp"

namespace rocm_sd::option_tables {
namespace {

void set_latents(Request& request, const std::string& path) {
  constexpr int64_t kDownscale = 8;
  Latents latents = load_latents(path);
  request.width = static_cast<int>(kDownscale * latents.width);
  request.height = static_cast<int>(kDownscale * latents.height);
  request.batch = static_cast<int>(latents.images);
  request.init_latents = std::move(latents.values);
}

}  // namespace

std::vector<OptionRow> image_to_image_options() {
  return {
      {"init-image", "i", "Image to image", "FILE", "picture to start from (PNG, JPEG, WebP)",
       [](OptionTargets& t, std::string_view v) { request_of(t).init_image = load_image(std::string(v)); }},
      {"strength", "", "Image to image", "X", "share of the steps that change it, 0 to 1 [0.75]",
       number(&Request::strength, 0, 1)},
      {"mask", "", "Image to image", "FILE", "white is repainted; a transparent picture counts by its alpha",
       [](OptionTargets& t, std::string_view v) { request_of(t).mask = load_image(std::string(v)); }},
      {"mask-blur", "", "Image to image", "PX", "Gaussian blur of the mask [4]",
       integer(&Request::mask_blur, 0, 64)},
      {"mask-downscale", "", "Image to image", "HOW",
       "mask at the latents' size: area (A1111), nearest (Diffusers) [area; inpainting models: nearest]",
       text(&Request::mask_downscale)},
      {"mask-blend", "", "Image to image", "HOW",
       "what keeps the rest of a masked picture: denoised (A1111), latents (Diffusers) [denoised]",
       text(&Request::mask_blend)},
      {"vae-sample", "", "Image to image", "HOW",
       "latents of a picture: mean, or posterior: drawn from the seed, as Diffusers [mean]",
       text(&Request::vae_sample)},
      {"init-latents", "", "Image to image", "FILE",
       "latents to start from, as --keep-latents writes them; their size and number count",
       [](OptionTargets& t, std::string_view v) { set_latents(request_of(t), std::string(v)); }},
      {"keep-latents", "", "Image to image", "", "write latents, too: beside each picture as .safetensors",
       [](OptionTargets& t, std::string_view v) { request_of(t).keep_latents = parse_flag(v); }},
      {"depth", "", "Image to image", "FILE", "depth models: a depth map, near is bright",
       [](OptionTargets& t, std::string_view v) { request_of(t).depth = load_image(std::string(v)); }},
      {"image-cfg-scale", "", "Image to image", "X", "instruct-pix2pix: how close to the picture [1.5]",
       number(&Request::image_cfg_scale, 0, 100)},
  };
}

std::vector<OptionRow> tile_options() {
  return {
      {"tile-size", "", "Tiles", "PX",
       "the UNet over windows of this side, averaged; 0: the whole picture [0]",
       integer(&Request::tile_size, 0, kMaxSide)},
      {"tile-overlap", "", "Tiles", "PX", "what neighbouring windows share at least [half of tile-size]",
       integer(&Request::tile_overlap, 0, kMaxSide)},
      {"tile-batch", "", "Tiles", "N", "windows in one UNet call [1]", integer(&Request::tile_batch, 1, 64)},
      {"tile-weights", "", "Tiles", "NAME", "in the average: uniform, gaussian [uniform]",
       text(&Request::tile_weights)},
  };
}

std::vector<OptionRow> advanced_options() {
  return {
      {"aesthetic-score", "", "Advanced", "X", "SDXL refiner [6]", number(&Request::aesthetic_score, 0, 100)},
      {"negative-aesthetic-score", "", "Advanced", "X", "SDXL refiner [2.5]",
       number(&Request::negative_aesthetic_score, 0, 100)},
      {"original-width", "", "Advanced", "PX", "SDXL size condition [the picture's]",
       integer(&Request::original_width, 0, 65536)},
      {"original-height", "", "Advanced", "PX", "SDXL size condition [the picture's]",
       integer(&Request::original_height, 0, 65536)},
      {"crop-left", "", "Advanced", "PX", "SDXL crop condition [0]", integer(&Request::crop_left, 0, 65536)},
      {"crop-top", "", "Advanced", "PX", "SDXL crop condition [0]", integer(&Request::crop_top, 0, 65536)},
      {"target-width", "", "Advanced", "PX", "SDXL size condition [the picture's]",
       integer(&Request::target_width, 0, 65536)},
      {"target-height", "", "Advanced", "PX", "SDXL size condition [the picture's]",
       integer(&Request::target_height, 0, 65536)},
      {"negative-original-width", "", "Advanced", "PX", "of the negative prompt [the prompt's]",
       optional_integer(&Request::negative_original_width, 0, 65536)},
      {"negative-original-height", "", "Advanced", "PX", "of the negative prompt [the prompt's]",
       optional_integer(&Request::negative_original_height, 0, 65536)},
      {"negative-crop-left", "", "Advanced", "PX", "of the negative prompt [the prompt's; refiner: 0]",
       optional_integer(&Request::negative_crop_left, 0, 65536)},
      {"negative-crop-top", "", "Advanced", "PX", "of the negative prompt [the prompt's; refiner: 0]",
       optional_integer(&Request::negative_crop_top, 0, 65536)},
      {"negative-target-width", "", "Advanced", "PX", "of the negative prompt [the prompt's]",
       optional_integer(&Request::negative_target_width, 0, 65536)},
      {"negative-target-height", "", "Advanced", "PX", "of the negative prompt [the prompt's]",
       optional_integer(&Request::negative_target_height, 0, 65536)},
      {"denoising-start", "", "Advanced", "X", "begin at this share of the training timesteps (refiner) [0]",
       share(&Request::denoising_start)},
      {"denoising-end", "", "Advanced", "X", "stop at this share of the training timesteps (base) [1]",
       share(&Request::denoising_end)},
  };
}

}  // namespace rocm_sd::option_tables
