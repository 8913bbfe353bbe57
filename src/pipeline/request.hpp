// A request with every default filled in and every rule checked: what the stages work from.
#pragma once

#include "pipeline/components.hpp"
#include "pipeline/control_image.hpp"
#include "pipeline/inpaint.hpp"
#include "pipeline/pixels.hpp"
#include "pipeline/tile_grid.hpp"
#include "schedulers/sampler.hpp"
#include "text/prompt_schedule.hpp"

namespace rocm_sd {

// One of the request's ControlNets.
struct ResolvedControl {
  std::string model;
  double strength = 1, start = 0, end = 1;
  ControlMode mode = ControlMode::kBalanced;
  ControlResize resize = ControlResize::kCrop;
  ControlPreprocess preprocess;
  std::optional<int> type = {};  // of a union ControlNet
};

// One of the request's IP-Adapters.
struct ResolvedIpAdapter {
  std::string model, encoder;  // encoder: as asked for, or empty
  double weight = 1, start = 0, end = 1;
  int64_t images = 1;
};

struct ResolvedRequest {
  GenerateRequest request;        // seeds drawn, sizes set
  int64_t width = 0, height = 0;  // pixels
  int64_t latent_width = 0, latent_height = 0;
  NoiseKind noise = NoiseKind::kPhilox;
  SamplingPlan sampling;
  double strength = 1;  // 1 where there is no init image
  // Per picture in one UNet call: 1, 2, 3 (instruct-pix2pix), or 1 and one for each part of the prompt.
  int conditions = 2;
  bool drops_negative = false;  // some calls of the UNet leave the first condition out
  bool perturbed = false;       // the last condition is the prompt once more, with perturbed self attention
  std::vector<bool> perturbed_layers;  // of the UNet's self attentions
  std::vector<double> part_weights;    // of the parts that AND joins, or of regions (1 each): one or more
  // Of each part that is a region's (regions.hpp), at each of the latents, [latent_height,latent_width]; they
  // add up to 1. Empty: no regions. region_base_part: the first of them is the whole picture's prompt.
  std::vector<std::vector<float>> region_shares = {};
  bool region_base_part = false;
  int text_calls = 20;  // calls of the UNet that prompt editing counts by: as if strength were 1
  TileGrid tiles;       // of the latents; one that covers them unless the request asks for tiles
  double guidance = 7;  // of the conditions; the request's scale but where the model does without
  MaskDownscale mask_downscale = MaskDownscale::kArea;
  MaskedContent masked_content = MaskedContent::kOriginal;
  bool mask_is_ready = false;      // of the request: blurred, and the caller puts the pictures together
  bool decodes = true;             // else the pictures are latents alone
  bool blends_latents = false;     // after each step, rather than every prediction
  bool samples_posterior = false;  // of the VAE, rather than taking its mean
  std::vector<std::string> warnings;
  // That it draws with, merged or at run time: set with its weights.
  std::vector<ActiveAdapter> loras = {};
  std::vector<ResolvedControl> controls;       // of request.controls, in their order
  std::vector<ResolvedIpAdapter> ip_adapters;  // of request.ip_adapters
  // The first condition that reads the prompt; those before it read the negative one.
  int first_part() const { return conditions - static_cast<int>(part_weights.size()) - (perturbed ? 1 : 0); }
  bool uses_negative() const { return first_part() > 0; }
};

// control_request.cpp
std::vector<ResolvedControl> resolve_controls(const GenerateRequest& request);
// ip_request.cpp
constexpr size_t kMaxIpAdapters = 8;
std::vector<ResolvedIpAdapter> resolve_ip_adapters(const GenerateRequest& request, bool tiled);
// As A1111's extension writes it: "Module: canny, Model: NAME [hash], Weight: 1, ...".
std::string describe_control(const ResolvedControl& control, const LoadedControl& model);
// The kinds of pictures that union ControlNets know, by xinsir's numbers: "canny", "3". Throws UsageError.
int parse_control_type(std::string_view text);
std::string control_type_label(int type);  // "Canny", as A1111 shows it

// What image `index` of the batch is drawn with.
uint64_t image_seed(const GenerateRequest& request, int index);
std::string image_negative(const GenerateRequest& request, size_t index);

// Throws UsageError naming the option, what was expected and what came.
ResolvedRequest resolve_request(const GenerateRequest& request, const Components& components,
                                const NoiseSchedule& schedule);

// What control model `index` of the request sees, [height,width,3], one picture or one for each image of the
// batch; bgr: in this order. Throws UsageError.
std::vector<std::vector<float>> control_pixels(const ResolvedRequest& r, size_t index, bool bgr);

// A1111's infotext for picture `index` of the batch. embedding_hashes: of the embeddings that the prompts
// name. controls, adapters: the models of the request's ControlNets and IP-Adapters, in their order.
std::string describe_image(const ResolvedRequest& resolved, const Components& components, int index,
                           const std::string& embedding_hashes,
                           const std::vector<std::shared_ptr<LoadedControl>>& controls = {},
                           const std::vector<std::shared_ptr<LoadedImageModel>>& adapters = {});

}  // namespace rocm_sd
