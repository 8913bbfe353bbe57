#include "pipeline/row_stage.hpp"

#include "base/error.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "pipeline/unet_stage.hpp"

namespace rocm_sd {

int64_t padded_rows(int64_t rows) {
  int64_t power = 1;
  while (power < rows) power *= 2;
  const int64_t between = power / 4 * 3;  // 3, 6, 12, ...
  return between >= rows ? between : power;
}

RowStage::RowStage(Components& components, Arena& arena, const RowShape& shape)
    : Stage(Part::kUnet, arena), components_(components), shape_(shape) {
  Device& device = this->device();
  const UNet& unet = *components_.unet;
  const UNetConfig& config = unet.config();
  const int64_t k = shape.rows;
  input_ = make_tensor(device, {k, shape.height, shape.width, config.in_channels}, unet.input_dtype());
  timestep_ = make_tensor(device, {k}, DType::kF32);
  context_ = make_tensor(device, {1, shape.tokens, config.context_width()}, unet.input_dtype());
  output_ = make_tensor(device, {k, shape.height, shape.width, config.out_channels}, DType::kF32);
  if (config.has_added_conditions()) {
    const int64_t ids = components_.kind == ModelKind::kSdxlRefiner ? 5 : 6;
    added_text_ =
        make_tensor(device, {k, config.added_width - ids * config.added_time_width}, unet.input_dtype());
    time_ids_ = make_tensor(device, {k, ids}, DType::kF32);
  }
  if (config.time_cond_width > 0) guidance_ = make_tensor(device, {k, config.time_cond_width}, DType::kF32);
  // Rows that nobody has set are computed with the others, and their results are dropped.
  for (const Tensor* t : {&input_, &timestep_, &added_text_, &time_ids_, &guidance_}) {
    if (!*t) continue;
    const std::vector<float> zeros(static_cast<size_t>(t->numel()), 0.0f);
    upload(device, *t, zeros.data(), t->numel());
  }
  one_ = unet.make_text_cache(device, 1, shape.tokens);
  cache_ = unet.make_text_cache(device, k, shape.tokens);
  prepare_ = std::make_unique<Program>("text keys and values", arena,
                                       [this, &unet](Exec& ex) { unet.prepare_text(ex, context_, one_); });
}

void RowStage::forward(Exec& ex, int64_t rows) const {
  const auto own = [&](const Tensor& all) { return all ? all.narrow(0, 0, rows) : all; };
  TextCache text;
  for (const Tensor& t : cache_.keys_values) text.keys_values.push_back(own(t));
  const TimeInputs time{.timestep = own(timestep_),
                        .text_embeds = own(added_text_),
                        .time_ids = own(time_ids_),
                        .guidance_cond = own(guidance_)};
  copy_into(ex, (*components_.unet)(ex, own(input_), time, text), own(output_));
}

std::vector<Program*> RowStage::programs() {
  std::vector<Program*> out = {prepare_.get()};
  for (const auto& [rows, program] : step_programs_) out.push_back(program.get());
  return out;
}

uint64_t RowStage::buffer_bytes() const {
  uint64_t bytes = bytes_of({&input_, &timestep_, &added_text_, &time_ids_, &guidance_, &output_, &context_});
  for (const TextCache* cache : {&one_, &cache_})
    for (const Tensor& t : cache->keys_values) bytes += t.bytes();
  return bytes;
}

void RowStage::set_text(int64_t row, const TextStates& text, int64_t prompt,
                        const std::vector<float>& time_ids, const std::vector<float>& strengths,
                        const RunWatch& watch) {
  require(text.states.dim(2) == context_.dim(2), "the text encoders give states of width ",
          text.states.dim(2), ", the UNet reads ", context_.dim(2));
  const int64_t tokens = text.states.dim(1);
  require<InternalError>(shape_.tokens % tokens == 0, "rows of ", shape_.tokens, " tokens for a text of ",
                         tokens);
  Exec ex = eager(watch);
  const Tensor states = text.states.narrow(0, prompt, 1);
  for (int64_t to = 0; to < shape_.tokens; to += tokens)
    copy_into(ex, states, context_.narrow(1, to, tokens));
  set_strengths({strengths});  // the keys' and the values' layers may have terms
  prepare_->run(watch.profiler, watch.cancel);
  for (size_t i = 0; i < one_.keys_values.size(); ++i)
    copy_into(ex, one_.keys_values[i], cache_.keys_values[i].narrow(0, row, 1));
  if (!added_text_) return;
  const int64_t pooled = text.pooled ? text.pooled.dim(1) : 0;
  require(pooled == added_text_.dim(1), "the text encoder gives a pooled embedding of ", pooled,
          " numbers, the UNet reads ", added_text_.dim(1));
  copy_into(ex, text.pooled.narrow(0, prompt, 1), added_text_.narrow(0, row, 1));
  upload(device(), time_ids_.narrow(0, row, 1), time_ids.data(), time_ids_.dim(1));
}

void RowStage::set_guidance(int64_t row, double scale) {
  if (!guidance_) return;
  const std::vector<float> embedding = guidance_embedding(scale, guidance_.dim(1));
  upload(device(), guidance_.narrow(0, row, 1), embedding.data(), guidance_.dim(1));
}

void RowStage::set_strengths(std::vector<std::vector<float>> rows) {
  RowStrengths* strengths = components_.row_strengths(Component::kUnet);
  if (!strengths || rows.empty()) return;
  rows.resize(static_cast<size_t>(shape_.rows), std::vector<float>(rows.back()));
  strengths->set(std::move(rows));
}

void RowStage::copy_row(int64_t from, int64_t to) {
  Exec ex = eager();
  const auto copy = [&](const Tensor& all) {
    if (all) copy_into(ex, all.narrow(0, from, 1), all.narrow(0, to, 1));
  };
  for (const Tensor& t : cache_.keys_values) copy(t);
  for (const Tensor* t : {&added_text_, &time_ids_, &guidance_}) copy(*t);
}

void RowStage::set_input(Exec& ex, int64_t first, const Tensor& input, const Tensor& times) {
  copy_into(ex, input, input_.narrow(0, first, input.dim(0)));
  copy_into(ex, times, timestep_.narrow(0, first, input.dim(0)));
}

void RowStage::run(int64_t rows, const RunWatch& watch) {
  const int64_t padded = padded_rows(rows);
  std::unique_ptr<Program>& program = step_programs_[padded];
  if (!program)
    program =
        std::make_unique<Program>("unet of rows", arena(), [this, padded](Exec& ex) { forward(ex, padded); });
  program->run(watch.profiler, watch.cancel);
}

}  // namespace rocm_sd
