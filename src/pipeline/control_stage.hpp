// A control model at work beside the UNet: its images, its strengths, and what is made of them once per
// request, all in persistent memory, so that a captured step sees what they are now.
#pragma once

#include <memory>
#include <vector>

#include "models/controlnet.hpp"
#include "models/t2i_adapter.hpp"
#include "pipeline/controls.hpp"
#include "pipeline/shift_table.hpp"
#include "pipeline/stage.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd {

// An image that a control model sees, or one for each image of the batch.
struct ControlView {
  std::vector<std::vector<float>> pixels;  // [H,W,3] each in 0..1, in the order of the model's channels
  int type = 0;                            // of a union ControlNet: its kind
  double scale = 1;                        // how much of it counts among several
};

// What a request asks of one control model.
struct ControlSetting {
  double strength = 1, start = 0, end = 1;  // start, end: shares of the run's steps
  ControlMode mode = ControlMode::kBalanced;
  std::vector<ControlView> views;  // one; of a union ControlNet several
  std::vector<float> mask = {};    // [H,W] in 0..1, where it acts; empty: everywhere

  // Whether it acts in step `step` (0-based) of `total`, by the rule of Diffusers' pipelines.
  bool acts(int step, int total) const;
};

// A control model and how many images it sees: what its memory depends on.
struct ControlUnit {
  const LoadedControl* model = nullptr;
  int64_t views = 1;   // control images for one image of the batch
  int64_t images = 1;  // of one view: 1, or one for each image of the batch
  bool masked = false;
  friend bool operator==(const ControlUnit&, const ControlUnit&) = default;
};

struct ControlShape {
  int64_t batch = 1, conditions = 2, height = 64, width = 64;  // of the UNet's latents
  int64_t image_height = 512, image_width = 512;               // of the whole image, in pixels
  int64_t windows = 1;          // of the image, each of height x width; 1: the latents are the image's
  int64_t first_condition = 0;  // of the request's: others may be elsewhere
  bool guided = true;           // the request has more than one condition
  int64_t rows() const { return batch * conditions; }
};

constexpr int64_t kPixelsPerLatent = 8;  // along each side

// The first `rows` of `all` rows, each of which has as many of the first dimension as the others.
inline Tensor leading_rows(const Tensor& of, int64_t all, int64_t rows) {
  return rows == all ? of : of.narrow(0, 0, of.dim(0) / all * rows);
}

class ControlStage : public Stage {
 public:
  explicit ControlStage(Arena& arena) : Stage(Part::kUnet, arena) {}

  virtual ShiftTable* shifts() { return nullptr; }

  virtual void set_text(const RunWatch&) {}
  // The images go through what is run once; where they are the size of the latents, they reach all rows.
  // True where the time shifts must be made anew.
  virtual bool set(const ControlSetting& setting, const RunWatch& watch) = 0;
  // Of a larger image: the window at (top, left), in latents, for one row of the next step. After set().
  virtual void cut_hint(Exec& ex, int64_t row, int64_t top, int64_t left) = 0;

  // Before the UNet's way down: what its blocks get added, in its first `rows` rows.
  virtual void add_to_blocks(std::vector<std::vector<ScaledMap>>&, int64_t /*rows*/) const {}
  // After it: adds to the skips. latents [rows,h,w,4] of these rows.
  virtual void add(Exec&, const Tensor& /*latents*/, UNetSkips&) const {}
};

// context [rows,T,width] and inputs: the UNet's, filled by its stage. What the unit names and the arena must
// outlive the stage.
std::unique_ptr<ControlStage> make_control_stage(const ControlUnit& unit, Arena& arena,
                                                 const ControlShape& shape, const Tensor& context,
                                                 const TimeInputs& inputs);

// The window of values [image_height,image_width,channels] at (top, left), in latents: [8 h,8 w,channels] for
// the latents h x w of `shape`.
std::vector<float> window_of(const std::vector<float>& values, const ControlShape& shape, int64_t top,
                             int64_t left, int64_t channels);
// `shape` for one such window.
ControlShape window_shape(const ControlShape& shape);

// Factors of a map [rows,height,width] that a mask [image_height,image_width] limits,
// [rows*height*width]: each row's times the mean of the mask's pixels under each cell.
std::vector<float> masked_factors(const std::vector<float>& per_row, const std::vector<float>& mask,
                                  const ControlShape& shape, int64_t height, int64_t width);

}  // namespace rocm_sd
