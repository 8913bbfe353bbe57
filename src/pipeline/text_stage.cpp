#include "pipeline/text_stage.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "kernels/elementwise/elementwise.hpp"

namespace rocm_sd {
namespace {

ChunkOptions chunk_options(const TextEncoder& encoder) {
  return {.max_length = static_cast<int>(
              std::min<int64_t>(encoder.model.config().positions, encoder.tokenizer.max_length())),
          .pad_id = encoder.pad_id};
}

// Tags are taken out, so that they are not drawn as words. LoRAs of the prompt are at work by then
// (adapters.hpp); what has no effect is named.
std::string without_tags(const std::string& prompt, bool negative, std::vector<std::string>& warnings) {
  const PromptTags tags = extract_lora_tags(prompt);
  if (negative)
    for (const LoraTag& lora : tags.loras)
      warnings.push_back(concat("<lora:", printable(lora.name),
                                "> has no effect in the negative prompt: put it into the prompt"));
  for (const std::string& tag : tags.unknown)
    warnings.push_back(
        concat("<", printable(tag),
               "> in the prompt has no effect: of tags in angle brackets only <lora:...> is known"));
  return tags.text;
}

bool is_blank(const std::string& text) { return text.find_first_not_of(" \t\r\n") == std::string::npos; }

ChunkedPrompt plain_prompt(const TextEncoder& encoder, const std::string& text,
                           std::vector<std::string>& warnings) {
  PlainTokens plain = plain_tokens(encoder.tokenizer, text, chunk_options(encoder));
  if (plain.truncated)
    warnings.push_back(concat("the prompt is too long; left out: \"", printable(plain.cut_text), "\""));
  ChunkedPrompt out;
  out.chunks.push_back(std::move(plain.chunk));
  return out;
}

template <class T>
void upload_ints(Device& device, const Tensor& tensor, const std::vector<T>& values) {
  device.copy_to_device(tensor.data(), values.data(), values.size() * sizeof(T));
}

}  // namespace

TokenRows TextStage::tokenise(const GenerateRequest& request, bool with_negative) const {
  require<UsageError>(
      request.prompt.size() <= 4 * kMaxPromptChars && request.negative_prompt.size() <= 4 * kMaxPromptChars,
      "prompt: ", std::max(request.prompt.size(), request.negative_prompt.size()), " bytes, at most ",
      kMaxPromptChars, " characters are accepted");
  TokenRows out;
  std::vector<std::string> texts;
  if (with_negative) texts.push_back(request.negative_prompt);
  texts.push_back(request.prompt);
  out.prompts = static_cast<int64_t>(texts.size());
  out.zero_negative = with_negative && components_.zero_empty_negative && is_blank(request.negative_prompt);

  std::vector<std::vector<ChunkedPrompt>> chunked;  // [encoder][prompt]
  for (const TextEncoder& encoder : components_.text) {
    std::vector<std::string> warnings;
    std::vector<ChunkedPrompt>& prompts = chunked.emplace_back();
    for (const std::string& text : texts) {
      const bool negative = with_negative && &text == &texts.front();
      if (request.plain_prompt)
        prompts.push_back(plain_prompt(encoder, sanitize_utf8(text), warnings));
      else
        prompts.push_back(
            chunk_prompt(encoder.tokenizer, without_tags(text, negative, warnings), chunk_options(encoder)));
    }
    out.warnings = std::move(warnings);  // every encoder finds the same ones
  }
  size_t most = 1;
  for (const auto& prompts : chunked)
    for (const ChunkedPrompt& p : prompts) most = std::max(most, p.chunks.size());
  out.chunks = static_cast<int64_t>(most);
  for (size_t e = 0; e < chunked.size(); ++e) {
    const TextEncoder& encoder = components_.text[e];
    std::vector<PromptChunk>& rows = out.rows.emplace_back();
    for (ChunkedPrompt& p : chunked[e]) {
      pad_chunks(p, most, encoder.tokenizer, chunk_options(encoder));
      for (PromptChunk& chunk : p.chunks) {
        check_ids(encoder.model.config(), chunk.ids);
        rows.push_back(std::move(chunk));
      }
    }
  }
  return out;
}

bool TextStage::planned(const TokenRows& rows, int clip_skip) const {
  return rows.prompts * rows.chunks == prepared_rows_ && rows.prompts == prepared_prompts_ &&
         clip_skip == prepared_skip_;
}

void TextStage::forget() {
  encoders_.clear();
  prepared_rows_ = 0;
}

void TextStage::prepare(const TokenRows& rows, int clip_skip) {
  if (planned(rows, clip_skip)) return;
  const int64_t count = rows.prompts * rows.chunks;
  forget();
  encoders_.resize(components_.text.size());
  Device& device = *components_.device;
  for (size_t e = 0; e < encoders_.size(); ++e) {
    const TextEncoder& text = components_.text[e];
    const ClipConfig& config = text.model.config();
    Encoder& encoder = encoders_[e];
    const auto tokens = static_cast<int64_t>(rows.rows[e].front().ids.size());
    encoder.ids = make_tensor(device, {count, tokens}, DType::kI32);
    encoder.states = make_tensor(device, {count, tokens, config.width}, DType::kF32);
    if (text.pooled) {
      encoder.pooled_rows = make_tensor(device, {rows.prompts, 1}, DType::kI32);
      encoder.pooled = make_tensor(
          device, {rows.prompts, config.projection > 0 ? config.projection : config.width}, DType::kF32);
    }
    const int skip = clip_skip > 0 ? std::max(clip_skip - 1, text.native_skip) : text.native_skip;
    require<UsageError>(skip < config.layers, "clip-skip: ", clip_skip, ", the text encoder has ",
                        config.layers, " layers");
    encoder.program = std::make_unique<Program>(
        "text encoder " + std::to_string(e + 1), arena_, [&text, &encoder, skip](Exec& ex) {
          const ClipOutput out = text.model(ex, encoder.ids,
                                            {.skip = skip,
                                             .final_norm = text.final_norm,
                                             .pooled_rows = text.pooled ? &encoder.pooled_rows : nullptr});
          copy_into(ex, out.states, encoder.states);
          if (text.pooled) copy_into(ex, out.pooled, encoder.pooled);
        });
  }
  prepared_rows_ = count;
  prepared_prompts_ = rows.prompts;
  prepared_skip_ = clip_skip;
}

size_t TextStage::plan(const TokenRows& rows, int clip_skip) {
  prepare(rows, clip_skip);
  size_t bytes = 0;
  for (Encoder& encoder : encoders_) {
    if (!encoder.program->planned()) encoder.program->plan();
    bytes = std::max(bytes, encoder.program->arena_bytes());
  }
  return bytes;
}

uint64_t TextStage::buffer_bytes() const {
  uint64_t bytes = 0;
  for (const Encoder& e : encoders_)
    for (const Tensor* t : {&e.ids, &e.pooled_rows, &e.states, &e.pooled}) bytes += *t ? t->bytes() : 0;
  return bytes;
}

TextStates TextStage::encode(const TokenRows& rows, const GenerateRequest& request, Profiler* profiler,
                             const CancelCheck* cancel) {
  plan(rows, request.clip_skip);
  const Emphasis emphasis = emphasis_from_name(request.emphasis);
  Device& device = *components_.device;
  const auto per_chunk = static_cast<int64_t>(rows.rows[0].front().ids.size());
  TextStates out{.prompts = rows.prompts, .tokens = rows.chunks * per_chunk, .states = {}, .pooled = {}};
  for (const TextEncoder& encoder : components_.text) out.width += encoder.model.config().width;
  out.states.resize(static_cast<size_t>(rows.prompts * out.tokens * out.width));

  int64_t column = 0;
  for (size_t e = 0; e < encoders_.size(); ++e) {
    Encoder& encoder = encoders_[e];
    const ClipConfig& config = components_.text[e].model.config();
    std::vector<int32_t> ids;
    for (const PromptChunk& chunk : rows.rows[e]) ids.insert(ids.end(), chunk.ids.begin(), chunk.ids.end());
    upload_ints(device, encoder.ids, ids);
    if (components_.text[e].pooled) {  // of each prompt's first chunk, as A1111 pools
      const std::vector<int32_t> all = pooled_rows(config, ids, per_chunk);
      std::vector<int32_t> first;
      for (int64_t p = 0; p < rows.prompts; ++p) first.push_back(all[static_cast<size_t>(p * rows.chunks)]);
      upload_ints(device, encoder.pooled_rows, first);
    }
    encoder.program->run(profiler, cancel);
    std::vector<float> states = to_floats(device, encoder.states);  // [prompts*chunks,tokens,width]
    for (size_t r = 0; r < rows.rows[e].size(); ++r)
      apply_token_weights(&states[r * static_cast<size_t>(per_chunk * config.width)], per_chunk, config.width,
                          rows.rows[e][r].weights, emphasis);
    for (int64_t row = 0; row < rows.prompts * out.tokens; ++row)
      std::copy_n(&states[static_cast<size_t>(row * config.width)], config.width,
                  &out.states[static_cast<size_t>(row * out.width + column)]);
    column += config.width;
    if (components_.text[e].pooled) {
      out.pooled = to_floats(device, encoder.pooled);
      out.pooled_width = encoder.pooled.dim(1);
    }
  }
  if (rows.zero_negative) {
    std::fill_n(out.states.begin(), out.tokens * out.width, 0.0f);
    std::fill_n(out.pooled.begin(), out.pooled_width, 0.0f);
  }
  return out;
}

}  // namespace rocm_sd
