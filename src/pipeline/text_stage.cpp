#include "pipeline/text_stage.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>

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

void warn_once(std::vector<std::string>& warnings, std::string text) {
  if (std::find(warnings.begin(), warnings.end(), text) == warnings.end())
    warnings.push_back(std::move(text));
}

// Tags are taken out, so that they are not drawn as words. LoRAs of the prompt are at work by then
// (adapters.hpp); what has no effect is named.
std::string without_tags(const std::string& prompt, bool negative, std::vector<std::string>& warnings) {
  const PromptTags tags = extract_lora_tags(prompt);
  if (negative)
    for (const LoraTag& lora : tags.loras)
      warn_once(warnings, concat("<lora:", printable(lora.name),
                                 "> has no effect in the negative prompt: put it into the prompt"));
  for (const std::string& tag : tags.unknown)
    warn_once(warnings,
              concat("<", printable(tag),
                     "> in the prompt has no effect: of tags in angle brackets only <lora:...> is known"));
  return tags.text;
}

// Prompts of different lengths: each one's chunks are repeated to a common number. Keys that all come equally
// often leave a softmax as it is, so every prompt acts as if it were alone, as in A1111, where they are apart
// in UNet calls of their own.
void choose_common_chunks(TokenRows& rows) {
  constexpr int64_t kMostRepeated = 64;
  rows.chunks = 1;
  for (const int64_t own : rows.prompt_chunks) rows.chunks = std::lcm(rows.chunks, own);
  const int64_t most = *std::max_element(rows.prompt_chunks.begin(), rows.prompt_chunks.end());
  if (rows.chunks == most || rows.chunks <= kMostRepeated) return;
  warn_once(rows.warnings,
            fmt::format("the prompts have {} chunks of tokens: the shorter ones are padded with empty chunks",
                        fmt::join(rows.prompt_chunks, " and ")));
  rows.chunks = most;
  std::fill(rows.prompt_chunks.begin(), rows.prompt_chunks.end(), most);
}

ChunkedPrompt plain_prompt(const TextEncoder& encoder, const std::string& text, const ChunkOptions& options,
                           std::vector<std::string>& warnings) {
  PlainTokens plain = plain_tokens(encoder.tokenizer, text, options);
  if (plain.truncated)
    warn_once(warnings, concat("the prompt has ", plain.tokens, " tokens, the text encoder takes ",
                               chunk_options(encoder).max_length - 2, "; left out: \"",
                               printable(plain.cut_text, 500), "\""));
  ChunkedPrompt out;
  out.chunks.push_back(std::move(plain.chunk));
  return out;
}

// The embedding's name as a word of its own in the text.
bool has_word(std::string_view text, std::string_view word) {
  const auto is_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c < 0;
  };
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || !is_word(text[at - 1])) && (end == text.size() || !is_word(text[end]))) return true;
  }
  return false;
}

// Rows of the table of vectors that a program is made for: few programs serve many prompts.
int64_t vector_capacity(const TokenRows& rows) { return (rows.vectors + 15) / 16 * 16; }

template <class T>
void upload_ints(Device& device, const Tensor& tensor, const std::vector<T>& values) {
  device.copy_to_device(tensor.data(), values.data(), values.size() * sizeof(T));
}

}  // namespace

