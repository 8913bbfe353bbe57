// A ControlNet at work beside the UNet: its text, its time shifts, its picture and its strength, all in
// persistent memory, so that a captured step sees what they are now.
#pragma once

#include <memory>
#include <vector>

#include "models/controlnet.hpp"
#include "pipeline/shift_table.hpp"
#include "pipeline/stage.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd {

// What a request asks of one ControlNet.
struct ControlSetting {
  double strength = 1, start = 0, end = 1;  // start, end: shares of the run's steps
  ControlMode mode = ControlMode::kBalanced;
  std::vector<float> pixels;  // [H,W,3] in 0..1, in the order of the model's channels

  // Whether it acts in step `step` (0-based) of `total`, by the rule of Diffusers' pipelines.
  bool acts(int step, int total) const;
};

struct ControlShape {
  int64_t batch = 1, conditions = 2, height = 64, width = 64;  // of the UNet's latents
  int64_t picture_height = 512, picture_width = 512;           // of the whole picture, in pixels
};

class ControlStage final : public Stage {
 public:
  // context [rows,T,width] and inputs: the UNet's, filled by its stage. model and arena must outlive this.
  ControlStage(const ControlNet& model, Arena& arena, const ControlShape& shape, const Tensor& context,
               const TimeInputs& inputs);

  DType dtype() const override { return model_.trunk().dtype(); }
  std::vector<Program*> programs() override { return {&shifts_.program(), prepare_.get(), embed_.get()}; }
  uint64_t buffer_bytes() const override;
  ShiftTable& shifts() { return shifts_; }

  void set_text(Profiler* profiler, const CancelCheck* cancel);
  // The picture goes through the hint encoder; where it is the size of the latents it reaches all rows.
  void set(const ControlSetting& setting, Profiler* profiler, const CancelCheck* cancel);
  // Of a larger picture: the window at (top, left), in latents, for one row of the next step.
  void cut_hint(Exec& ex, int64_t row, int64_t top, int64_t left);

  // Adds to the UNet's skips. latents [rows,h,w,4].
  void add(Exec& ex, const Tensor& latents, UNetSkips& skips) const;

 private:
  void set_factors(const ControlSetting& setting);

  const ControlNet& model_;
  ControlShape shape_;
  ShiftTable shifts_;
  TextCache cache_;
  Tensor picture_;  // [1,H,W,3] f32
  Tensor whole_;    // [1,H/8,W/8,C0], the picture's hint
  Tensor hint_;     // [rows,h,w,C0]
  Tensor factors_;  // [residuals,rows] f32
  std::unique_ptr<Program> prepare_, embed_;
};

}  // namespace rocm_sd
