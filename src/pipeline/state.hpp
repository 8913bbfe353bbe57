// What a pipeline keeps between calls: the models, the stages, their memory, and how it saves memory.
#pragma once

#include <array>
#include <chrono>
#include <future>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "pipeline/control_units.hpp"
#include "pipeline/guidance_split.hpp"
#include "pipeline/image_sizes.hpp"
#include "pipeline/image_stage.hpp"
#include "pipeline/kernel_choices.hpp"
#include "pipeline/residency.hpp"
#include "pipeline/row_stage.hpp"
#include "pipeline/shared_unet.hpp"
#include "pipeline/text_stage.hpp"
#include "pipeline/token_rows.hpp"
#include "pipeline/unet_stage.hpp"
#include "pipeline/vae_stage.hpp"
#include "rocm_sd/pipeline.hpp"
#include "runtime/memory_budget.hpp"
#include "schedulers/sampler.hpp"

namespace rocm_sd {

using Clock = std::chrono::steady_clock;
inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// What an init image means for the latents. Tensors are f32, on the device.
struct InitImage {
  std::vector<float> pixels;       // [H,W,3] in -1..1
  std::vector<float> mask;         // [H,W], empty where the whole image is repainted
  std::vector<float> latent_mask;  // [h,w]
  Tensor latents;                  // [batch,h,w,4]
  Tensor extra;  // the UNet's further input channels [conditions*batch,h,w,channels]; or empty
};

// Which noises the images' generators give before the first step, in this order (Diffusers' pipelines').
struct NoiseDraws {
  bool init = false;    // the posterior of the init image
  bool start = true;    // the latents' noise
  bool masked = false;  // the posterior of the masked image
};

// The generators after these, and the latents' noise.
struct FirstNoise {
  BatchNoise noise;
  std::vector<float> start;  // [N,H,W,C]; or empty
};

FirstNoise draw_first_noise(BatchNoise noise, const NoiseDraws& draws);

// [N,C,H,W] as other engines give noise -> [N,H,W,C].
std::vector<float> to_nhwc(const std::vector<float>& nchw, const Shape& nhwc);

// LoRAs of one request as the engine keeps them.
struct WantedAdapters {
  std::vector<ActiveAdapter> merged, runtime, own;  // own: the request's, of runtime without strengths
  AdapterStrengths strengths;                       // of those at run time
};

struct Pipeline::State {
  State(Components loaded, uint64_t budget, std::string lora_dir, std::string embedding_dir, Ranks* ranks)
      : components(std::move(loaded)),
        residency(components),
        arenas(components.place),
        scratch(*components.device),
        schedule(components.noise),
        embeddings(std::move(embedding_dir)),
        adapters(std::move(lora_dir)),
        ranks_(ranks),
        vram_budget_(budget) {
    for (Device* device : components.place.devices())
      if (MemoryBudget* counts = memory_budget(*device))
        counts->set_budget(vram_budget_ > 0 ? vram_budget_ : std::numeric_limits<uint64_t>::max());
    divide_ranks();
  }

  Components components;
  Residency residency;
  PartArenas arenas;  // of the planned forwards, one at a time
  Arena scratch;      // latents between them, on the UNet's device
  NoiseSchedule schedule;
  EmbeddingLibrary embeddings;
  std::unique_ptr<TextStage> text;    // made for the shapes of a request, kept while requests have the same
  std::unique_ptr<ImageStage> image;  // null where the request has no IP-Adapter
  std::unique_ptr<UnetStage> unet;
  std::unique_ptr<RowStage> row_unet;  // of requests that share its calls (step_batch.hpp)
  std::unique_ptr<VaeStage> vae;
  std::unique_ptr<Profiler> profiler;
  AdapterLibrary adapters;
  KernelChoices choices;

  void stream_weights() { residency.begin_stream(arenas[Part::kUnet]); }  // from the next request on