TokenRows TextStage::tokenise(const GenerateRequest& request, bool with_negative) const {
  const std::string negative = request.negative_prompt.value_or("");
  const auto second = [](const std::optional<std::string>& own, const std::string& first) {
    return own && !own->empty() ? *own : first;
  };
  // [encoder][prompt]
  const std::vector<std::vector<std::string>> texts = {
      {negative, request.prompt},
      {second(request.negative_prompt_2, negative), second(request.prompt_2, request.prompt)}};
  for (const auto& both : texts)
    for (const std::string& text : both)
      require<UsageError>(text.size() <= 4 * kMaxPromptChars, "prompt: ", text.size(), " bytes, at most ",
                          kMaxPromptChars, " characters are accepted");
  TokenRows out;
  const size_t first_prompt = with_negative ? 0 : 1;
  out.prompts = with_negative ? 2 : 1;
  out.zero_negative = with_negative && components_.zero_absent_negative && !request.negative_prompt &&
                      !request.negative_prompt_2;
  if (components_.text.size() == 1 && (request.prompt_2 || request.negative_prompt_2))
    warn_once(out.warnings, "prompt-2, negative-prompt-2: no effect: this model has one text encoder");

  RequestEmbeddings embeddings(embeddings_, request.embeddings);
  for (const std::string& name : embeddings_.pickles())
    for (const auto& both : texts)
      if (has_word(both[0], name) || has_word(both[1], name))
        warn_once(out.warnings, concat("embedding-dir: ", printable(name),
                                       " is a pickle (.pt, .bin), which is not "
                                       "read: its name counts as words; expected .safetensors"));
  std::vector<std::vector<ChunkedPrompt>> chunked;  // [encoder][prompt]
  for (size_t e = 0; e < components_.text.size(); ++e) {
    const TextEncoder& encoder = components_.text[e];
    const EmbeddingNames names = embeddings.names(encoder.tokenizer);
    ChunkOptions options = chunk_options(encoder);
    options.embeddings = &names;
    std::vector<ChunkedPrompt>& prompts = chunked.emplace_back();
    for (size_t p = first_prompt; p < 2; ++p) {
      const std::string& text = texts[e][p];
      if (request.plain_prompt)
        prompts.push_back(plain_prompt(encoder, sanitize_utf8(text), options, out.warnings));
      else
        prompts.push_back(chunk_prompt(encoder.tokenizer, without_tags(text, p == 0, out.warnings), options));
      for (PromptChunk& chunk : prompts.back().chunks) {
        for (const InsertedVector& inserted : chunk.inserted)
          if (const auto name = static_cast<size_t>(inserted.name); names.is_vocabulary_word(name))
            warn_once(out.warnings, concat("embedding ", printable(names.names()[name]),
                                           ": the word stands for the embedding, no longer for itself"));
        embeddings.note_used(chunk);
      }
    }
    for (const UsedEmbedding& used : embeddings.used())
      used.file->of_encoder(encoder.component, encoder.model.config().width, is_sdxl());
  }
  out.embeddings = embeddings.used();
  out.vectors = embeddings.vectors();
  // Of one prompt every encoder gives the same number of chunks.
  for (size_t p = 0; p < chunked.front().size(); ++p) {
    size_t most = 1;
    for (const auto& prompts : chunked) most = std::max(most, prompts[p].chunks.size());
    out.prompt_chunks.push_back(static_cast<int64_t>(most));
  }
  choose_common_chunks(out);
  for (size_t e = 0; e < chunked.size(); ++e) {
    const TextEncoder& encoder = components_.text[e];
    std::vector<PromptChunk>& rows = out.rows.emplace_back();
    for (size_t p = 0; p < chunked[e].size(); ++p) {
      pad_chunks(chunked[e][p], static_cast<size_t>(out.prompt_chunks[p]), encoder.tokenizer,
                 chunk_options(encoder));
      for (PromptChunk& chunk : chunked[e][p].chunks) {
        check_ids(encoder.model.config(), chunk.ids);
        rows.push_back(std::move(chunk));
      }
    }
  }
  return out;
}

bool TextStage::planned(const TokenRows& rows, int clip_skip) const {
  return rows.count() == prepared_rows_ && rows.prompts == prepared_prompts_ && clip_skip == prepared_skip_ &&
         vector_capacity(rows) == prepared_vectors_;
}

void TextStage::forget() {
  encoders_.clear();
  prepared_rows_ = 0;
}

void TextStage::prepare(const TokenRows& rows, int clip_skip) {
  if (planned(rows, clip_skip)) return;
  const int64_t count = rows.count();
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
    if (text.masks_padding) encoder.mask = make_tensor(device, {count, 1, 1, tokens}, DType::kF32);
    if (text.pooled) {
      encoder.pooled_rows = make_tensor(device, {rows.prompts, 1}, DType::kI32);
      encoder.pooled = make_tensor(
          device, {rows.prompts, config.projection > 0 ? config.projection : config.width}, DType::kF32);
    }
    if (const int64_t capacity = vector_capacity(rows); capacity > 0) {
      encoder.vectors = make_tensor(device, {capacity, config.width}, text.model.table_dtype());
      encoder.rows = make_tensor(device, {count, tokens}, DType::kI32);
    }
    const int skip = clip_skip > 0 ? std::max(clip_skip - 1, text.native_skip) : text.native_skip;
    require<UsageError>(skip < config.layers, "clip-skip: ", clip_skip, ", the text encoder has ",
                        config.layers, " layers");
    encoder.program = std::make_unique<Program>(
        "text encoder " + std::to_string(e + 1), arena_, [&text, &encoder, skip](Exec& ex) {
          const ClipOutput out = text.model(ex, encoder.ids,
                                            {.skip = skip,
                                             .final_norm = text.final_norm,
                                             .pooled_rows = text.pooled ? &encoder.pooled_rows : nullptr,
                                             .mask = encoder.mask ? &encoder.mask : nullptr,
                                             .vectors = encoder.vectors ? &encoder.vectors : nullptr,
                                             .rows = encoder.rows ? &encoder.rows : nullptr});
          copy_into(ex, out.states, encoder.states);
          if (text.pooled) copy_into(ex, out.pooled, encoder.pooled);
        });
  }
  prepared_rows_ = count;
  prepared_prompts_ = rows.prompts;
  prepared_vectors_ = vector_capacity(rows);
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
    for (const Tensor* t : {&e.ids, &e.mask, &e.pooled_rows, &e.states, &e.pooled, &e.vectors, &e.rows})
      bytes += *t ? t->bytes() : 0;
  return bytes;
}

