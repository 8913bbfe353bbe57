// Options of image to image, of tiled diffusion, and size conditions.
#include <cmath>

#include "pipeline/detail.hpp"
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

Outpaint parse_outpaint(std::string_view list) {
  const std::vector<double> sides = parse_list(list);
  require<UsageError>(sides.size() == 4, "expected four numbers: left,right,up,down, got ", sides.size());
  for (const double side : sides)
    require<UsageError>(side <= kMaxSide && side == std::floor(side), "expected whole numbers from 0 to ",
                        kMaxSide, ", got ", side);
  const auto whole = [&](size_t i) { return static_cast<int>(sides[i]); };
  return {whole(0), whole(1), whole(2), whole(3)};
}

// Setters of HiresFix's fields.
Setter hires_number(double HiresFix::* field, double least, double most) {
  return [=](OptionTargets& t, std::string_view v) {
    request_of(t).hires.*field = parse_number(v, least, most);
  };
}
Setter hires_integer(int HiresFix::* field, int64_t most) {
  return [=](OptionTargets& t, std::string_view v) {
    request_of(t).hires.*field = static_cast<int>(parse_integer(v, 0, most));
  };
}
template <class Field>  // std::string, or optional
Setter hires_text(Field HiresFix::* field) {
  return [=](OptionTargets& t, std::string_view v) {
    const std::string problem = utf8_problem(v);
    require<UsageError>(problem.empty(), problem);
    request_of(t).hires.*field = std::string(v);
  };
}

}  // namespace

std::vector<OptionRow> hires_options() {
  return {
      {"hires-scale", "", "Second pass", "X",
       "draw the picture (or take --init-image), enlarge it by this, and draw it again from there (A1111's "
       "hires "
       "fix); 0: no [0]",
       hires_number(&HiresFix::scale, 0, 8)},
      {"hires-width", "", "Second pass", "PX", "the result's, in place of the scale",
       hires_integer(&HiresFix::width, kMaxSide)},
      {"hires-height", "", "Second pass", "PX", "the same; both cut what is beyond their shape",
       hires_integer(&HiresFix::height, kMaxSide)},
      {"hires-upscaler", "", "Second pass", "NAME|FILE",
       "Latent, \"Latent (bicubic antialiased)\", ..., Lanczos, Nearest, or a network's file [Latent]",
       hires_text(&HiresFix::upscaler)},
      {"hires-steps", "", "Second pass", "N", "steps that it runs [--steps]",
       hires_integer(&HiresFix::steps, 1000)},
      {"hires-denoising-strength", "", "Second pass", "X", "how much it changes, above 0 to 1 [0.7]",
       hires_number(&HiresFix::strength, 0, 1)},
      {"hires-cfg-scale", "", "Second pass", "X", "[--cfg-scale]",
       [](OptionTargets& t, std::string_view v) {
         request_of(t).hires.cfg_scale = parse_number(v, -100, 100);
       }},
      {"hires-sampler", "", "Second pass", "NAME", "[--sampler]", hires_text(&HiresFix::sampler)},
      {"hires-schedule", "", "Second pass", "NAME", "[--schedule]", hires_text(&HiresFix::schedule)},
      {"hires-prompt", "", "Second pass", "TEXT", "[--prompt]", hires_text(&HiresFix::prompt)},
      {"hires-negative-prompt", "", "Second pass", "TEXT", "[--negative-prompt]",
       hires_text(&HiresFix::negative_prompt)},
      {"hires-tile-size", "", "Second pass", "PX",
       "draw it in overlapping windows of this side, as --tile-size does [--tile-size]",
       hires_integer(&HiresFix::tile_size, kMaxSide)},
      {"hires-tile-overlap", "", "Second pass", "PX", "what they share at least [64]",
       hires_integer(&HiresFix::tile_overlap, kMaxSide)},
  };
}

