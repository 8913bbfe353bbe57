#include "pipeline/controlnet_stage.hpp"

#include "base/error.hpp"
#include "kernels/elementwise/elementwise.hpp"

namespace rocm_sd {

ControlNetStage::ControlNetStage(const ControlUnit& unit, Arena& arena, const ControlShape& shape,
                                 const Tensor& context, const TimeInputs& inputs)
    : ControlStage(arena), unit_(unit), model_(*unit.model->net()), shape_(shape) {
  TimeInputs time = inputs;
  if (const auto& mixer = model_.config().mixer) {
    types_ = make_tensor(device(), {shape.rows(), mixer->types}, DType::kF32);
    added_ = make_tensor(device(), {shape.rows(), mixer->time_width}, model_.trunk().compute_dtype());
    embed_types_ = std::make_unique<Program>("control types", arena, [this](Exec& ex) {
      copy_into(ex, model_.type_embedding(ex, types_), added_);
    });
    time.added = added_;
  }
  shifts_ = std::make_unique<ShiftTable>(model_.trunk(), arena, time);
  cache_ = model_.trunk().make_text_cache(device(), shape.rows(), context.dim(1));
  prepare_ = std::make_unique<Program>(
      "control text", arena, [this, context](Exec& ex) { model_.trunk().prepare_text(ex, context, cache_); });
  make_hints(arena);
  for (const int64_t level : model_.residual_levels()) {
    const int64_t cells = halved(shape.height, level) * halved(shape.width, level);
    factors_.push_back(make_tensor(device(), {shape.rows() * (unit.masked ? cells : 1)}, DType::kF32));
  }
}

void ControlNetStage::make_hints(Arena& arena) {
  const int64_t scale = model_.config().hint_scale(), count = unit_.images;
  const int64_t width = model_.config().trunk.down.front().channels;
  const DType maps = model_.trunk().input_dtype();
  image_ = make_tensor(device(), {count, shape_.image_height, shape_.image_width, 3}, DType::kF32);
  whole_ =
      make_tensor(device(), {count, shape_.image_height / scale, shape_.image_width / scale, width}, maps);
  hint_ = make_tensor(device(), {shape_.rows(), shape_.height, shape_.width, width}, maps);
  if (model_.config().mixer) {
    type_ = make_tensor(device(), {count, 1}, DType::kI32);
    scales_ = make_tensor(device(), {count}, DType::kF32);
  }
  const auto hint = [this](Exec& ex) {
    const Tensor made = model_.hint(ex, image_);
    return type_ ? model_.weigh(ex, made, type_, scales_) : made;
  };
  embed_ = std::make_unique<Program>("control image", arena,
                                     [this, hint](Exec& ex) { copy_into(ex, hint(ex), whole_); });
  if (unit_.views > 1)
    embed_more_ = std::make_unique<Program>("control images", arena, [this, hint](Exec& ex) {
      copy_into(ex, rocm_sd::add(ex, whole_, hint(ex)), whole_);
    });
}

std::vector<Program*> ControlNetStage::programs() {
  std::vector<Program*> out = {&shifts_->program(), prepare_.get(), embed_.get()};
  for (Program* program : {embed_more_.get(), embed_types_.get()})
    if (program) out.push_back(program);
  return out;
}

uint64_t ControlNetStage::buffer_bytes() const {
  uint64_t bytes = shifts_->bytes() + image_.bytes() + whole_.bytes() + hint_.bytes();
  for (const Tensor& t : {types_, added_}) bytes += t ? t.bytes() : 0;
  for (const Tensor& t : factors_) bytes += t.bytes();
  for (const Tensor& t : cache_.keys_values) bytes += t.bytes();
  return bytes;
}

void ControlNetStage::set_text(const RunWatch& watch) { prepare_->run(watch.profiler, watch.cancel); }

bool ControlNetStage::set(const ControlSetting& setting, const RunWatch& watch) {
  require<InternalError>(static_cast<int64_t>(setting.views.size()) == unit_.views,
                         "control: ", setting.views.size(), " images for ", unit_.views);
  for (size_t i = 0; i < setting.views.size(); ++i) set_view(i, setting.views[i], watch);
  if (!windowed())  // else cut_hint() brings windows
    for (int64_t row = 0; row < hint_.dim(0); ++row) {
      const Tensor from = whole_.narrow(0, row % unit_.images, 1);
      device().copy_on_device(hint_.narrow(0, row, 1).data(), from.data(), from.bytes());
    }
  set_factors(setting);
  return set_types(setting, watch);
}

void ControlNetStage::set_view(size_t index, const ControlView& now, const RunWatch& watch) {
  std::vector<float> all;
  for (const std::vector<float>& pixels : now.pixels) all.insert(all.end(), pixels.begin(), pixels.end());
  upload(device(), image_, all.data(), static_cast<int64_t>(all.size()));
  if (type_) {
    const std::vector<int32_t> types(now.pixels.size(), now.type);
    device().copy_to_device(type_.data(), types.data(), types.size() * sizeof(int32_t));
    const std::vector<float> scales(now.pixels.size(), static_cast<float>(now.scale));
    upload(device(), scales_, scales.data(), scales_.numel());
  }
  (index == 0 ? embed_ : embed_more_)->run(watch.profiler, watch.cancel);
}

// In some modes, and where a model's residuals are means, the UNet's unconditional rows stay as they are.
void ControlNetStage::set_factors(const ControlSetting& setting) {
  const bool pools = model_.config().pools;
  const bool for_prompt = setting.mode == ControlMode::kGuess || setting.mode == ControlMode::kControl;
  const bool conditional_only = (for_prompt || pools) && shape_.guided;
  const int64_t count = model_.residuals();
  const std::vector<int64_t> levels = model_.residual_levels();
  mask_ = setting.mask;
  row_factors_.clear();
  for (int64_t i = 0; i < count; ++i) {
    const ControlMode mode =
        pools && setting.mode == ControlMode::kGuess ? ControlMode::kBalanced : setting.mode;
    const double factor = setting.strength * control_factor(mode, i, count);
    std::vector<float> factors;  // of each row
    for (int64_t c = 0; c < shape_.conditions; ++c) {
      const bool acts =
          !conditional_only || shape_.first_condition + c > 0;  // the unconditional one comes first
      factors.insert(factors.end(), static_cast<size_t>(shape_.batch),
                     acts ? static_cast<float>(factor) : 0.0f);
    }
    row_factors_.push_back(factors);
    if (unit_.masked && windowed()) continue;  // cut_hint() brings them
    const int64_t level = levels[static_cast<size_t>(i)];
    if (unit_.masked)
      factors = masked_factors(factors, setting.mask, shape_, halved(shape_.height, level),
                               halved(shape_.width, level));
    const Tensor& to = factors_[static_cast<size_t>(i)];
    upload(device(), to, factors.data(), to.numel());
  }
}

bool ControlNetStage::set_types(const ControlSetting& setting, const RunWatch& watch) {
  if (!types_) return false;
  std::vector<float> types(static_cast<size_t>(types_.numel()), 0.0f);
  for (const ControlView& view : setting.views)
    for (int64_t row = 0; row < types_.dim(0); ++row)
      types[static_cast<size_t>(row * types_.dim(1) + view.type)] = 1;
  upload(device(), types_, types.data(), types_.numel());
  embed_types_->run(watch.profiler, watch.cancel);
  return std::exchange(types_set_, types) != types;
}

void ControlNetStage::cut_hint(Exec& ex, int64_t row, int64_t top, int64_t left) {
  const Tensor window =
      whole_.narrow(0, row % unit_.images, 1).narrow(1, top, hint_.dim(1)).narrow(2, left, hint_.dim(2));
  copy_into(ex, window, hint_.narrow(0, row, 1));
  if (!unit_.masked || !windowed()) return;
  const std::vector<float> mask = window_of(mask_, shape_, top, left, 1);
  const ControlShape own = window_shape(shape_);
  const std::vector<int64_t> levels = model_.residual_levels();
  for (size_t i = 0; i < levels.size(); ++i) {
    const std::vector<float> factors =
        masked_factors({row_factors_[i][static_cast<size_t>(row)]}, mask, own,
                       halved(shape_.height, levels[i]), halved(shape_.width, levels[i]));
    const auto cells = static_cast<int64_t>(factors.size());
    upload(device(), factors_[i].narrow(0, row * cells, cells), factors.data(), cells);
  }
}

void ControlNetStage::add(Exec& ex, const Tensor& latents, UNetSkips& skips) const {
  const auto leading = [&](const Tensor& of) { return leading_rows(of, shape_.rows(), latents.dim(0)); };
  TextCache text;
  for (const Tensor& t : cache_.keys_values) text.keys_values.push_back(leading(t));
  std::vector<Tensor> factors;
  for (const Tensor& t : factors_) factors.push_back(leading(t));
  model_(ex, latents, leading(hint_), leading(shifts_->current()), text, factors, skips);
}

}  // namespace rocm_sd
