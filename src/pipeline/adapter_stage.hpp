// A T2I-Adapter beside the UNet: its maps are made once per request, of a tiled image once for each window,
// from the window's part of what the adapter sees.
#pragma once

#include "pipeline/control_stage.hpp"

namespace rocm_sd {

class AdapterStage final : public ControlStage {
 public:
  // inputs are not read: an adapter knows neither text nor time.
  AdapterStage(const ControlUnit& unit, Arena& arena, const ControlShape& shape, const TimeInputs& inputs);

  DType dtype() const override { return unit_.model->maps; }
  std::vector<Program*> programs() override { return {program_.get()}; }
  uint64_t buffer_bytes() const override;
  bool set(const ControlSetting& setting, const RunWatch& watch) override;
  void cut_hint(Exec& ex, int64_t row, int64_t top, int64_t left) override;
  void add_to_blocks(std::vector<std::vector<ScaledMap>>& blocks, int64_t rows) const override;

 private:
  struct Window {
    int64_t top, left;
    std::vector<Tensor> maps;                 // as made_
    std::vector<std::vector<float>> factors;  // of a masked unit, of each level: [h*w]
  };
  bool windowed() const;  // the latents are those of a window of the image
  const Window& window_at(int64_t top, int64_t left);
  void make_maps(const std::vector<std::vector<float>>& pixels, int64_t height, int64_t width,
                 const RunWatch& watch);

  const ControlUnit unit_;
  const T2iAdapter& model_;
  ControlShape shape_;
  Tensor squares_;               // [images,H/d,W/d,C] f32, of the image or of a window
  std::vector<Tensor> made_;     // of each level [images,h,w,C]
  std::vector<Window> windows_;  // those of the request that have been met
  ControlSetting setting_;
  RunWatch watch_;
  std::vector<ScaledMap> added_;  // the same for all rows
  std::unique_ptr<Program> program_;
};

}  // namespace rocm_sd