// The vectors of the prompts' embeddings, and which places of the rows they take.
void TextStage::upload_embeddings(const TokenRows& rows, size_t e) {
  Encoder& encoder = encoders_[e];
  if (!encoder.vectors) return;
  const TextEncoder& text = components_.text[e];
  const auto width = static_cast<size_t>(text.model.config().width);
  std::vector<float> table(static_cast<size_t>(encoder.vectors.numel()));
  for (const UsedEmbedding& used : rows.embeddings) {
    const EmbeddingMatrix& matrix =
        used.file->of_encoder(text.component, static_cast<int64_t>(width), is_sdxl());
    std::copy(matrix.values.begin(), matrix.values.end(),
              table.begin() + static_cast<ptrdiff_t>(used.first * matrix.width));
  }
  upload(*components_.device, encoder.vectors, table.data(), encoder.vectors.numel());
  std::vector<int32_t> places(static_cast<size_t>(encoder.rows.numel()));
  std::iota(places.begin(), places.end(), 0);
  const auto tokens = static_cast<size_t>(encoder.rows.dim(1));
  for (size_t r = 0; r < rows.rows[e].size(); ++r)
    for (const InsertedVector& inserted : rows.rows[e][r].inserted)
      places[r * tokens + static_cast<size_t>(inserted.position)] = static_cast<int32_t>(
          encoder.rows.numel() + rows.embeddings[static_cast<size_t>(inserted.name)].first + inserted.vector);
  upload_ints(*components_.device, encoder.rows, places);
}

// What the programs of encoder e read, from the rows.
void TextStage::upload_inputs(const TokenRows& rows, size_t e) {
  Encoder& encoder = encoders_[e];
  Device& device = *components_.device;
  const auto tokens = static_cast<int64_t>(rows.rows[e].front().ids.size());
  std::vector<int32_t> ids;
  std::vector<float> mask;
  for (const PromptChunk& chunk : rows.rows[e]) {
    ids.insert(ids.end(), chunk.ids.begin(), chunk.ids.end());
    for (int64_t t = 0; t < tokens; ++t)
      mask.push_back(t <= chunk.eos_position ? 0.0f : -std::numeric_limits<float>::infinity());
  }
  upload_ints(device, encoder.ids, ids);
  upload_embeddings(rows, e);
  if (encoder.mask) upload(device, encoder.mask, mask.data(), encoder.mask.numel());
  if (!components_.text[e].pooled) return;
  // Of each prompt's first chunk, as A1111 pools.
  const std::vector<int32_t> all = pooled_rows(components_.text[e].model.config(), ids, tokens);
  std::vector<int32_t> first;
  size_t row = 0;
  for (const int64_t chunks : rows.prompt_chunks) {
    first.push_back(all[row]);
    row += static_cast<size_t>(chunks);
  }
  upload_ints(device, encoder.pooled_rows, first);
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
    upload_inputs(rows, e);
    encoder.program->run(profiler, cancel);
    std::vector<float> states = to_floats(device, encoder.states);  // [rows,tokens,width]
    const auto row_size = static_cast<size_t>(per_chunk * config.width);
    for (size_t r = 0; r < rows.rows[e].size(); ++r)
      apply_token_weights(&states[r * row_size], per_chunk, config.width, rows.rows[e][r].weights, emphasis);
    int64_t first_row = 0;
    for (int64_t p = 0; p < rows.prompts; ++p) {
      const int64_t own = rows.prompt_chunks[static_cast<size_t>(p)];
      for (int64_t token = 0; token < out.tokens; ++token) {
        const int64_t row = first_row + token / per_chunk % own;
        std::copy_n(&states[static_cast<size_t>((row * per_chunk + token % per_chunk) * config.width)],
                    config.width,
                    &out.states[static_cast<size_t>((p * out.tokens + token) * out.width + column)]);
      }
      first_row += own;
    }
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
