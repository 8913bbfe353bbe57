// Ways of drawing that a request may ask for beside the plain one: a second pass at a larger size, canvases
// that grow, previews.
#pragma once

#include <optional>
#include <string>

namespace rocm_sd {

// A1111's "Hires. fix": the picture is drawn at the request's size, enlarged, and drawn again from there.
struct HiresFix {
  double scale = 0;           // of both sides, 1..8; 0: no second pass, unless width or height ask for one
  int width = 0, height = 0;  // the result's; one alone keeps the shape, both cut what is beyond their shape
  // "Latent" (bilinear), "Latent (antialiased)", "Latent (bicubic)", "Latent (bicubic antialiased)", "Latent
  // (nearest)", "Latent (nearest-exact)": of the latents; "Lanczos", "Nearest", "Bicubic", or a network's
  // file (upscale.hpp): of the picture.
  std::string upscaler = "Latent";
  int steps = 0;          // that the second pass runs; 0: as many as the first
  double strength = 0.7;  // denoising strength, above 0 to 1
  // Absent or empty: the first pass's.
  std::optional<double> cfg_scale = {};
  std::string sampler = {}, schedule = {};
  std::optional<std::string> prompt = {}, negative_prompt = {};

  bool active() const { return scale > 0 || width > 0 || height > 0; }
};

// Pixels by which the init image's canvas grows on each side before it is drawn there.
struct Outpaint {
  int left = 0, right = 0, up = 0, down = 0;  // 0..4096
  bool active() const { return left > 0 || right > 0 || up > 0 || down > 0; }
};

// What Callbacks::preview gets.
struct PreviewUse {
  // "none"; "proj": a matrix over each latent (a picture of the latents' size); "tae", "vae": the decoder
  // that the picture comes from, an AutoencoderTiny (LoadOptions::taesd) or the VAE. Where the VAE's weights
  // wait in host memory, or several devices draw the picture, "vae" is "proj".
  std::string mode = "none";
  int interval = 1;  // every so many steps, 1..1000
};

}  // namespace rocm_sd
