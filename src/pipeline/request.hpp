// A request with every default filled in and every rule checked: what the stages work from.
#pragma once

#include "pipeline/components.hpp"
#include "pipeline/pixels.hpp"
#include "pipeline/tile_grid.hpp"
#include "schedulers/sampler.hpp"
#include "text/prompt_schedule.hpp"

namespace rocm_sd {

struct ResolvedRequest {
  GenerateRequest request;        // seeds drawn, sizes set
  int64_t width = 0, height = 0;  // pixels
  int64_t latent_width = 0, latent_height = 0;
  NoiseKind noise = NoiseKind::kPhilox;
  SamplingPlan sampling;
  double strength = 1;  // 1 where there is no init image
  // Per picture in one UNet call: 1, 2, 3 (instruct-pix2pix), or 1 and one for each part of the prompt.
  int conditions = 2;
  std::vector<double> part_weights;  // of the parts that AND joins: one or more
  int text_calls = 20;               // calls of the UNet that prompt editing counts by: as if strength were 1
  TileGrid tiles;                    // of the latents; one that covers them unless the request asks for tiles
  double guidance = 7;  // of the conditions; the request's scale but where the model does without
  MaskDownscale mask_downscale = MaskDownscale::kArea;
  bool blends_latents = false;     // after each step, rather than every prediction
  bool samples_posterior = false;  // of the VAE, rather than taking its mean
  std::vector<std::string> warnings;
  bool uses_negative() const { return conditions > 1; }
};

// Throws UsageError naming the option, what was expected and what came.
ResolvedRequest resolve_request(const GenerateRequest& request, const Components& components,
                                const NoiseSchedule& schedule);

// A1111's infotext for picture `index` of the batch. embedding_hashes: of the embeddings that the prompts
// name.
std::string describe_picture(const ResolvedRequest& resolved, const Components& components, int index,
                             const std::string& embedding_hashes);

}  // namespace rocm_sd
