#include "pipeline/control_stage.hpp"

#include "base/error.hpp"
#include "pipeline/adapter_stage.hpp"
#include "pipeline/controlnet_stage.hpp"

namespace rocm_sd {

bool ControlSetting::acts(int step, int total) const {
  if (strength == 0) return false;
  const double n = std::max(total, 1);
  return !(step / n < start || (step + 1) / n > end);
}

std::unique_ptr<ControlStage> make_control_stage(const ControlUnit& unit, Arena& arena,
                                                 const ControlShape& shape, const Tensor& context,
                                                 const TimeInputs& inputs) {
  if (unit.model->adapter()) return std::make_unique<AdapterStage>(unit, arena, shape, inputs);
  return std::make_unique<ControlNetStage>(unit, arena, shape, context, inputs);
}

std::vector<float> window_of(const std::vector<float>& values, const ControlShape& shape, int64_t top,
                             int64_t left, int64_t channels) {
  const int64_t width = shape.width * kPixelsPerLatent * channels;
  std::vector<float> out;
  for (int64_t y = 0; y < shape.height * kPixelsPerLatent; ++y) {
    const int64_t row = top * kPixelsPerLatent + y;
    const auto from = values.begin() + (row * shape.image_width + left * kPixelsPerLatent) * channels;
    out.insert(out.end(), from, from + width);
  }
  return out;
}

ControlShape window_shape(const ControlShape& shape) {
  ControlShape out = shape;
  out.image_height = shape.height * kPixelsPerLatent;
  out.image_width = shape.width * kPixelsPerLatent;
  return out;
}

std::vector<float> masked_factors(const std::vector<float>& per_row, const std::vector<float>& mask,
                                  const ControlShape& shape, int64_t height, int64_t width) {
  const int64_t rows = shape.image_height, columns = shape.image_width;
  std::vector<float> cells;  // [height,width]
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x) {
      const int64_t top = y * rows / height, bottom = ((y + 1) * rows + height - 1) / height;
      const int64_t left = x * columns / width, right = ((x + 1) * columns + width - 1) / width;
      double sum = 0;
      for (int64_t j = top; j < bottom; ++j)
        for (int64_t i = left; i < right; ++i) sum += mask[static_cast<size_t>(j * columns + i)];
      cells.push_back(static_cast<float>(sum / static_cast<double>((bottom - top) * (right - left))));
    }
  std::vector<float> out;
  out.reserve(per_row.size() * cells.size());
  for (const float factor : per_row)
    for (const float cell : cells) out.push_back(factor * cell);
  return out;
}

}  // namespace rocm_sd