  // Fills in defaults, checks every rule, reads the prompts, and brings the request's LoRAs and ControlNets.
  // kBeside: run-time LoRAs of others stay, and rows may differ in all of them.
  enum class Loras { kOwn, kBeside };
  PreparedRequest prepare(const GenerateRequest& request, SharedUnet* shared = nullptr,
                          Loras loras = Loras::kOwn);
  // Whether both have the same merged LoRAs. Throws what opening them throws.
  bool merges_alike(const GenerateRequest& a, const GenerateRequest& b);
  // What a request takes and gives, whatever its mode (modes.cpp).
  MemoryPlan plan(const GenerateRequest& request);
  GenerateResult generate(const GenerateRequest& request, const Callbacks& callbacks);
  // One drawing. Both plan first, and save memory and begin again where the device's is not enough.
  MemoryPlan plan(const PreparedRequest& r);
  GenerateResult generate(const PreparedRequest& r, const Callbacks& callbacks);

 private:
  friend class StepBatch;
  // modes.cpp
  GenerateResult draw_masked_part(const GenerateRequest& request, const Callbacks& callbacks);
  GenerateResult draw_twice(const GenerateRequest& request, const Callbacks& callbacks);
  GenerateRequest second_of(const ResolvedRequest& first, const GenerateRequest& request) const;
  void need_upscaler(const std::string& file);
  // An init image that is enlarged first: draws it, or, for a plan, what takes its memory.
  GenerateResult draw_enlarged(const GenerateRequest& request, const Callbacks& callbacks);
  GenerateRequest plan_of_enlarged(const GenerateRequest& request) const;
  std::vector<Image> enlarge_pictures(const std::vector<Image>& pictures, const PictureSize& size,
                                      const std::string& upscaler, const Callbacks& callbacks);
  void show_preview(const PreparedRequest& r, const StepReport& report, const Callbacks& callbacks);
  // Makes the request's LoRAs those that the weights contain, or that stand beside them -> how strongly those
  // beside act. Every file is opened and checked before a weight is touched.
  AdapterStrengths use_loras(PreparedRequest& r, Loras loras);
  WantedAdapters wanted_loras(const GenerateRequest& request, Loras loras);
  void merge_adapters(std::vector<ActiveAdapter> wanted);
  // Loads the request's ControlNets. Those of earlier requests stay until others are asked for, or memory is
  // short.
  void use_controls(const ResolvedRequest& r);
  void set_controls(const std::vector<std::shared_ptr<LoadedControl>>& wanted);
  void keep_controls(const std::vector<std::shared_ptr<LoadedControl>>& kept);
  // The same for IP-Adapters and their image encoders (image_prompts.cpp).
  void use_image_models(const ResolvedRequest& r);
  void set_image_models(const std::vector<std::shared_ptr<LoadedImageModel>>& wanted);
  void keep_image_models(const std::vector<std::shared_ptr<LoadedImageModel>>& kept);
  std::vector<ImageSlot> image_slots(const ResolvedRequest& r) const;
  void encode_images(const PreparedRequest& r, const RunWatch& watch);

  // Stages (stages.cpp). Those of the request's shapes, made where there are others or none.
  void make_stages(const PreparedRequest& r);
  void make_unet_stage(const PreparedRequest& r);
  RowStage& make_row_stage(const RowShape& shape);
  Stage* stage(Part part) const;
  void drop(Part part);  // its weights are others, or of another type
  // The part's weights on the device, and what was planned with them valid.
  void ready(Part part);
  // run() with the part's stage ready. Where its result is not finite, the part is loaded in the next wider
  // type and runs again.
  template <class Run>
  auto run_with_retry(Part part, const PreparedRequest& r, const Run& run);
  void retry_in_wider_type(Part part, const NotFinite& found);  // throws GenerationError where there is none

