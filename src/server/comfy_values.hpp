// What the outputs of a ComfyUI graph's nodes stand for, before they come together in one request.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "server/job_request.hpp"

namespace rocm_sd::server {

struct ComfyLora {
  std::string node, file;
  double strength = 1;
};

struct ComfyModel {
  std::string checkpoint;
  std::vector<ComfyLora> loras;
  OptionTexts options;  // of patches: FreeU
};
struct ComfyClip {
  std::string checkpoint;
  std::vector<ComfyLora> loras;
  int skip = 0;  // 0: the model's own
};
struct ComfyVae {
  std::string checkpoint;
};

struct ComfyUpscaler {
  std::string file;
};

// A picture that was uploaded, or those that a sampler's latents decode to.
struct ComfyImage {
  std::shared_ptr<const std::string> file;  // nothing: of the sampler
  std::string preprocess = "none";          // of ControlNets
  std::string sampler, vae;                 // node, checkpoint
  std::string upscaler, upscale_node;       // file, node; empty: as it is

  bool is_loaded() const { return file != nullptr && preprocess == "none" && upscaler.empty(); }
};
struct ComfyMask {
  std::shared_ptr<const std::string> file;
};
struct ComfyControlNet {
  std::string name, type = "none";
};
struct ComfyControl {
  std::string node;
  ComfyControlNet net;
  ComfyImage image;
  double strength = 1, start = 0, end = 1;
  bool both = true;  // ControlNetApply: acts on the negative prompt's prediction, too
};
struct ComfyCondition {
  std::string node;  // that has the text
  ComfyClip clip;
  std::string text;
  std::optional<std::string> text_2;               // SDXL's second encoder
  std::vector<std::pair<std::string, int>> sizes;  // SDXL's conditions: "original-width", ...
  std::vector<ComfyControl> controls;
};
struct ComfyLatent {
  std::string node;
  int width = 0, height = 0, batch = 1;
  std::optional<ComfyImage> image;  // encoded; nothing: an empty one
  std::string vae;                  // checkpoint
  std::optional<ComfyMask> mask;
  std::string sampler;  // node; set: what it drew
};

using ComfyValue = std::variant<ComfyModel, ComfyClip, ComfyVae, ComfyImage, ComfyMask, ComfyControlNet,
                                ComfyUpscaler, ComfyCondition, ComfyLatent>;

}  // namespace rocm_sd::server
