// Division of weighted prompts into chunks, and the weights' effect on the states; see chunks.hpp.
#include "text/chunks.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

int32_t pad_of(const ClipTokenizer& tokenizer, const ChunkOptions& options) {
  return options.pad_id < 0 ? tokenizer.eos_id() : options.pad_id;
}

void check(const ChunkOptions& options) {
  require<UsageError>(
      options.max_length >= 3 && options.max_length <= 1 << 16 && options.comma_backtrack >= 0,
      "chunks: ", options.max_length, " ids per chunk and a comma backtrack of ", options.comma_backtrack,
      "; expected 3 to 65536 and at least 0");
}

// The tokens of one chunk, at most max_length - 2, with what frames them.
PromptChunk framed(std::span<const int32_t> ids, std::span<const float> weights,
                   const ClipTokenizer& tokenizer, const ChunkOptions& options) {
  const auto length = static_cast<size_t>(options.max_length);
  PromptChunk chunk;
  chunk.ids.assign(length, pad_of(tokenizer, options));
  chunk.weights.assign(length, 1.0f);
  chunk.ids[0] = tokenizer.bos_id();
  std::copy(ids.begin(), ids.end(), chunk.ids.begin() + 1);
  std::copy(weights.begin(), weights.end(), chunk.weights.begin() + 1);
  chunk.eos_position = static_cast<int>(ids.size()) + 1;
  chunk.ids[chunk.eos_position] = tokenizer.eos_id();
  return chunk;
}

class Chunker {
 public:
  Chunker(const ClipTokenizer& tokenizer, const ChunkOptions& options)
      : tokenizer_(tokenizer), options_(options), comma_(tokenizer.token_id(",</w>").value_or(-1)) {}

  void add_piece(const PromptPiece& piece) {
    if (piece.is_break()) {
      close(capacity());
      return;
    }
    for (const int32_t id : tokenizer_.encode(piece.text, options_.special_tokens))
      add_token(id, static_cast<float>(piece.weight));
  }

  ChunkedPrompt finish() {
    if (!ids_.empty() || out_.chunks.empty()) close(ids_.size());
    return std::move(out_);
  }

 private:
  size_t capacity() const { return static_cast<size_t>(options_.max_length) - 2; }

  void add_token(int32_t id, float weight) {
    const bool full = ids_.size() == capacity();
    if (id == comma_)
      last_comma_ = static_cast<int>(ids_.size());
    else if (full && last_comma_ >= 0 &&
             static_cast<int>(ids_.size()) - last_comma_ <= options_.comma_backtrack)
      close_at_comma();
    if (ids_.size() == capacity()) close(capacity());
    ids_.push_back(id);
    weights_.push_back(weight);
    out_.weighted = out_.weighted || weight != 1.0f;
  }

  // Ends the chunk behind its last comma and takes the tokens after it into the next one.
  void close_at_comma() {
    const auto cut = static_cast<std::ptrdiff_t>(last_comma_) + 1;
    std::vector<int32_t> ids(ids_.begin() + cut, ids_.end());
    std::vector<float> weights(weights_.begin() + cut, weights_.end());
    ids_.resize(cut);
    weights_.resize(cut);
    close(capacity());
    ids_ = std::move(ids);
    weights_ = std::move(weights);
  }

  void close(size_t counted) {
    require<UsageError>(out_.chunks.size() < kMaxChunks, "prompt: more than ", kMaxChunks, " chunks of ",
                        capacity(), " tokens");
    out_.token_count += static_cast<int>(counted);
    out_.chunks.push_back(framed(ids_, weights_, tokenizer_, options_));
    ids_.clear();
    weights_.clear();
    last_comma_ = -1;
  }

  const ClipTokenizer& tokenizer_;
  const ChunkOptions& options_;
  const int32_t comma_;
  int last_comma_ = -1;  // position in the open chunk
  std::vector<int32_t> ids_;
  std::vector<float> weights_;
  ChunkedPrompt out_;
};

double mean(const float* values, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += values[i];
  return sum / static_cast<double>(count);
}

}  // namespace

ChunkedPrompt chunk_prompt(const ClipTokenizer& tokenizer, std::span<const PromptPiece> pieces,
                           const ChunkOptions& options) {
  check(options);
  Chunker chunker(tokenizer, options);
  for (const PromptPiece& piece : pieces) chunker.add_piece(piece);
  return chunker.finish();
}

ChunkedPrompt chunk_prompt(const ClipTokenizer& tokenizer, std::string_view prompt,
                           const ChunkOptions& options) {
  const std::vector<PromptPiece> pieces = parse_prompt_attention(prompt);
  return chunk_prompt(tokenizer, std::span<const PromptPiece>(pieces), options);
}

PromptChunk empty_chunk(const ClipTokenizer& tokenizer, const ChunkOptions& options) {
  check(options);
  return framed({}, {}, tokenizer, options);
}

void pad_chunks(ChunkedPrompt& prompt, size_t count, const ClipTokenizer& tokenizer,
                const ChunkOptions& options) {
  if (prompt.chunks.size() < count) prompt.chunks.resize(count, empty_chunk(tokenizer, options));
}

PlainTokens plain_tokens(const ClipTokenizer& tokenizer, std::string_view text, const ChunkOptions& options) {
  check(options);
  const std::vector<int32_t> ids = tokenizer.encode(text, SpecialTokens::kRecognise);
  const size_t kept = std::min(ids.size(), static_cast<size_t>(options.max_length) - 2);
  const std::vector<float> weights(kept, 1.0f);
  PlainTokens out;
  out.chunk = framed(std::span(ids).first(kept), weights, tokenizer, options);
  out.truncated = kept < ids.size();
  out.tokens = ids.size();
  if (out.truncated) out.cut_text = tokenizer.decode(std::span(ids).subspan(kept));
  return out;
}

Emphasis emphasis_from_name(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    plain += lower == '-' || lower == '_' ? ' ' : lower;
  }
  if (plain == "original") return Emphasis::kOriginal;
  if (plain == "no norm") return Emphasis::kNoNorm;
  if (plain == "ignore") return Emphasis::kIgnore;
  throw UsageError(
      concat("emphasis: expected original, no-norm or ignore, found \"", printable(name, 40), "\""));
}

void apply_token_weights(float* states, int64_t tokens, int64_t width, std::span<const float> weights,
                         Emphasis mode) {
  require(tokens >= 0 && width > 0 && static_cast<int64_t>(weights.size()) == tokens,
          "apply_token_weights: ", weights.size(), " weights for states [", tokens, ",", width, "]");
  const bool plain = std::all_of(weights.begin(), weights.end(), [](float w) { return w == 1.0f; });
  if (mode == Emphasis::kIgnore || plain) return;
  const int64_t count = tokens * width;
  const double before = mean(states, count);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t c = 0; c < width; ++c) states[t * width + c] *= weights[t];
  if (mode == Emphasis::kNoNorm) return;
  const double scale = before / mean(states, count);
  if (!std::isfinite(scale)) return;
  for (int64_t i = 0; i < count; ++i) states[i] *= static_cast<float>(scale);
}

}  // namespace rocm_sd
