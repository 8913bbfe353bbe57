// Prompts as what a text encoder takes: rows of ids of one fixed length, one weight per token, bos first, eos
// and padding last; and the weights' effect on the encoder's output.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/clip_tokenizer.hpp"
#include "text/embedding_names.hpp"
#include "text/prompt.hpp"

namespace rocm_sd {

// A place of a chunk whose vector is not the vocabulary's: vector `vector` of the embedding `name`.
struct InsertedVector {
  int position = 0;  // in PromptChunk::ids, where 0 stands
  int name = 0;      // index in EmbeddingNames::names()
  int vector = 0;
  bool operator==(const InsertedVector&) const = default;
};

struct PromptChunk {
  std::vector<int32_t> ids;              // [max_length]: bos, tokens, eos, padding
  std::vector<float> weights;            // [max_length]: 1 for bos, eos and padding
  int eos_position = 0;                  // of the eos that ends the tokens
  std::vector<InsertedVector> inserted;  // in order of position
  bool operator==(const PromptChunk&) const = default;
};

struct ChunkOptions {
  int max_length = 77;  // ids per chunk, bos and eos included; at least 3
  int32_t pad_id = -1;  // after the eos; -1: the eos itself (SD1, CLIP-L); OpenCLIP pads with 0
  int comma_backtrack =
      20;  // a chunk may end at a comma up to this many tokens back (A1111's default); 0: never
  SpecialTokens special_tokens = SpecialTokens::kAsText;
  const EmbeddingNames* embeddings = nullptr;  // names that stand for vectors; null: none do
};

struct ChunkedPrompt {
  std::vector<PromptChunk> chunks;  // at least one
  int token_count = 0;              // tokens used, padding in front of BREAK included (A1111's counter)
  bool weighted = false;            // some weight differs from 1
};

// Weighted pieces -> chunks of max_length - 2 tokens each, as A1111 divides them; BREAK fills up its chunk,
// and the vectors of an embedding stay in one chunk. Throws UsageError for more than kMaxChunks chunks and
// for an embedding of more vectors than a chunk has places.
constexpr int kMaxChunks = 512;
ChunkedPrompt chunk_prompt(const ClipTokenizer& tokenizer, std::span<const PromptPiece> pieces,
                           const ChunkOptions& options = {});

// parse_prompt_attention and chunk_prompt in one.
ChunkedPrompt chunk_prompt(const ClipTokenizer& tokenizer, std::string_view prompt,
                           const ChunkOptions& options = {});

// One chunk without text.
PromptChunk empty_chunk(const ClipTokenizer& tokenizer, const ChunkOptions& options = {});

// Appends empty chunks until the prompt has `count`: the two encoders of SDXL need the same number. Tokenizer
// and options as the prompt was made with; never shortens.
void pad_chunks(ChunkedPrompt& prompt, size_t count, const ClipTokenizer& tokenizer,
                const ChunkOptions& options = {});

struct PlainTokens {
  PromptChunk chunk;
  bool truncated = false;
  std::string cut_text;  // what did not fit, decoded
  size_t tokens = 0;     // of the whole text, an embedding counting once for each vector
};

// Diffusers' way: no weights, special tokens recognised, cut at max_length - 2 tokens.
// options.comma_backtrack and special_tokens are not used.
PlainTokens plain_tokens(const ClipTokenizer& tokenizer, std::string_view text,
                         const ChunkOptions& options = {});

// How weights act on the encoder's output (A1111's "emphasis mode").
enum class Emphasis {
  kOriginal,  // multiply each token's state, then scale the chunk so that its mean stays
  kNoNorm,    // multiply only
  kIgnore,    // leave the states alone
};

// "original", "no norm" ("no-norm"), "ignore", in any case; throws UsageError for others.
Emphasis emphasis_from_name(std::string_view name);

// In place on one chunk's states [tokens,width]; weights [tokens]. Means in double; where the new mean is
// zero or not finite, the states stay as multiplied.
void apply_token_weights(float* states, int64_t tokens, int64_t width, std::span<const float> weights,
                         Emphasis mode = Emphasis::kOriginal);

}  // namespace rocm_sd