  // Memory (memory.cpp).
  // Prepares the stages and says what they take, after saving as much as the budget asks for. Throws
  // OutOfMemoryError where nothing is left to save.
  MemoryPlan plan_within_budget(const PreparedRequest& r);
  MemoryPlan measure(const PreparedRequest& r);
  MemoryPlan choose_bands(const PreparedRequest& r, const MemoryPlan& whole);
  // After the device ran out of memory: takes the next step of saving, and logs it. False: none is left.
  bool save_memory(const std::string& reason);
  std::string memory_advice(const Device& device) const;
  template <class Work>
  auto with_savings(const Work& work);
  uint64_t available_memory(const Device& device) const;
  // The plan's share of the part's device, and whether that is more than there is.
  const DeviceMemory& share_of(const MemoryPlan& plan, Part part) const;
  bool exceeds(const MemoryPlan& plan, Part part) const;
  void begin_stream();
  void keep_off_what_cannot_fit();
  std::string limit_text(const Device& device) const;
  void keep_room_for(Part part, uint64_t bytes);
  MemoryPlan fill_stream(const PreparedRequest& r, const MemoryPlan& plan);
  bool shrink_weights();  // false: they are in 8 bits already, or are to stay as they are
  void drop_caches();
  void note_memory();

  // One attempt, stage by stage (generate.cpp).
  GenerateResult draw(const PreparedRequest& r, const Callbacks& callbacks);
  RunWatch watch(const Callbacks& callbacks) const;
  // The last request's states, where offloaded encoders would be uploaded to compute them again.
  TextStates encode_text(const PreparedRequest& r, const RunWatch& watch);
  TextStates run_text(const PreparedRequest& r, const RunWatch& watch);
  Image decode(const PreparedRequest& r, const Tensor& latents, const RunWatch& watch);
  Tensor at_vae(const Tensor& latents) const;  // the sampler's, on the VAE's device
  // init_stage.cpp
  BatchNoise seeded_noise(const ResolvedRequest& r) const;  // from the beginning of every image's generator
  NoiseDraws noise_draws(const ResolvedRequest& r) const;
  InitImage encode_init(const PreparedRequest& r, const RunWatch& watch);
  Tensor encode_image(const PreparedRequest& r, const std::vector<float>& pixels,
                      const std::vector<float>& noise, const RunWatch& watch);
  Tensor encode_each(const PreparedRequest& r, const std::vector<float>& noise, const RunWatch& watch);
  void empty_masked(const PreparedRequest& r, InitImage& init) const;
  Tensor extra_channels(const PreparedRequest& r, const InitImage& init, const std::vector<float>& noise,
                        const RunWatch& watch);
  // sampling.cpp. noise: draw_first_noise() under way, for the first attempt.
  Tensor sample(const PreparedRequest& r, const TextStates& states, const InitImage& init,
                std::future<FirstNoise> noise, const Callbacks& callbacks);
  void prepare_unet(const PreparedRequest& r, const TextStates& states, const InitImage& init,
                    const RunWatch& watch);
  Tensor first_latents(Exec& ex, const ResolvedRequest& r, const InitImage& init,
                       const std::vector<float>& start, const Shape& shape);
  // The text of the UNet's call number `call`, where another one was at work.
  void use_text(const PreparedRequest& r, const TextStates& states, size_t call, const RunWatch& watch);
  Tensor run_steps(Exec& ex, const PreparedRequest& r, const TextStates& states, const InitImage& init,
                   FirstNoise first, const Callbacks& callbacks);
  // guidance_split.cpp. Those conditions of a step that this rank computes: all where there are no others.
  ConditionShare own_conditions(const ResolvedRequest& r) const;
  // predicted: of the own conditions [own*N,h,w,4] f32 -> of all [K*N,h,w,4].
  Tensor gather_predictions(Exec& ex, const ResolvedRequest& r, const Tensor& predicted) const;
  // row_split.cpp. How the ranks divide maps of the latents' size: the UNet's, or the VAE's (null where this
  // rank decodes all, or none). The same pointer for the same size.
  const RowSplit* unet_rows(const ResolvedRequest& r);
  const RowSplit* vae_rows(const ResolvedRequest& r);
  bool divides_rows() const {
    return !draws_alone() && (ranks_->division() == Division::kRows || ranks_->division() == Division::kBoth);
  }
  bool divides_layers() const { return !draws_alone() && ranks_->division() == Division::kLayers; }
  bool divides_tensors() const { return !draws_alone() && ranks_->division() == Division::kTensors; }
  // Throws UsageError for what does not go with divided layers.
  void check_layers(const ResolvedRequest& r) const;
  // Where the ranks divide both: those of this rank's half, and the two that have its rows.
  void divide_ranks();
  // maps [N,h,w,C] of the latents' size -> the rows that the UNet's stage has of them, a view.
  Tensor own_rows(const Tensor& maps) const;
  // Throws UsageError for what does not go with divided rows.
  void check_rows(const ResolvedRequest& r) const;
  // All ranks decode together, or rank 0 alone, and all have the UNet's weights in 8 bits, for want of memory
  // of one of them. True: others than planned.
  bool agree_about_savings();
  // After a wait for the device: throws where other ranks have not sent what the values were computed from.
  void check_windows() const;
  void begin_together() const;  // an attempt
  // Rank 0 tells the others that the image is there: until then it may begin anew.
  void end_together() const;
  bool draws_alone() const { return !ranks_ || ranks_->count() == 1; }
  SamplerHooks sampler_hooks(Exec& ex, const PreparedRequest& r, const Callbacks& callbacks);
  void keep_unmasked(SamplerHooks& hooks, const ResolvedRequest& r, const Tensor& mask, const Tensor& clean,
                     const std::vector<float>& start);

