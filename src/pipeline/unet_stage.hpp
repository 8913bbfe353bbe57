// The UNet for one size and batch: persistent inputs and outputs, the text's keys and values, one planned
// step.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "pipeline/control_stage.hpp"
#include "pipeline/request.hpp"
#include "pipeline/text_stage.hpp"

namespace rocm_sd {

// Everything that the shapes of a UNet call depend on.
struct UnetShape {
  int64_t batch = 1, conditions = 2, height = 64, width = 64, tokens = 77;
  std::vector<ControlUnit> controls = {};         // at work beside the UNet
  int64_t picture_height = 0, picture_width = 0;  // what they see, in pixels; 0 without them
  bool perturbed = false;                         // the last condition, in its self attention
  friend bool operator==(const UnetShape&, const UnetShape&) = default;
};

// The sinusoidal embedding of a scale of guidance that LCM's UNets read, [width]: Diffusers'
// get_guidance_scale_embedding(scale - 1), in its float arithmetic (Luo et al. 2023, section 4.2).
std::vector<float> guidance_embedding(double scale, int64_t width);

class UnetStage {
 public:
  // components and arena must outlive the stage.
  UnetStage(Components& components, Arena& arena, const UnetShape& shape);

  const UnetShape& shape() const { return shape_; }
  size_t plan();  // arena bytes of a step and of the text's preparation
  void replan();  // after the UNet's weights have moved
  bool planned() const { return step_programs_.at(0)->planned(); }
  uint64_t buffer_bytes() const;

  // Keys and values made anew, in place: what was captured goes on. Every image of the batch gets the same
  // states; prompts: which of the text each condition reads, the negative one first. time_ids:
  // [conditions][ids] numbers of SDXL's size conditions, empty otherwise.
  void set_text(const TextStates& text, const std::vector<int64_t>& prompts,
                const std::vector<std::vector<float>>& time_ids, Profiler* profiler,
                const CancelCheck* cancel);

  // The scale of guidance, for a UNet that takes it as an input.
  void set_guidance(double scale);

  // The time shifts of every timestep that the schedule will visit, made before the loop; others are made
  // when they are met. What the last call made is kept where the timesteps and the text are the same.
  void set_schedule(const std::vector<double>& timesteps, Profiler* profiler, const CancelCheck* cancel);

  // Extra input channels for every condition, [conditions][batch,h,w,extra]: inpainting's mask and masked
  // latents, instruct-pix2pix's picture, a depth map.
  void set_extra_channels(const std::vector<std::vector<float>>& channels);
  // The same in place, [K*N,h,w,extra] of input_dtype(), or empty where the model has none.
  const Tensor& extra_channels() const { return extra_; }

  // What each of shape().controls is to do, in their order: before the first step.
  void set_controls(std::vector<ControlSetting> settings, Profiler* profiler, const CancelCheck* cancel);
  const std::vector<std::unique_ptr<ControlStage>>& controls() const { return controls_; }
  // Which of them act in step `step` (0-based) of `total`. A step without any costs what the plain UNet does.
  void set_progress(int step, int total);

  // scaled_input [K*N,h,w,4] of the UNet's input_dtype() -> the model's output [K*N,h,w,4] f32, overwritten
  // by the next call.
  Tensor step(Exec& ex, const Tensor& scaled_input, double timestep, Profiler* profiler,
              const CancelCheck* cancel);

 private:
  int64_t rows() const { return shape_.batch * shape_.conditions; }

  Components& components_;
  Arena& arena_;
  UnetShape shape_;
  void make_shifts(double timestep, Profiler* profiler, const CancelCheck* cancel);
  uint32_t all_controls() const;
  void forward(Exec& ex, uint32_t active);
  Program& step_program(uint32_t active);
  std::vector<Program*> programs();  // all that are planned ahead
  std::vector<ShiftTable*> shift_tables();

  Tensor input_, extra_, timestep_, context_, added_text_, time_ids_, guidance_, output_;  // persistent
  std::vector<double> schedule_;  // timesteps whose shifts the tables keep
  TextCache cache_;
  std::unique_ptr<ShiftTable> shifts_;
  std::vector<std::unique_ptr<ControlStage>> controls_;
  std::vector<ControlSetting> settings_;
  uint32_t active_ = 0;  // bit i: controls_[i] acts in this step
  std::unique_ptr<Program> prepare_;
  std::map<uint32_t, std::unique_ptr<Program>> step_programs_;  // by what acts; 0: the plain UNet
  std::optional<double> shifts_timestep_;                       // that the current shifts were made for
  std::optional<double> guidance_scale_;                        // that guidance_ was made for
};

}  // namespace rocm_sd
