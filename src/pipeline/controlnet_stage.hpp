// A ControlNet, or a union ControlNet with its images, beside the UNet.
#pragma once

#include "pipeline/control_stage.hpp"

namespace rocm_sd {

class ControlNetStage final : public ControlStage {
 public:
  ControlNetStage(const ControlUnit& unit, Arena& arena, const ControlShape& shape, const Tensor& context,
                  const TimeInputs& inputs);

  DType dtype() const override { return model_.trunk().dtype(); }
  std::vector<Program*> programs() override;
  uint64_t buffer_bytes() const override;
  ShiftTable* shifts() override { return shifts_.get(); }
  void set_text(const RunWatch& watch) override;
  bool set(const ControlSetting& setting, const RunWatch& watch) override;
  void cut_hint(Exec& ex, int64_t row, int64_t top, int64_t left) override;
  void add(Exec& ex, const Tensor& latents, UNetSkips& skips) const override;

 private:
  void make_hints(Arena& arena);
  void set_view(size_t index, const ControlView& now, const RunWatch& watch);
  void set_factors(const ControlSetting& setting);
  bool windowed() const { return whole_.dim(1) != hint_.dim(1) || whole_.dim(2) != hint_.dim(2); }
  bool set_types(const ControlSetting& setting, const RunWatch& watch);

  const ControlUnit unit_;
  const ControlNet& model_;
  ControlShape shape_;
  TextCache cache_;
  Tensor image_;                                 // [images,H,W,3] f32, of one view
  Tensor whole_;                                 // [images,H/8,W/8,C0], the hints of all views together
  Tensor hint_;                                  // [rows,h,w,C0]
  std::vector<float> mask_;                      // [H,W], of a masked unit
  std::vector<std::vector<float>> row_factors_;  // of each residual [rows], before the mask
  std::vector<Tensor> factors_;  // of each residual [rows], or of a masked unit [rows*h*w], f32
  // Of a union ControlNet: [images,1] i32 and [images] f32 of one view, [rows,types] and [rows,E].
  Tensor type_, scales_, types_, added_;
  std::vector<float> types_set_;
  std::unique_ptr<ShiftTable> shifts_;
  std::unique_ptr<Program> prepare_, embed_, embed_more_, embed_types_;
};

}  // namespace rocm_sd
