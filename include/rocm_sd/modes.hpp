// Ways of drawing that a request may ask for beside the plain one: a second pass at a larger size, canvases
// that grow, previews.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rocm_sd/image.hpp"

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
  // Windows of the second pass alone (GenerateRequest::tile_size): side in pixels, 0: those of the request;
  // least overlap, -1: 64, at most half of the side.
  int tile_size = 0, tile_overlap = -1;

  bool active() const { return scale > 0 || width > 0 || height > 0; }
};

// Pixels by which the init image's canvas grows on each side before it is drawn there.
struct Outpaint {
  int left = 0, right = 0, up = 0, down = 0;  // 0..4096
  bool active() const { return left > 0 || right > 0 || up > 0 || down > 0; }
};

// Parts of a finished picture that are drawn again, larger, and put back ("detailer"): of each image of the
// batch the same places.
struct Detailer {
  struct Box {
    int left = 0, top = 0, width = 0, height = 0;  // pixels of the picture
  };
  std::vector<Box> boxes = {};     // at most 64
  std::optional<Image> mask = {};  // of the picture's size: each white area that hangs together is a part
  double strength = 0.4;           // denoising strength, above 0 to 1
  int padding = 32, blur = 4;      // pixels that are seen around a part; Gaussian deviation of its border
  int width = 0, height = 0;       // that a part is drawn at; 0: the model's own
  int steps = 0;                   // 0: the request's
  std::optional<std::string> prompt = {}, negative_prompt = {};  // absent or empty: the request's

  bool active() const { return !boxes.empty() || mask; }
};

// A1111's script of this name: image to image from the picture before, so often.
struct Loopback {
  int loops = 1;                              // 1..100; 1: no
  std::optional<double> final_strength = {};  // of the last loop; absent: as the first
  std::string curve = "linear";               // between them: "aggressive", "linear", "lazy"
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
