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

// Prompts of different lengths: each one's chunks are repeated to a common number. Keys that all come equally
// often leave a softmax as it is, so every prompt acts as if it were alone, as in A1111, where they are apart
// in UNet calls of their own.
void choose_common_chunks(TokenRows& rows) {
  constexpr int64_t kMaxRepeated = 64;
  rows.chunks = 1;
  for (const int64_t own : rows.prompt_chunks) rows.chunks = std::lcm(rows.chunks, own);
  const int64_t most = *std::max_element(rows.prompt_chunks.begin(), rows.prompt_chunks.end());
  if (rows.chunks == most || rows.chunks <= kMaxRepeated) return;
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

// Rows that a program takes at once: prompts of more go through it several times.
int64_t slice_rows(const TokenRows& rows) {
  constexpr int64_t kMax = 64;
  return std::min(rows.count(), kMax);
}

// Rows of the table of vectors that a program is made for: few programs serve many prompts.
int64_t vector_capacity(const TokenRows& rows) { return (rows.vectors + 15) / 16 * 16; }

template <class T>
void upload_ints(Device& device, const Tensor& tensor, const std::vector<T>& values) {
  device.copy_to_device(tensor.data(), values.data(), values.size() * sizeof(T));
}

}  // namespace

TokenRows TextStage::tokenise(const ResolvedRequest& resolved) const {
  const GenerateRequest& request = resolved.request;
  const std::string none;
  for (const std::string* text : {&request.prompt, request.prompt_2 ? &*request.prompt_2 : &none,
                                  request.negative_prompt ? &*request.negative_prompt : &none,
                                  request.negative_prompt_2 ? &*request.negative_prompt_2 : &none})
    require<UsageError>(text->size() <= 4 * kMaxPromptChars, "prompt: ", text->size(), " bytes, at most ",
                        kMaxPromptChars, " characters are accepted");
  PromptTexts prompts = prompt_texts(resolved);
  TokenRows out;
  out.prompts = static_cast<int64_t>(prompts.texts.size());
  out.calls = std::move(prompts.calls);
  out.warnings = std::move(prompts.warnings);
  out.zero_negative = resolved.uses_negative() && components_.zero_absent_negative &&
                      !request.negative_prompt && !request.negative_prompt_2;
  if (components_.text.size() == 1 && (request.prompt_2 || request.negative_prompt_2))
    warn_once(out.warnings, "prompt-2, negative-prompt-2: no effect: this model has one text encoder");

  RequestEmbeddings embeddings(embeddings_, request.embeddings);
  for (const std::string& name : embeddings_.pickles())
    for (const PromptText& text : prompts.texts)
      if (has_word(text.first, name) || has_word(text.second, name))
        warn_once(out.warnings, concat("embedding-dir: ", printable(name),
                                       " is a pickle (.pt, .bin), which is not "
                                       "read: its name counts as words; expected .safetensors"));
  std::vector<std::vector<ChunkedPrompt>> chunked;  // [encoder][prompt]
  for (size_t e = 0; e < components_.text.size(); ++e) {
    const TextEncoder& encoder = components_.text[e];
    const EmbeddingNames names = embeddings.names(encoder.tokenizer);
    ChunkOptions options = chunk_options(encoder);
    options.embeddings = &names;
    std::vector<ChunkedPrompt>& own = chunked.emplace_back();
    for (const PromptText& prompt : prompts.texts) {
      const std::string& text = e == 0 ? prompt.first : prompt.second;
      own.push_back(request.plain_prompt ? plain_prompt(encoder, text, options, out.warnings)
                                         : chunk_prompt(encoder.tokenizer, text, options));
      for (PromptChunk& chunk : own.back().chunks) {
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
  return slice_rows(rows) == prepared_rows_ && clip_skip == prepared_skip_ &&
         vector_capacity(rows) == prepared_vectors_;
}

void TextStage::forget() {
  encoders_.clear();
  prepared_rows_ = 0;
}

void TextStage::prepare(const TokenRows& rows, int clip_skip) {
  if (planned(rows, clip_skip)) return;
  const int64_t count = slice_rows(rows);
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
      encoder.pooled_rows = make_tensor(device, {count, 1}, DType::kI32);
      encoder.pooled =
          make_tensor(device, {count, config.projection > 0 ? config.projection : config.width}, DType::kF32);
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
void TextStage::upload_embeddings(const TokenRows& rows, size_t e, Slice slice) {
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
  for (size_t r = 0; r < slice.size(); ++r)
    for (const InsertedVector& inserted : slice[r].inserted)
      places[r * tokens + static_cast<size_t>(inserted.position)] = static_cast<int32_t>(
          encoder.rows.numel() + rows.embeddings[static_cast<size_t>(inserted.name)].first + inserted.vector);
  upload_ints(*components_.device, encoder.rows, places);
}

// What the program of encoder e reads, from the slice of the rows; what is behind it stays as it was.
void TextStage::upload_inputs(const TokenRows& rows, size_t e, Slice slice) {
  Encoder& encoder = encoders_[e];
  Device& device = *components_.device;
  const int64_t tokens = encoder.ids.dim(1);
  std::vector<int32_t> ids;
  std::vector<float> mask;
  const auto add = [&](const PromptChunk& chunk) {
    ids.insert(ids.end(), chunk.ids.begin(), chunk.ids.end());
    for (int64_t t = 0; t < tokens; ++t)
      mask.push_back(t <= chunk.eos_position ? 0.0f : -std::numeric_limits<float>::infinity());
  };
  for (const PromptChunk& chunk : slice) add(chunk);
  while (static_cast<int64_t>(ids.size()) < encoder.ids.numel()) add(slice.back());
  upload_ints(device, encoder.ids, ids);
  upload_embeddings(rows, e, slice);
  if (encoder.mask) upload(device, encoder.mask, mask.data(), encoder.mask.numel());
  if (components_.text[e].pooled)
    upload_ints(device, encoder.pooled_rows, pooled_rows(components_.text[e].model.config(), ids, tokens));
}

TextStage::RowStates TextStage::run_rows(const TokenRows& rows, size_t e, Profiler* profiler,
                                         const CancelCheck* cancel) {
  Encoder& encoder = encoders_[e];
  Device& device = *components_.device;
  const Slice all = rows.rows[e];
  RowStates out;
  const auto take = [&](const Tensor& from, size_t count, std::vector<float>& to) {
    const std::vector<float> values = to_floats(device, from);
    const auto used = static_cast<ptrdiff_t>(values.size() / static_cast<size_t>(from.dim(0)) * count);
    to.insert(to.end(), values.begin(), values.begin() + used);
  };
  const auto most = static_cast<size_t>(encoder.ids.dim(0));
  for (size_t begin = 0; begin < all.size(); begin += most) {
    const Slice slice = all.subspan(begin, std::min(most, all.size() - begin));
    upload_inputs(rows, e, slice);
    encoder.program->run(profiler, cancel);
    take(encoder.states, slice.size(), out.states);
    if (encoder.pooled) take(encoder.pooled, slice.size(), out.pooled);
  }
  return out;
}

TextStates TextStage::encode(const TokenRows& rows, const GenerateRequest& request, Profiler* profiler,
                             const CancelCheck* cancel) {
  plan(rows, request.clip_skip);
  const Emphasis emphasis = emphasis_from_name(request.emphasis);
  const auto per_chunk = static_cast<int64_t>(rows.rows[0].front().ids.size());
  TextStates out{.prompts = rows.prompts, .tokens = rows.chunks * per_chunk, .states = {}, .pooled = {}};
  for (const TextEncoder& encoder : components_.text) out.width += encoder.model.config().width;
  out.states.resize(static_cast<size_t>(rows.prompts * out.tokens * out.width));

  int64_t column = 0;
  for (size_t e = 0; e < encoders_.size(); ++e) {
    const ClipConfig& config = components_.text[e].model.config();
    RowStates made = run_rows(rows, e, profiler, cancel);
    std::vector<float>& states = made.states;
    const auto row_size = static_cast<size_t>(per_chunk * config.width);
    for (size_t r = 0; r < rows.rows[e].size(); ++r)
      apply_token_weights(&states[r * row_size], per_chunk, config.width, rows.rows[e][r].weights, emphasis);
    const bool pooled = components_.text[e].pooled;
    if (pooled) out.pooled_width = encoders_[e].pooled.dim(1);
    int64_t first_row = 0;
    for (int64_t p = 0; p < rows.prompts; ++p) {
      const int64_t own = rows.prompt_chunks[static_cast<size_t>(p)];
      for (int64_t token = 0; token < out.tokens; ++token) {
        const int64_t row = first_row + token / per_chunk % own;
        std::copy_n(&states[static_cast<size_t>((row * per_chunk + token % per_chunk) * config.width)],
                    config.width,
                    &out.states[static_cast<size_t>((p * out.tokens + token) * out.width + column)]);
      }
      // Of each prompt's first chunk, as A1111 pools.
      const auto first = made.pooled.begin() + (pooled ? first_row * out.pooled_width : 0);
      if (pooled) out.pooled.insert(out.pooled.end(), first, first + out.pooled_width);
      first_row += own;
    }
    column += config.width;
  }
  if (rows.zero_negative) {
    std::fill_n(out.states.begin(), out.tokens * out.width, 0.0f);
    std::fill_n(out.pooled.begin(), out.pooled_width, 0.0f);
  }
  return out;
}

}  // namespace rocm_sd
