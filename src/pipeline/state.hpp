// What a pipeline holds between calls: the models, the stages, their memory, and how it saves memory.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "pipeline/control_units.hpp"
#include "pipeline/request.hpp"
#include "pipeline/residency.hpp"
#include "pipeline/text_stage.hpp"
#include "pipeline/tiles.hpp"
#include "pipeline/unet_stage.hpp"
#include "pipeline/vae_stage.hpp"
#include "rocm_sd/pipeline.hpp"
#include "schedulers/sampler.hpp"

namespace rocm_sd {

using Clock = std::chrono::steady_clock;
inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// What an init image means for the latents.
struct InitImage {
  std::vector<float> pixels;              // [H,W,3] in -1..1
  std::vector<float> mask;                // [H,W], empty where the whole picture is repainted
  std::vector<float> latents;             // [batch,h,w,4]
  std::vector<float> latent_mask;         // [h,w]
  std::vector<std::vector<float>> extra;  // the UNet's further input channels, per condition
                                          // [batch,h,w,channels]; or empty
};

// Which noises the images' generators give before the first step, in this order (Diffusers' pipelines').
struct NoiseDraws {
  bool init = false;    // the posterior of the init image
  bool start = true;    // the latents' noise
  bool masked = false;  // the posterior of the masked picture
};

inline int64_t count_nonfinite(const std::vector<float>& values) {
  return std::count_if(values.begin(), values.end(), [](float v) { return !std::isfinite(v); });
}
// [N,C,H,W] as other engines give noise -> [N,H,W,C].
std::vector<float> to_nhwc(const std::vector<float>& nchw, const Shape& nhwc);

struct Pipeline::State {
  State(Components loaded, uint64_t budget, std::string lora_dir, std::string embedding_dir)
      : components(std::move(loaded)),
        residency(components),
        arena(*components.device),
        scratch(*components.device),
        schedule(components.noise),
        embeddings(std::move(embedding_dir)),
        text(components, arena, embeddings),
        adapters(std::move(lora_dir)),
        vram_budget(budget) {}

  Components components;
  Residency residency;
  Arena arena;    // of the planned forwards, one at a time
  Arena scratch;  // latents between them
  NoiseSchedule schedule;
  EmbeddingLibrary embeddings;
  TextStage text;
  std::unique_ptr<UnetStage> unet;
  std::unique_ptr<VaeStage> vae;
  std::unique_ptr<Profiler> profiler;
  AdapterLibrary adapters;

  // Makes the request's LoRAs those that the weights hold. Every file is opened and checked before a weight
  // is touched.
  void use_loras(const GenerateRequest& request);

  // Loads the request's ControlNets. Those of earlier requests stay until others are asked for, or memory is
  // short.
  void use_controls(const ResolvedRequest& r);
  std::vector<std::shared_ptr<LoadedControl>> controls;  // one for each of the request's, in their order
  std::vector<PlannedControl> planned_controls;          // the same as they act together

  // Memory (memory.cpp).
  uint64_t vram_budget = 0;  // as asked for; 0: what the device has free
  int64_t vae_bands = 1;
  bool caches_dropped = false;  // since the last picture
  bool refused = false;         // by plan(): no other attempt can help
  Part at_work = Part::kText;   // the stage that asked for memory last
  uint64_t device_peak = 0;     // most memory held when somebody looked

  void note_memory() {
    // On the CPU what waits off the device lies in the same memory: there is nothing to tell apart.
    if (residency.offload() && components.device == &host_device()) return;
    device_peak = std::max(device_peak, components.device->allocated());
  }
  // Prepares the stages and says what they take, after saving as much as the budget asks for. Throws
  // OutOfMemoryError where nothing is left to save.
  MemoryPlan plan(const ResolvedRequest& r, const TokenRows& rows);
  // After the device ran out of memory: takes the next step of saving, and logs it. False: none is left.
  bool save_memory(const std::string& reason);
  std::string memory_advice() const;
  template <class Work>
  auto with_savings(const Work& work);
  // The part's weights on the device, and what was planned with them valid.
  void ready(Part part);

  // A part whose results were not finite is loaded again in the next wider type. False: there is none.
  bool widen(Part part, const std::string& what);

  GenerateResult generate(const ResolvedRequest& r, const Callbacks& callbacks);

 private:
  void merge_adapters(std::vector<ActiveAdapter> wanted);
  void prepare_stages(const ResolvedRequest& r, const TokenRows& rows);
  void set_controls(const std::vector<std::shared_ptr<LoadedControl>>& wanted);
  void keep_controls(const std::vector<std::shared_ptr<LoadedControl>>& kept);
  MemoryPlan measure(const ResolvedRequest& r, const TokenRows& rows);
  MemoryPlan choose_bands(const ResolvedRequest& r, const TokenRows& rows, const MemoryPlan& whole,
                          uint64_t most);
  uint64_t available_memory() const;
  bool shrink_weights();  // false: they are in 8 bits already, or are to stay as they are
  void drop_caches();

  TextStates encode_text(const TokenRows& rows, const ResolvedRequest& r, const CancelCheck* cancel);
  // init_stage.cpp
  BatchNoise seeded_noise(const ResolvedRequest& r) const;  // from the beginning of every image's generator
  NoiseDraws noise_draws(const ResolvedRequest& r) const;
  InitImage encode_init(const ResolvedRequest& r, const CancelCheck* cancel);
  std::vector<float> encode_picture(const ResolvedRequest& r, const std::vector<float>& pixels,
                                    const std::vector<float>& noise, const CancelCheck* cancel);
  std::vector<std::vector<float>> extra_channels(const ResolvedRequest& r, const InitImage& init,
                                                 const std::vector<float>& noise, const CancelCheck* cancel);
  void prepare_unet(const ResolvedRequest& r, const TextStates& states, const InitImage& init,
                    const CancelCheck* cancel);
  std::vector<float> sample(const ResolvedRequest& r, const TextStates& states, const InitImage& init,
                            const Callbacks& callbacks);
  Tensor first_latents(Exec& ex, const ResolvedRequest& r, const InitImage& init,
                       const std::vector<float>& start, const Shape& shape);
  // The text of the UNet's call number `call`, where another one was at work.
  void use_text(const ResolvedRequest& r, const TextStates& states, size_t call, const CancelCheck* cancel);
  std::vector<float> run_steps(const ResolvedRequest& r, const TextStates& states, const InitImage& init,
                               const Callbacks& callbacks);
  Image decode(const ResolvedRequest& r, const std::vector<float>& latents, const CancelCheck* cancel);
  SamplerHooks sampler_hooks(const Callbacks& callbacks, Clock::time_point begin);
  void keep_unmasked(SamplerHooks& hooks, const ResolvedRequest& r, const Tensor& mask, const Tensor& clean,
                     const std::vector<float>& start);

  TokenRows rows;                        // of the request at work
  std::vector<int64_t> prompts_at_work;  // TokenRows::prompts_at that the UNet has
  bool weights_unsure = false;           // merging adapters did not end: the parts are to be read whole
};

}  // namespace rocm_sd
