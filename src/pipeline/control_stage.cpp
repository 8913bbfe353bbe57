#include "pipeline/control_stage.hpp"

#include "base/error.hpp"
#include "kernels/elementwise/elementwise.hpp"

namespace rocm_sd {

bool ControlSetting::acts(int step, int total) const {
  if (strength == 0) return false;
  const double n = std::max(total, 1);
  return !(step / n < start || (step + 1) / n > end);
}

ControlStage::ControlStage(const ControlNet& model, Arena& arena, const ControlShape& shape,
                           const Tensor& context, const TimeInputs& inputs)
    : Stage(Part::kUnet, arena), model_(model), shape_(shape), shifts_(model.trunk(), arena, inputs) {
  const int64_t rows = shape.batch * shape.conditions, scale = model.config().hint_scale();
  const int64_t width = model.config().trunk.down.front().channels;
  const DType maps = model.trunk().input_dtype();
  picture_ = make_tensor(device(), {1, shape.picture_height, shape.picture_width, 3}, DType::kF32);
  whole_ = make_tensor(device(), {1, shape.picture_height / scale, shape.picture_width / scale, width}, maps);
  hint_ = make_tensor(device(), {rows, shape.height, shape.width, width}, maps);
  factors_ = make_tensor(device(), {model.residuals(), rows}, DType::kF32);
  cache_ = model.trunk().make_text_cache(device(), rows, context.dim(1));
  prepare_ = std::make_unique<Program>(
      "control text", arena, [this, context](Exec& ex) { model_.trunk().prepare_text(ex, context, cache_); });
  embed_ = std::make_unique<Program>("control picture", arena,
                                     [this](Exec& ex) { copy_into(ex, model_.hint(ex, picture_), whole_); });
}

uint64_t ControlStage::buffer_bytes() const {
  uint64_t bytes = shifts_.bytes() + bytes_of({&picture_, &whole_, &hint_, &factors_});
  for (const Tensor& t : cache_.keys_values) bytes += t.bytes();
  return bytes;
}

void ControlStage::set_text(Profiler* profiler, const CancelCheck* cancel) {
  prepare_->run(profiler, cancel);
}

void ControlStage::set(const ControlSetting& setting, Profiler* profiler, const CancelCheck* cancel) {
  upload(device(), picture_, setting.pixels.data(), static_cast<int64_t>(setting.pixels.size()));
  embed_->run(profiler, cancel);
  set_factors(setting);
  if (whole_.dim(1) != hint_.dim(1) || whole_.dim(2) != hint_.dim(2)) return;  // cut_hint() brings windows
  for (int64_t row = 0; row < hint_.dim(0); ++row)
    device().copy_on_device(hint_.narrow(0, row, 1).data(), whole_.data(), whole_.bytes());
}

// In some modes, and where a model's residuals are means, the UNet's unconditional rows stay as they are.
void ControlStage::set_factors(const ControlSetting& setting) {
  const bool pools = model_.config().pools;
  const bool for_prompt = setting.mode == ControlMode::kGuess || setting.mode == ControlMode::kControl;
  const bool conditional_only = (for_prompt || pools) && shape_.conditions > 1;
  const int64_t count = model_.residuals();
  std::vector<float> factors;
  for (int64_t i = 0; i < count; ++i) {
    const ControlMode mode =
        pools && setting.mode == ControlMode::kGuess ? ControlMode::kBalanced : setting.mode;
    const double factor = setting.strength * control_factor(mode, i, count);
    for (int64_t c = 0; c < shape_.conditions; ++c) {
      const bool acts = !conditional_only || c > 0;  // the unconditional one comes first
      factors.insert(factors.end(), static_cast<size_t>(shape_.batch),
                     acts ? static_cast<float>(factor) : 0.0f);
    }
  }
  upload(device(), factors_, factors.data(), factors_.numel());
}

void ControlStage::cut_hint(Exec& ex, int64_t row, int64_t top, int64_t left) {
  const Tensor window = whole_.narrow(1, top, hint_.dim(1)).narrow(2, left, hint_.dim(2));
  copy_into(ex, window, hint_.narrow(0, row, 1));
}

void ControlStage::add(Exec& ex, const Tensor& latents, UNetSkips& skips) const {
  model_(ex, latents, hint_, shifts_.current(), cache_, factors_, skips);
}

}  // namespace rocm_sd
