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

// A token or a vector of a chunk.
struct Place {
  int32_t id = 0;
  float weight = 1;
  int name = -1, vector = 0;
};

// The places of one chunk, at most max_length - 2, with what frames them.
PromptChunk framed(std::span<const Place> places, const ClipTokenizer& tokenizer,
                   const ChunkOptions& options) {
  const auto length = static_cast<size_t>(options.max_length);
  PromptChunk chunk;
  chunk.ids.assign(length, pad_of(tokenizer, options));
  chunk.weights.assign(length, 1.0f);
  chunk.ids[0] = tokenizer.bos_id();
  for (size_t i = 0; i < places.size(); ++i) {
    chunk.ids[i + 1] = places[i].id;
    chunk.weights[i + 1] = places[i].weight;
    if (places[i].name >= 0)
      chunk.inserted.push_back({static_cast<int>(i) + 1, places[i].name, places[i].vector});
  }
  chunk.eos_position = static_cast<int>(places.size()) + 1;
  chunk.ids[chunk.eos_position] = tokenizer.eos_id();
  return chunk;
}

std::vector<PromptUnit> units_of(const ClipTokenizer& tokenizer, std::string_view text,
                                 const ChunkOptions& options) {
  if (options.embeddings) return options.embeddings->units(text, options.special_tokens);
  std::vector<PromptUnit> out;
  for (const int32_t id : tokenizer.encode(text, options.special_tokens)) out.push_back({.id = id});
  return out;
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
    for (const PromptUnit& unit : units_of(tokenizer_, piece.text, options_))
      add_unit(unit, static_cast<float>(piece.weight));
  }

  ChunkedPrompt finish() {
    if (!places_.empty() || out_.chunks.empty()) close(places_.size());
    return std::move(out_);
  }

 private:
  size_t capacity() const { return static_cast<size_t>(options_.max_length) - 2; }

  void add_unit(const PromptUnit& unit, float weight) {
    const auto vectors = static_cast<size_t>(unit.vectors);
    require<UsageError>(vectors <= capacity(), "embedding ",
                        unit.name >= 0 ? printable(options_.embeddings->names()[unit.name]) : "", ": ",
                        vectors, " vectors; a chunk of the prompt has ", capacity(), " places");
    const bool full = places_.size() == capacity();
    if (unit.name < 0 && unit.id == comma_)
      last_comma_ = static_cast<int>(places_.size());
    else if (full && last_comma_ >= 0 &&
             static_cast<int>(places_.size()) - last_comma_ <= options_.comma_backtrack)
      close_at_comma();
    if (places_.size() + vectors > capacity()) close(capacity());
    for (int i = 0; i < unit.vectors; ++i) places_.push_back({unit.id, weight, unit.name, i});
    out_.weighted = out_.weighted || weight != 1.0f;
  }

  // Ends the chunk behind its last comma and takes the tokens after it into the next one.
  void close_at_comma() {
    const auto cut = static_cast<std::ptrdiff_t>(last_comma_) + 1;
    std::vector<Place> moved(places_.begin() + cut, places_.end());
    places_.resize(static_cast<size_t>(cut));
    close(capacity());
    places_ = std::move(moved);
  }

  void close(size_t counted) {
    require<UsageError>(out_.chunks.size() < kMaxChunks, "prompt: more than ", kMaxChunks, " chunks of ",
                        capacity(), " tokens");
    out_.token_count += static_cast<int>(counted);
    out_.chunks.push_back(framed(places_, tokenizer_, options_));
    places_.clear();
    last_comma_ = -1;
  }

  const ClipTokenizer& tokenizer_;
  const ChunkOptions& options_;
  const int32_t comma_;
  int last_comma_ = -1;  // position in the open chunk
  std::vector<Place> places_;
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
  return framed({}, tokenizer, options);
}

void pad_chunks(ChunkedPrompt& prompt, size_t count, const ClipTokenizer& tokenizer,
                const ChunkOptions& options) {
  if (prompt.chunks.size() < count) prompt.chunks.resize(count, empty_chunk(tokenizer, options));
}

PlainTokens plain_tokens(const ClipTokenizer& tokenizer, std::string_view text, const ChunkOptions& options) {
  check(options);
  std::vector<Place> places;
  if (options.embeddings) {
    for (const PromptUnit& unit : options.embeddings->plain_units(text))
      for (int i = 0; i < unit.vectors; ++i) places.push_back({unit.id, 1, unit.name, i});
  } else {
    for (const int32_t id : tokenizer.encode(text, SpecialTokens::kRecognise)) places.push_back({.id = id});
  }
  const size_t kept = std::min(places.size(), static_cast<size_t>(options.max_length) - 2);
  PlainTokens out;
  out.chunk = framed(std::span(places).first(kept), tokenizer, options);
  out.truncated = kept < places.size();
  out.tokens = places.size();
  std::vector<int32_t> cut;
  for (size_t i = kept; i < places.size(); ++i)
    if (places[i].name < 0) cut.push_back(places[i].id);
  if (out.truncated) out.cut_text = tokenizer.decode(cut);
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
