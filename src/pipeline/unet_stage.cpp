#include "pipeline/unet_stage.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "pipeline/unet_variants.hpp"
#include "runtime/peer_windows.hpp"

namespace rocm_sd {

using namespace unet_variants;

namespace {

// values [conditions][size] -> tensor rows [conditions*batch,size], each condition's row once per image.
void upload_per_image(Device& device, const Tensor& tensor, const std::vector<const float*>& values,
                      int64_t batch) {
  const int64_t size = tensor.numel() / (static_cast<int64_t>(values.size()) * batch);
  std::vector<float> rows;
  rows.reserve(static_cast<size_t>(tensor.numel()));
  for (const float* condition : values)
    for (int64_t i = 0; i < batch; ++i) rows.insert(rows.end(), condition, condition + size);
  upload(device, tensor, rows.data(), tensor.numel());
}

}  // namespace

std::vector<float> guidance_embedding(double scale, int64_t width) {
  const auto half = static_cast<size_t>(width / 2);
  const float w = static_cast<float>(scale - 1) * 1000.0f;
  const float step = std::log(10000.0f) / static_cast<float>(half > 1 ? half - 1 : 1);
  std::vector<float> out(static_cast<size_t>(width), 0.0f);
  for (size_t i = 0; i < half; ++i) {
    const float angle = w * std::exp(static_cast<float>(i) * -step);
    out[i] = std::sin(angle);
    out[half + i] = std::cos(angle);
  }
  return out;
}

UnetStage::UnetStage(Components& components, Arena& arena, const UnetShape& shape)
    : Stage(Part::kUnet, arena), components_(components), shape_(shape) {
  Device& device = this->device();
  if (shape_.rows) windows_ = shape_.rows->ranks().windows();
  if (shape_.tensors) windows_ = shape_.tensors->windows();
  keeps_messages_ = windows_ && shape_.rows && shape_.rows->ranks().displaces();
  const UNet& unet = *components_.unet;
  const UNetConfig& config = unet.config();
  const DType input_dtype = unet.input_dtype();
  const int64_t k = rows();
  constexpr int64_t kLatentChannels = 4;
  input_ = make_tensor(device, {k, shape.height, shape.width, kLatentChannels}, input_dtype);
  if (config.in_channels > kLatentChannels)
    extra_ = make_tensor(device, {k, shape.height, shape.width, config.in_channels - kLatentChannels},
                         input_dtype);
  timestep_ = make_tensor(device, {k}, DType::kF32);
  context_ = make_tensor(device, {k, shape.tokens, config.context_width()}, input_dtype);
  output_ = make_tensor(device, {k, shape.height, shape.width, config.out_channels}, DType::kF32);
  if (config.has_added_conditions()) {
    const bool refiner = components_.kind == ModelKind::kSdxlRefiner;
    const int64_t ids = refiner ? 5 : 6;
    added_text_ = make_tensor(device, {k, config.added_width - ids * config.added_time_width}, input_dtype);
    time_ids_ = make_tensor(device, {k, ids}, DType::kF32);
  }
  if (config.time_cond_width > 0) guidance_ = make_tensor(device, {k, config.time_cond_width}, DType::kF32);
  cache_ = unet.make_text_cache(device, k, shape.tokens);
  prepare_ = std::make_unique<Program>("text keys and values", arena,
                                       [this, &unet](Exec& ex) { unet.prepare_text(ex, context_, cache_); });
  TimeInputs time{
      .timestep = timestep_, .text_embeds = added_text_, .time_ids = time_ids_, .guidance_cond = guidance_};
  shifts_ = std::make_unique<ShiftTable>(unet, arena, time);
  time.guidance_cond = Tensor();  // ControlNets have no input for it
  const ControlShape control{shape.batch,   shape.conditions,      shape.height,
                             shape.width,   shape.image_height,    shape.image_width,
                             shape.windows, shape.first_condition, shape.guided};
  require<UsageError>(shape.controls.size() <= kMaxControls, "control: at most ", kMaxControls,
                      " at once, got ", shape.controls.size());
  for (const ControlUnit& unit : shape.controls)
    controls_.push_back(make_control_stage(unit, arena, control, context_, time));
  if (!shape.freeu.empty())
    freeu_ = make_freeu(device, config, k, shape.height, shape.width, shape.freeu, shape.freeu_second);
  if (shape.received) received_ = unet.make_received(device, shape.batch, shape.height, shape.width);
  if (!shape.images.empty())
    images_ = std::make_unique<UnetImages>(device, unet,
                                           ImageRows{shape.batch, shape.conditions, shape.height, shape.width,
                                                     shape.image_height, shape.image_width},
                                           shape.images);
  if (shape.layers) {
    segment_ = std::make_unique<UnetSegment>(
        unet, *shape.layers, arena,
        SegmentShape{shape.micro_rows, k / shape.micro_rows, shape.height, shape.width},
        [this](Exec& ex, uint32_t active, int64_t first, const Tensor& x, std::vector<Tensor>& skips) {
          return forward_layers(ex, active, first, x, skips);
        });
    for (const uint32_t variant : {uint32_t{0}, all_guests()}) segment_->add(variant);
    return;
  }
  for (const uint32_t variant : variants()) {
    step_program(variant);
    step_program(variant | all_guests());
  }
}

int64_t UnetStage::middle_height() const { return halved(shape_.height, components_.unet->middle_level()); }
int64_t UnetStage::middle_width() const { return halved(shape_.width, components_.unet->middle_level()); }

std::vector<std::vector<float>> UnetStage::attention_sums() const {
  require<InternalError>(received_.has_value(), "unet: its attention was not noted");
  return components_.unet->attention_sums(device(), *received_, shape_.height, shape_.width);
}

uint32_t UnetStage::all_guests() const {
  const uint32_t controls = (uint32_t{1} << controls_.size()) - 1;
  return controls | (images_ ? images_->all() << kMaxControls : 0);
}

bool UnetStage::can_drop_negative() const {
  return shape_.conditions > 1 && controls_.empty() && !shape_.rows && shape_.windows == 1 && !received_;
}

std::vector<uint32_t> UnetStage::variants() const {
  std::vector<uint32_t> out = {0};
  const bool one_sided = can_drop_negative();
  if (shape_.drops_negative && one_sided) out.push_back(kOneSided);
  if (shape_.received) out.push_back(kFirstOnly);
  if (shape_.savings.t_gate > 0) {
    out.push_back(kNotesText);
    out.push_back(kGated | (one_sided ? kOneSided : 0));
  }
  if (keeps_messages_) out.push_back(kStale);
  if (shape_.savings.deep_cache <= 1) return out;
  for (size_t i = 0, whole = out.size(); i < whole; ++i)
    if (!(out[i] & kNotesText)) out.push_back(out[i] | kShallow);
  return out;
}

Program& UnetStage::step_program(uint32_t active) {
  std::unique_ptr<Program>& program = step_programs_[active];
  if (!program)
    program = std::make_unique<Program>(active & kShallow  ? "unet, shallow"
                                        : active & kStale  ? "unet, displaced"
                                        : active & kGuests ? "unet and guests"
                                                           : "unet",
                                        arena(), [this, active](Exec& ex) { forward(ex, active); });
  return *program;
}

std::vector<Program*> UnetStage::programs() {
  std::vector<Program*> out = {prepare_.get(), &shifts_->program()};
  for (const auto& control : controls_)
    for (Program* program : control->programs()) out.push_back(program);
  for (const auto& [active, program] : step_programs_) out.push_back(program.get());
  if (segment_)
    for (Program* program : segment_->programs()) out.push_back(program);
  return out;
}

std::vector<ShiftTable*> UnetStage::shift_tables() {
  std::vector<ShiftTable*> out = {shifts_.get()};
  for (const auto& control : controls_)
    if (ShiftTable* shifts = control->shifts()) out.push_back(shifts);
  return out;
}

uint64_t UnetStage::buffer_bytes() const {
  uint64_t bytes = shifts_->bytes() + bytes_of({&input_, &extra_, &timestep_, &context_, &added_text_,
                                                &time_ids_, &guidance_, &output_});
  for (const auto& control : controls_) bytes += control->buffer_bytes();
  if (images_) bytes += images_->bytes();
  if (freeu_)
    for (const std::vector<FreeULevel>& block : freeu_->blocks)
      for (const FreeULevel& level : block) bytes += level.bytes();
  if (received_) bytes += received_->selector.bytes() + received_->means.bytes();
  for (const Tensor& t : cache_.keys_values) bytes += t ? t.bytes() : 0;
  if (segment_) bytes += segment_->buffer_bytes();
  if (deep_map_) bytes += deep_map_.bytes();
  if (windows_) bytes += windows_->bytes();
  for (const Tensor& t : text_means_) bytes += t ? t.bytes() : 0;
  return bytes;
}

void UnetStage::spread(Exec& ex, const Tensor& from, const std::vector<int64_t>& rows,
                       const Tensor& to) const {
  const int64_t images = static_cast<int64_t>(rows.size()) / shape_.conditions;
  for (int64_t c = 0; c < shape_.conditions; ++c)
    for (int64_t n = 0; n < shape_.batch; ++n)
      copy_into(ex, from.narrow(0, rows[static_cast<size_t>(c * images + n % images)], 1),
                to.narrow(0, c * shape_.batch + n, 1));
}

void UnetStage::set_strengths(const std::vector<std::vector<float>>& images) {
  RowStrengths* strengths = components_.row_strengths(Component::kUnet);
  if (!strengths) return;
  std::vector<std::vector<float>> wanted;
  for (size_t row = 0; row < static_cast<size_t>(rows()); ++row)
    wanted.push_back(images[row % images.size()]);
  if (wanted == strengths->rows()) return;
  strengths->set(std::move(wanted));
  schedule_.clear();  // the time embedding may have terms
  shifts_timestep_.reset();
}

void UnetStage::set_text(const TextStates& text, const std::vector<int64_t>& prompts,
                         const std::vector<std::vector<float>>& time_ids, const RunWatch& watch) {
  require(text.states.dim(2) == context_.dim(2), "the text encoders give states of width ",
          text.states.dim(2), ", the UNet reads ", context_.dim(2));
  Exec ex = eager(watch);
  spread(ex, text.states, prompts, context_);
  if (added_text_) {
    const int64_t pooled = text.pooled ? text.pooled.dim(1) : 0;
    require(pooled == added_text_.dim(1), "the text encoder gives a pooled embedding of ", pooled,
            " numbers, the UNet reads ", added_text_.dim(1));
    spread(ex, text.pooled, prompts, added_text_);
    std::vector<const float*> ids;
    for (const std::vector<float>& condition : time_ids) ids.push_back(condition.data());
    upload_per_image(device(), time_ids_, ids, shape_.batch);
    schedule_.clear();  // SDXL's shifts depend on the pooled text
  }
  shifts_timestep_.reset();
  prepare_->run(watch.profiler, watch.cancel);
  for (const auto& control : controls_) control->set_text(watch);
}

void UnetStage::set_controls(std::vector<ControlSetting> settings, const RunWatch& watch) {
  require<InternalError>(settings.size() == controls_.size(), "controls: ", settings.size(), " settings for ",
                         controls_.size());
  settings_ = std::move(settings);
  bool stale = false;
  for (size_t i = 0; i < controls_.size(); ++i)
    if (controls_[i]->set(settings_[i], watch)) stale = true;
  if (shape_.rows) {
    Exec ex = eager(watch);
    for (const auto& control : controls_)
      for (int64_t row = 0; row < rows(); ++row) control->cut_hint(ex, row, shape_.rows->begin(), 0);
  }
  if (!stale) return;
  schedule_.clear();  // the shifts depend on the types of pictures
  shifts_timestep_.reset();
}

void UnetStage::set_images(const ImageStates& states, std::vector<ImageSetting> settings, int first_part) {
  Exec ex = eager();
  images_->set(ex, states, std::move(settings), first_part);
}

void UnetStage::set_progress(int step, int total) {
  step_ = step;
  active_ = 0;
  for (size_t i = 0; i < settings_.size(); ++i)
    if (settings_[i].acts(step, total)) active_ |= uint32_t{1} << i;
  if (images_) active_ |= images_->active(step, total) << kMaxControls;
}

void UnetStage::set_extra_channels(const Tensor& channels) {
  Exec ex = eager();
  copy_into(ex, channels, extra_);
}

void UnetStage::set_guidance(double scale) {
  if (!guidance_ || guidance_scale_ == scale) return;
  const std::vector<float> embedding = guidance_embedding(scale, guidance_.dim(1));
  upload_per_image(device(), guidance_,
                   std::vector<const float*>(static_cast<size_t>(shape_.conditions), embedding.data()),
                   shape_.batch);
  guidance_scale_ = scale;
  schedule_.clear();  // the shifts depend on it
  shifts_timestep_.reset();
}

void UnetStage::make_shifts(double timestep, const RunWatch& watch) {
  const std::vector<float> times(static_cast<size_t>(rows()), static_cast<float>(timestep));
  upload(device(), timestep_, times.data(), rows());
  for (ShiftTable* table : shift_tables()) table->program().run(watch.profiler, watch.cancel);
}

void UnetStage::set_schedule(const std::vector<double>& timesteps, const RunWatch& watch) {
  constexpr size_t kMaxTimesteps = 128;  // 18 MB for SD 1.5 with guidance
  std::vector<double> wanted;
  for (const double t : timesteps)
    if (std::find(wanted.begin(), wanted.end(), t) == wanted.end()) wanted.push_back(t);
  if (wanted.size() > kMaxTimesteps) wanted.resize(kMaxTimesteps);
  if (wanted == schedule_) return;
  schedule_.clear();
  const auto count = static_cast<int64_t>(wanted.size());
  for (ShiftTable* table : shift_tables()) table->make_room(count);
  for (int64_t i = 0; i < count; ++i) {
    make_shifts(wanted[static_cast<size_t>(i)], watch);
    for (ShiftTable* table : shift_tables()) table->keep(i);
  }
  schedule_ = std::move(wanted);
  shifts_timestep_.reset();
}

void UnetStage::begin_image() {
  step_ = since_whole_ = 0;
  map_is_one_sided_ = means_are_there_ = unguided_ = false;
  calls_ = {};
}

uint32_t UnetStage::variant_of_call(bool without_negative) {
  const Savings& savings = shape_.savings;
  uint32_t out = without_negative ? kOneSided : 0;
  if (savings.t_gate > 0 && step_ + 1 == savings.t_gate) {
    out |= kNotesText;
    means_are_there_ = true;
  } else if (savings.t_gate > 0 && step_ >= savings.t_gate && means_are_there_ &&
             (without_negative || shape_.conditions == 1)) {
    out |= kGated;
  }
  if (savings.deep_cache <= 1) return out;
  const bool one_sided = without_negative || unguided_;
  const bool follows = since_whole_ > 0 && since_whole_ < savings.deep_cache &&
                       (one_sided || !map_is_one_sided_) && !(out & kNotesText);
  if (follows) {
    ++since_whole_;
    return out | kShallow;
  }
  since_whole_ = 1;
  map_is_one_sided_ = one_sided;
  return out;
}

void UnetStage::note_skipped() {
  ++calls_.skipped;
  calls_.operations_if_whole += whole_operations(active_);
}

void UnetStage::note_call(uint32_t active) {
  ++calls_.all;
  if (active & kShallow) ++calls_.shallow;
  if (active & kOneSided) ++calls_.one_sided;
  if (active & kGated) ++calls_.gated;
  calls_.operations += step_program(active).flops();
  calls_.operations_if_whole += whole_operations(active & (kGuests | kFirstOnly));
}

double UnetStage::whole_operations(uint32_t active) {
  return step_program(active).flops() + merged_operations_[active];
}

void UnetStage::use_shifts(Exec& ex, double timestep, const RunWatch& watch) {
  if (shifts_timestep_ == timestep) return;
  const auto found = std::find(schedule_.begin(), schedule_.end(), timestep);
  if (found == schedule_.end())
    make_shifts(timestep, watch);
  else
    for (ShiftTable* table : shift_tables()) table->take(ex, found - schedule_.begin());
  shifts_timestep_ = timestep;
}

Tensor UnetStage::step_first(Exec& ex, const Tensor& scaled_input, double timestep, const RunWatch& watch) {
  require<InternalError>(received_.has_value() && scaled_input.dim(0) == shape_.batch,
                         "unet: expected the first condition's latents, got ", scaled_input.shape());
  copy_into(ex, scaled_input, input_.narrow(0, 0, shape_.batch));
  use_shifts(ex, timestep, watch);
  const uint32_t active = active_ | kFirstOnly;
  step_program(active).run(watch.profiler, watch.cancel);
  note_call(active);
  return output_.narrow(0, 0, shape_.batch);
}

Tensor UnetStage::step(Exec& ex, const Tensor& scaled_input, double timestep, const RunWatch& watch) {
  const bool without_negative = scaled_input.dim(0) < rows();
  copy_into(ex, scaled_input, input_.narrow(0, 0, scaled_input.dim(0)));
  use_shifts(ex, timestep, watch);
  if (segment_) {
    std::vector<const Tensor*> inputs = {&input_};
    if (extra_) inputs.push_back(&extra_);
    segment_->run(ex, active_, inputs, output_, watch);
    ++calls_.all;
    return output_;
  }
  uint32_t active = active_ | variant_of_call(without_negative);
  if (shape_.rows) shape_.rows->run_forward(active);
  if (windows_) {
    // What it needs of the windows, before the ranks meet and make them as large.
    if (!step_program(active).planned()) step_program(active).plan();
    windows_->meet();
  }
  if (keeps_messages_) {
    const uint64_t before = std::exchange(windows_generation_, windows_->generation());
    if (shape_.rows->stale() && before == windows_generation_) active |= kStale;
  }
  step_program(active).run(watch.profiler, windows_ && windows_->by_library() ? nullptr : watch.cancel);
  note_call(active);
  return output_.narrow(0, 0, scaled_input.dim(0));
}

}  // namespace rocm_sd
