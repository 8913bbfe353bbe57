#include "pipeline/token_rows.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "pipeline/prompt_texts.hpp"

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

}  // namespace

TokenRows tokenise(const ResolvedRequest& resolved, const Components& components, EmbeddingLibrary& library) {
  const GenerateRequest& request = resolved.request;
  std::vector<const std::string*> given;
  for (const std::optional<std::string>* text :
       {&request.prompt_2, &request.negative_prompt, &request.negative_prompt_2})
    if (*text) given.push_back(&**text);
  for (const std::string& text : image_prompts(request)) given.push_back(&text);
  for (const std::string& text : request.negative_prompts) given.push_back(&text);
  for (const RegionUse& region : request.regions) given.push_back(&region.prompt);
  for (const std::string* text : given)
    require<UsageError>(text->size() <= 4 * kMaxPromptChars, "prompt: ", text->size(), " bytes, at most ",
                        kMaxPromptChars, " characters are accepted");
  PromptTexts prompts = prompt_texts(resolved);
  TokenRows out;
  out.prompts = static_cast<int64_t>(prompts.texts.size());
  out.calls = std::move(prompts.calls);
  for (const PromptText& text : prompts.texts) {
    out.images.push_back(text.image);
    if (text.negative) ++out.negatives;
  }
  out.warnings = std::move(prompts.warnings);
  out.zero_negative = resolved.uses_negative() && components.zero_absent_negative &&
                      !request.negative_prompt && !request.negative_prompt_2 &&
                      request.negative_prompts.empty();
  if (components.text.size() == 1 && (request.prompt_2 || request.negative_prompt_2))
    warn_once(out.warnings, "prompt-2, negative-prompt-2: no effect: this model has one text encoder");

  RequestEmbeddings embeddings(library, request.embeddings);
  std::vector<std::vector<ChunkedPrompt>> chunked;  // [encoder][prompt]
  for (size_t e = 0; e < components.text.size(); ++e) {
    const TextEncoder& encoder = components.text[e];
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
      used.file->of_encoder(encoder.component, encoder.model.config().width, components.is_sdxl());
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
    const TextEncoder& encoder = components.text[e];
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

}  // namespace rocm_sd
