// The UNet for rows that have nothing in common but the latents' size: each has a text, a timestep and, where
// the model reads them, size conditions and a scale of guidance of its own. A program for each number of rows
// that is used, over the leading rows of the same memory.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "models/unet.hpp"
#include "pipeline/text_stage.hpp"

namespace rocm_sd {

struct RowShape {
  int64_t rows = 2, height = 64, width = 64, tokens = 77;  // rows: the most at once
  friend bool operator==(const RowShape&, const RowShape&) = default;
};

// The rows that a program is made for: the least of 1, 2, 3, 4, 6, 8, 12, 16, ... that is no less.
int64_t padded_rows(int64_t rows);

class RowStage final : public Stage {
 public:
  // components and arena must outlive the stage.
  RowStage(Components& components, Arena& arena, const RowShape& shape);

  const RowShape& shape() const { return shape_; }
  DType dtype() const override { return components_.dtype_of(Part::kUnet); }
  std::vector<Program*> programs() override;
  uint64_t buffer_bytes() const override;

  // Row `row` reads text number `prompt` of the states, whose tokens are repeated to those of the shape: all
  // keys that come equally often leave a softmax as it is. time_ids: its numbers of SDXL's size conditions.
  // strengths: of the run-time LoRAs on this row; set_strengths() must follow, for the rows of the next run.
  void set_text(int64_t row, const TextStates& text, int64_t prompt, const std::vector<float>& time_ids,
                const std::vector<float>& strengths, const RunWatch& watch);
  void set_guidance(int64_t row, double scale);  // for a UNet that takes it as an input
  // How strongly each run-time LoRA acts on each row: on those beyond the list as on the last one.
  void set_strengths(std::vector<std::vector<float>> rows);
  void copy_row(int64_t from, int64_t to);  // what set_text() and set_guidance() said

  // input [count,h,w,4] of the UNet's input_dtype() and times [count] f32, into rows `first` and on.
  void set_input(Exec& ex, int64_t first, const Tensor& input, const Tensor& times);
  void run(int64_t rows,
           const RunWatch& watch);  // the leading ones, padded; the others' results are of no use
  // [count,h,w,4] f32, overwritten by the next run.
  Tensor output(int64_t first, int64_t count) const { return output_.narrow(0, first, count); }

 private:
  void forward(Exec& ex, int64_t rows) const;

  Components& components_;
  RowShape shape_;
  Tensor input_, timestep_, added_text_, time_ids_, guidance_, output_;  // persistent, of shape_.rows rows
  Tensor context_;                                                       // [1,tokens,width] of one text
  TextCache one_, cache_;                                                // of it, of all rows
  std::unique_ptr<Program> prepare_;                                     // fills one_
  std::map<int64_t, std::unique_ptr<Program>> step_programs_;            // by their rows
};

}  // namespace rocm_sd