  struct KeptText {
    TextKey key;
    Tensor states, pooled;  // TextStates', in host memory
  };
  std::optional<KeptText> kept_text_;
  std::vector<std::shared_ptr<LoadedControl>> controls_;  // one for each of the request's, in their order
  std::vector<PlannedControl> planned_controls_;          // the same as they act together
  std::vector<std::shared_ptr<LoadedImageModel>> ip_adapters_;     // one for each of the request's
  std::vector<std::shared_ptr<LoadedImageModel>> image_encoders_;  // of each of them; null: embeddings
  std::vector<ImageUnit> image_units_;                             // the same
  ImageStates image_states_;                                       // of the image at work
  std::vector<int64_t> prompts_at_work_;                           // TokenRows::prompts_at that the UNet has
  Ranks* ranks_ = nullptr;                                         // with whom it draws; may be null
  std::unique_ptr<RankView> half_, pair_;                          // divide_ranks()
  std::map<std::array<int64_t, 4>, std::unique_ptr<RowSplit>> splits_;  // by the arguments of their making
  bool decodes_alone_ = false;                                          // rank 0 does
  bool weights_unsure_ = false;              // merging adapters did not end: the parts are to be read whole
  uint64_t vram_budget_ = 0;                 // as asked for; 0: what the device has free
  bool stream_began_ = false;                // for want of memory
  bool stream_fills_ = true;                 // weights that are streamed stay where there is room
  VaeShape vae_shape_;                       // asked for last
  bool caches_dropped_ = false;              // since the last image
  bool refused_ = false;                     // by plan_within_budget(): no other attempt can help
  Part at_work_ = Part::kText;               // the stage that asked for memory last
  double preview_seconds_ = 0;               // of the image at work
  std::unique_ptr<ImageUpscaler> upscaler_;  // of the last request with one
  std::string upscaler_file_;
  uint64_t device_peak_ = 0;  // most memory that the devices had at once, of the image at work
};

// work(), again after each step of saving where the device's memory was not enough, and where another rank
// began anew.
template <class Work>
auto Pipeline::State::with_savings(const Work& work) {
  for (;;) {
    std::string reason;
    try {
      return work();
    } catch (const AttemptOver&) {
      continue;
    } catch (const OutOfMemoryError& e) {
      if (refused_) throw;
      reason = e.what();
    }
    // Outside the handler: what the attempt kept is gone by now.
    if (!save_memory(reason)) throw OutOfMemoryError(reason + memory_advice(components.place[at_work_]));
  }
}

template <class Run>
auto Pipeline::State::run_with_retry(Part part, const PreparedRequest& r, const Run& run) {
  for (;;) {
    make_stages(r);
    ready(part);
    residency.enter(part);
    NotFinite found;
    try {
      return run();
    } catch (const NotFinite& thrown) {
      found = thrown;
    }
    if (has_company(r)) throw found;  // others are at work with these weights
    retry_in_wider_type(part, found);
  }
}

}  // namespace rocm_sd