std::vector<OptionRow> repeated_options() {
  const auto detail_integer = [](int Detailer::* field, int64_t most) -> Setter {
    return [=](OptionTargets& t, std::string_view v) {
      request_of(t).detail.*field = static_cast<int>(parse_integer(v, 0, most));
    };
  };
  const auto detail_text = [](std::optional<std::string> Detailer::* field) -> Setter {
    return [=](OptionTargets& t, std::string_view v) {
      const std::string problem = utf8_problem(v);
      require<UsageError>(problem.empty(), problem);
      request_of(t).detail.*field = std::string(v);
    };
  };
  return {
      {"detail-box", "", "Details", "L,T,W,H",
       "draw this part of the finished picture again, larger, and put it back: left, top, width, height in "
       "pixels; may be given several times",
       [](OptionTargets& t, std::string_view v) {
         request_of(t).detail.boxes.push_back(parse_detail_box(v));
       },
       true},
      {"detail-mask", "", "Details", "FILE", "the same for each white area that hangs together",
       [](OptionTargets& t, std::string_view v) { request_of(t).detail.mask = read_picture(v); }},
      {"detail-prompt", "", "Details", "TEXT", "of the parts [--prompt]", detail_text(&Detailer::prompt)},
      {"detail-negative-prompt", "", "Details", "TEXT", "[--negative-prompt]",
       detail_text(&Detailer::negative_prompt)},
      {"detail-strength", "", "Details", "X", "how much a part changes, above 0 to 1 [0.4]",
       [](OptionTargets& t, std::string_view v) { request_of(t).detail.strength = parse_number(v, 0, 1); }},
      {"detail-steps", "", "Details", "N", "[--steps]", detail_integer(&Detailer::steps, 1000)},
      {"detail-padding", "", "Details", "PX", "how much is seen around a part [32]",
       detail_integer(&Detailer::padding, 1024)},
      {"detail-blur", "", "Details", "PX", "Gaussian blur of its border [4]",
       detail_integer(&Detailer::blur, 64)},
      {"detail-width", "", "Details", "PX", "size that a part is drawn at [the model's own]",
       detail_integer(&Detailer::width, kMaxSide)},
      {"detail-height", "", "Details", "PX", "the same", detail_integer(&Detailer::height, kMaxSide)},
      {"loopback", "", "Image to image", "N", "so many times, each from the picture before [1]",
       [](OptionTargets& t, std::string_view v) {
         request_of(t).loopback.loops = static_cast<int>(parse_integer(v, 1, 100));
       }},
      {"loopback-strength", "", "Image to image", "X", "strength of the last of them [--strength]",
       [](OptionTargets& t, std::string_view v) {
         request_of(t).loopback.final_strength = parse_number(v, 0, 1);
       }},
      {"loopback-curve", "", "Image to image", "NAME", "between them: aggressive, linear, lazy [linear]",
       [](OptionTargets& t, std::string_view v) { request_of(t).loopback.curve = std::string(v); }},
  };
}

std::vector<OptionRow> preview_options() {
  return {
      {"preview", "", "Output", "MODE",
       "look at the picture between steps: none, proj (a matrix, small), tae (with --taesd), vae [none]",
       [](OptionTargets& t, std::string_view v) { request_of(t).preview.mode = std::string(v); }},
      {"preview-interval", "", "Output", "N", "every so many steps [1]",
       [](OptionTargets& t, std::string_view v) {
         request_of(t).preview.interval = static_cast<int>(parse_integer(v, 1, 1000));
       }},
  };
}

std::vector<OptionRow> image_to_image_options() {
  return {
      {"init-image", "i", "Image to image", "FILE", "picture to start from (PNG, JPEG, WebP)",
       [](OptionTargets& t, std::string_view v) { request_of(t).init_image = read_picture(v); }},
      {"strength", "", "Image to image", "X", "share of the steps that change it, 0 to 1 [0.75]",
       number(&Request::strength, 0, 1)},
      {"exact-steps", "", "Image to image", "", "run all of --steps, of a schedule of steps / strength",
       [](OptionTargets& t, std::string_view v) { request_of(t).exact_steps = parse_flag(v); }},
      {"mask", "", "Image to image", "FILE", "white is repainted; a transparent picture counts by its alpha",
       [](OptionTargets& t, std::string_view v) { request_of(t).mask = read_picture(v); }},
      {"mask-blur", "", "Image to image", "PX", "Gaussian blur of the mask [4]",
       integer(&Request::mask_blur, 0, 64)},
      {"mask-invert", "", "Image to image", "", "black is repainted",
       [](OptionTargets& t, std::string_view v) { request_of(t).mask_invert = parse_flag(v); }},
      {"masked-content", "", "Image to image", "NAME",
       "what is repainted begins as: original, fill, latent noise, latent nothing [original; --outpaint: "
       "fill]",
       text(&Request::masked_content)},
      {"only-masked", "", "Image to image", "",
       "draw the mask's surroundings alone, at -W x -H, and put them back into the picture",
       [](OptionTargets& t, std::string_view v) { request_of(t).only_masked = parse_flag(v); }},
      {"only-masked-padding", "", "Image to image", "PX", "how far they reach beyond the mask [32]",
       integer(&Request::only_masked_padding, 0, 1024)},
      {"outpaint", "", "Image to image", "L,R,U,D",
       "grow the canvas by so many pixels left, right, up and down, and paint there",
       [](OptionTargets& t, std::string_view v) { request_of(t).outpaint = parse_outpaint(v); }},
      {"mask-downscale", "", "Image to image", "HOW",
       "mask at the latents' size: area (A1111), nearest (Diffusers) [area; inpainting models: nearest]",
       text(&Request::mask_downscale)},
      {"mask-blend", "", "Image to image", "HOW",
       "what keeps the rest of a masked picture: denoised (A1111), latents (Diffusers), or "
       "soft[:BIAS:STRENGTH:"
       "CONTRAST...]: the mask's greys count (A1111's soft inpainting) [denoised]",
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
       [](OptionTargets& t, std::string_view v) { request_of(t).depth = read_picture(v); }},
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
