// The UNet for one size and batch: persistent inputs and outputs, the text's keys and values, one planned
// step.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "models/row_split.hpp"
#include "models/wrapping.hpp"
#include "pipeline/control_stage.hpp"
#include "pipeline/text_stage.hpp"
#include "pipeline/unet_images.hpp"
#include "pipeline/unet_segment.hpp"
#include "rocm_sd/savings.hpp"

namespace rocm_sd {

// Everything that the shapes of a UNet call depend on.
struct UnetShape {
  int64_t batch = 1, conditions = 2, height = 64, width = 64, tokens = 77;
  std::vector<ControlUnit> controls = {};     // at work beside the UNet
  std::vector<ImageSlot> images = {};         // prompts beside the text
  int64_t image_height = 0, image_width = 0;  // what both see, in pixels; 0 without them
  int64_t windows = 1;                        // that it runs over, of an image that is tiled
  bool perturbed = false;                     // the last condition, in its self attention
  std::vector<bool> perturbed_layers = {};    // in these: UNetArgs::perturbed_layers
  std::vector<double> freeu = {};             // b1, b2, s1, s2; empty: none
  bool freeu_second = false;                  // in its second version
  bool received = false;                      // the middle block's attention is noted, of the first condition
  int64_t first_condition = 0;                // of the request's: others may be computed elsewhere
  bool guided = true;                         // the request has more than one condition
  bool drops_negative = false;                // some steps leave the first condition out
  Savings savings = {};
  WrapAxes wrap = {};
  const RowSplit* rows = nullptr;  // height is this rank's part of it; null: it has all rows
  Ranks* layers = nullptr;         // that have the other layers; null: this one has all
  Ranks* tensors = nullptr;        // that have the other shares of each layer; null: they are whole
  int64_t micro_rows = 0;          // rows of a micro-batch that passes through these ranks
  friend bool operator==(const UnetShape&, const UnetShape&) = default;
};

// What the calls of an image were.
struct UnetCalls {
  // one_sided: without the first condition; skipped: in place of which nothing was called.
  int all = 0, shallow = 0, one_sided = 0, gated = 0, skipped = 0;
  double operations = 0, operations_if_whole = 0;
};

// The sinusoidal embedding of a scale of guidance that LCM's UNets read, [width]: Diffusers'
// get_guidance_scale_embedding(scale - 1), in its float arithmetic (Luo et al. 2023, section 4.2).
std::vector<float> guidance_embedding(double scale, int64_t width);

class UnetStage final : public Stage {
 public:
  // components and arena must outlive the stage.
  UnetStage(Components& components, Arena& arena, const UnetShape& shape);

  const UnetShape& shape() const { return shape_; }
  DType dtype() const override { return components_.dtype_of(Part::kUnet); }
  std::vector<Program*> programs() override;
  uint64_t buffer_bytes() const override;

  // Keys and values made anew, in place: what was captured goes on. Every image of the batch gets the same
  // states; prompts: which of the text each condition reads, or each image of each condition. time_ids:
  // [conditions][ids] numbers of SDXL's size conditions, empty otherwise.
  void set_text(const TextStates& text, const std::vector<int64_t>& prompts,
                const std::vector<std::vector<float>>& time_ids, const RunWatch& watch);

  // How strongly each run-time LoRA acts on each image of the batch: [images][adapters], or one for all.
  void set_strengths(const std::vector<std::vector<float>>& images);

  // The scale of guidance, for a UNet that takes it as an input.
  void set_guidance(double scale);

  // The time shifts of every timestep that the schedule will visit, made before the loop; others are made
  // when they are met. What the last call made is kept where the timesteps and the text are the same.
  void set_schedule(const std::vector<double>& timesteps, const RunWatch& watch);

  // Extra input channels, [conditions*batch,h,w,extra]: inpainting's mask and masked latents,
  // instruct-pix2pix's image, a depth map.
  void set_extra_channels(const Tensor& channels);
  // The same in place, [K*N,h,w,extra] of input_dtype(), or empty where the model has none.
  const Tensor& extra_channels() const { return extra_; }

