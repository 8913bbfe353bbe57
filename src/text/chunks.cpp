#include "text/chunks.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/text.hpp"

namespace rocm_sd {
namespace {

// Collects tokens and closes chunks as they fill up.
class Chunker {
 public:
  Chunker(const ClipTokenizer& tokenizer, const ChunkOptions& options)
      : bos_(tokenizer.bos_id()),
        eos_(tokenizer.eos_id()),
        pad_(options.pad_id < 0 ? eos_ : options.pad_id),
        options_(options),
        capacity_(static_cast<size_t>(options.max_length) - 2),
        comma_(tokenizer.token_id(",</w>")) {
    require<UsageError>(options.max_length >= 3, "a prompt chunk needs at least 3 tokens, not ",
                        options.max_length);
  }

  void add(int32_t token, float weight) {
    if (comma_ && token == *comma_)
      last_comma_ = ids_.size();
    else if (ids_.size() == capacity_ && comma_is_near())
      move_tail_to_next_chunk();
    if (ids_.size() == capacity_) close();
    ids_.push_back(token);
    weights_.push_back(weight);
  }

  // Pads the open chunk and begins another. `tokens` is what it adds to the count.
  void close(bool last = false) {
    require<UsageError>(out_.chunks.size() < static_cast<size_t>(kMaxChunks), "prompt: more than ",
                        kMaxChunks, " chunks of ", capacity_, " tokens");
    out_.token_count += static_cast<int>(last ? ids_.size() : capacity_);
    PromptChunk chunk;
    chunk.ids.push_back(bos_);
    chunk.ids.insert(chunk.ids.end(), ids_.begin(), ids_.end());
    chunk.eos_position = static_cast<int>(chunk.ids.size());
    chunk.ids.push_back(eos_);
    chunk.ids.resize(static_cast<size_t>(options_.max_length), pad_);
    chunk.weights.assign(chunk.ids.size(), 1.0f);
    std::copy(weights_.begin(), weights_.end(), chunk.weights.begin() + 1);
    out_.weighted =
        out_.weighted || std::any_of(weights_.begin(), weights_.end(), [](float w) { return w != 1.0f; });
    out_.chunks.push_back(std::move(chunk));
    ids_.clear();
    weights_.clear();
    last_comma_.reset();
  }

  ChunkedPrompt finish() {
    if (!ids_.empty() || out_.chunks.empty()) close(/*last=*/true);
    return std::move(out_);
  }

 private:
  bool comma_is_near() const {
    return options_.comma_backtrack > 0 && last_comma_ &&
           ids_.size() - *last_comma_ <= static_cast<size_t>(options_.comma_backtrack);
  }
  void move_tail_to_next_chunk() {
    const auto from = static_cast<ptrdiff_t>(*last_comma_ + 1);
    const std::vector<int32_t> ids(ids_.begin() + from, ids_.end());
    const std::vector<float> weights(weights_.begin() + from, weights_.end());
    ids_.resize(static_cast<size_t>(from));
    weights_.resize(static_cast<size_t>(from));
    close();
    ids_ = ids;
    weights_ = weights;
  }

  int32_t bos_, eos_, pad_;
  ChunkOptions options_;
  size_t capacity_;
  std::optional<int32_t> comma_;
  std::vector<int32_t> ids_;
  std::vector<float> weights_;
  std::optional<size_t> last_comma_;  // position in ids_
  ChunkedPrompt out_;
};

}  // namespace

ChunkedPrompt chunk_prompt(const ClipTokenizer& tokenizer, std::span<const PromptPiece> pieces,
                           const ChunkOptions& options) {
  Chunker chunker(tokenizer, options);
  for (const PromptPiece& piece : pieces) {
    if (piece.is_break()) {
      chunker.close();
      continue;
    }
    for (const int32_t token : tokenizer.encode(piece.text, options.special_tokens))
      chunker.add(token, static_cast<float>(piece.weight));
  }
  return chunker.finish();
}

ChunkedPrompt chunk_prompt(const ClipTokenizer& tokenizer, std::string_view prompt,
                           const ChunkOptions& options) {
  return chunk_prompt(tokenizer, parse_prompt_attention(prompt), options);
}

PromptChunk empty_chunk(const ClipTokenizer& tokenizer, const ChunkOptions& options) {
  return Chunker(tokenizer, options).finish().chunks.front();
}

void pad_to_same_chunks(std::span<ChunkedPrompt* const> prompts, const ClipTokenizer& tokenizer,
                        const ChunkOptions& options) {
  size_t most = 0;
  for (const ChunkedPrompt* p : prompts) most = std::max(most, p->chunks.size());
  for (ChunkedPrompt* p : prompts) p->chunks.resize(most, empty_chunk(tokenizer, options));
}

PlainTokens plain_tokens(const ClipTokenizer& tokenizer, std::string_view text, const ChunkOptions& options) {
  std::vector<int32_t> ids = tokenizer.encode(text, SpecialTokens::kRecognise);
  PlainTokens out;
  const auto capacity = static_cast<size_t>(options.max_length) - 2;
  if (ids.size() > capacity) {
    out.truncated = true;
    out.cut_text = tokenizer.decode(std::span<const int32_t>(ids).subspan(capacity));
    ids.resize(capacity);
    log().warn("the prompt is longer than {} tokens; left out: \"{}\"", capacity, printable(out.cut_text));
  }
  Chunker chunker(tokenizer,
                  {.max_length = options.max_length, .pad_id = options.pad_id, .comma_backtrack = 0});
  for (const int32_t id : ids) chunker.add(id, 1.0f);
  out.chunk = chunker.finish().chunks.front();
  return out;
}

Emphasis emphasis_from_name(std::string_view name) {
  std::string key;
  for (const char c : name)
    key += c == '-' || c == '_' ? ' ' : static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  if (key == "original") return Emphasis::kOriginal;
  if (key == "no norm") return Emphasis::kNoNorm;
  if (key == "ignore") return Emphasis::kIgnore;
  throw UsageError(
      concat("emphasis: expected original, no norm or ignore, got \"", printable(name, 40), "\""));
}

void apply_token_weights(float* states, int64_t tokens, int64_t width, std::span<const float> weights,
                         Emphasis mode) {
  if (mode == Emphasis::kIgnore) return;
  const auto total = [&] {
    double sum = 0;
    for (int64_t i = 0; i < tokens * width; ++i) sum += states[i];
    return sum;
  };
  const double before = total();
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t c = 0; c < width; ++c) states[t * width + c] *= weights[static_cast<size_t>(t)];
  if (mode == Emphasis::kNoNorm) return;
  const double after = total();
  const double factor = before / after;
  if (after == 0 || !std::isfinite(factor) || factor == 1) return;
  for (int64_t i = 0; i < tokens * width; ++i) states[i] = static_cast<float>(states[i] * factor);
}

}  // namespace rocm_sd