  // What each of shape().controls is to do, in their order: before the first step.
  void set_controls(std::vector<ControlSetting> settings, const RunWatch& watch);
  const std::vector<std::unique_ptr<ControlStage>>& controls() const { return controls_; }
  // What the cross attentions read of shape().images, and what each is to do: before the first step.
  void set_images(const ImageStates& states, std::vector<ImageSetting> settings, int first_part);
  // Which of them act in step `step` (0-based) of `total`. A step without any costs what the plain UNet does.
  void set_progress(int step, int total);
  // Whether the next call's guidance is left out. A rank that has not all conditions computes its own all the
  // same, but its whole and shallow calls are to be those of one that leaves the first condition out.
  void set_unguided(bool unguided) { unguided_ = unguided; }
  // Before the first step: what shape().savings keep from call to call is forgotten, calls() are counted
  // anew.
  void begin_image();
  const UnetCalls& calls() const { return calls_; }
  void note_skipped();  // a call that was not needed
  // Whether step() takes inputs without the first condition's rows: not beside control models, where the
  // batch stays whole.
  bool can_drop_negative() const;

  // scaled_input [K*N,h,w,4] of the UNet's input_dtype() -> the model's output [K*N,h,w,4] f32, overwritten
  // by the next call. Without the first condition where the input lacks it, [(K-1)*N,h,w,4] each.
  Tensor step(Exec& ex, const Tensor& scaled_input, double timestep, const RunWatch& watch);
  // With shape().received: the first condition alone, [N,h,w,4] each, whose attention is not noted.
  Tensor step_first(Exec& ex, const Tensor& scaled_input, double timestep, const RunWatch& watch);

  // With shape().received, after a step: the attention that each pixel of the middle block got from all, of
  // each image of the first condition, [batch][h*w]; and that map's sides.
  std::vector<std::vector<float>> attention_sums() const;
  int64_t middle_height() const;
  int64_t middle_width() const;

 private:
  int64_t rows() const { return shape_.batch * shape_.conditions; }
  // Each condition's row [1,...] of `from`, once per image, into `to` [conditions*batch,...].
  void spread(Exec& ex, const Tensor& from, const std::vector<int64_t>& rows, const Tensor& to) const;
  void make_shifts(double timestep, const RunWatch& watch);
  void use_shifts(Exec& ex, double timestep, const RunWatch& watch);
  uint32_t all_guests() const;
  TokenMerge token_merge(double* saved_operations) const;
  void forward(Exec& ex, uint32_t active);
  Tensor forward_layers(Exec& ex, uint32_t active, int64_t first, const Tensor& x,
                        std::vector<Tensor>& skips) const;
  // What rows [first, first + count) of a call read.
  struct CallRows {
    Tensor shifts;
    TextCache cache;
    std::vector<ImageTokens> images;
    std::optional<FreeU> freeu;
  };
  CallRows call_rows(uint32_t active, int64_t first, int64_t count) const;
  Program& step_program(uint32_t active);
  std::vector<uint32_t> variants() const;  // of a step, that the savings have
  uint32_t variant_of_call(bool without_negative);
  void note_call(uint32_t active);
  double whole_operations(uint32_t active);  // of a step without savings
  std::vector<ShiftTable*> shift_tables();

  Components& components_;
  UnetShape shape_;
  PeerWindows* windows_ = nullptr;   // of shape_.rows or shape_.tensors
  bool keeps_messages_ = false;      // displaced rows by windows: a variant that reads stale ones
  uint64_t windows_generation_ = 0;  // of the last call
  Tensor input_, extra_, timestep_, context_, added_text_, time_ids_, guidance_, output_;  // persistent
  std::vector<double> schedule_;  // timesteps whose shifts the tables keep
  TextCache cache_;
  std::unique_ptr<ShiftTable> shifts_;
  std::optional<FreeU> freeu_;
  std::optional<AttentionReceived> received_;
  std::vector<std::unique_ptr<ControlStage>> controls_;
  std::vector<ControlSetting> settings_;
  std::unique_ptr<UnetImages> images_;  // null: none
  // What acts in this step: bit i of controls_[i], above kMaxControls bits that of each of the images'
  // adapters.
  uint32_t active_ = 0;
  std::unique_ptr<Program> prepare_;
  // By what acts, and the bits of the variant above that; 0: the plain UNet. What a variant reads is made by
  // one with a smaller number.
  std::map<uint32_t, std::unique_ptr<Program>> step_programs_;
  std::map<uint32_t, double> merged_operations_;  // that token merging saves each of them
  std::unique_ptr<UnetSegment> segment_;          // in place of step_programs_ where ranks have layers
  Tensor deep_map_;                               // DeepMap::map
  std::vector<Tensor> text_means_;                // TextGate::means
  int step_ = 0, since_whole_ = 0;  // since_whole_: calls of the UNet; 0: none that shallow ones can follow
  bool map_is_one_sided_ = false, means_are_there_ = false, unguided_ = false;
  UnetCalls calls_;
  std::optional<double> shifts_timestep_;  // that the current shifts were made for
  std::optional<double> guidance_scale_;   // that guidance_ was made for
};

}  // namespace rocm_sd
