// Prompts to what the UNet reads: tokens, the text encoders, prompt weights, SDXL's pooled embedding.
#pragma once

#include <memory>
#include <numeric>
#include <vector>

#include "pipeline/components.hpp"
#include "pipeline/embeddings.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd {

// Text states of a request on the host; entry 0 is the negative prompt where there is one.
struct TextStates {
  int64_t prompts = 0, tokens = 0, width = 0, pooled_width = 0;
  std::vector<float> states;  // [prompts,tokens,width]
  std::vector<float> pooled;  // [prompts,pooled_width]; empty for SD 1 and SD 2
};

// What is to be encoded: the rows of every encoder.
struct TokenRows {
  int64_t prompts = 0;
  int64_t chunks = 0;                  // of the states that the UNet reads: a multiple of each prompt's own
  std::vector<int64_t> prompt_chunks;  // [prompts]: its own, the same for every encoder
  std::vector<std::vector<PromptChunk>> rows;  // per encoder: [count()], a prompt's chunks together
  bool zero_negative = false;                  // SDXL base: no negative prompt counts as zeros
  std::vector<UsedEmbedding> embeddings;       // that the prompts name: InsertedVector::name counts them
  int64_t vectors = 0;                         // rows of the table of all their vectors
  std::vector<std::string> warnings;           // each once

  int64_t count() const { return std::accumulate(prompt_chunks.begin(), prompt_chunks.end(), int64_t{0}); }
};

class TextStage {
 public:
  // All must outlive the stage.
  TextStage(Components& components, Arena& arena, EmbeddingLibrary& embeddings)
      : components_(components), arena_(arena), embeddings_(embeddings) {}

  // with_negative: guidance needs the negative prompt's states too. Throws UsageError for prompts that cannot
  // be read, FormatError for a vocabulary that does not fit the model, and what opening embeddings throws.
  TokenRows tokenise(const GenerateRequest& request, bool with_negative) const;

  // Arena bytes that encoding needs.
  size_t plan(const TokenRows& rows, int clip_skip);
  bool planned(const TokenRows& rows, int clip_skip) const;
  void forget();  // what was planned: the encoders' weights have moved
  uint64_t buffer_bytes() const;
  TextStates encode(const TokenRows& rows, const GenerateRequest& request, Profiler* profiler,
                    const CancelCheck* cancel);

 private:
  // One encoder for one number of rows.
  struct Encoder {
    Tensor ids, mask, pooled_rows, states, pooled;  // persistent
    Tensor vectors, rows;                           // of embeddings; empty where no prompt has one
    std::unique_ptr<Program> program;
  };
  void prepare(const TokenRows& rows, int clip_skip);
  void upload_inputs(const TokenRows& rows, size_t encoder);
  void upload_embeddings(const TokenRows& rows, size_t encoder);
  bool is_sdxl() const {
    return components_.kind == ModelKind::kSdxl || components_.kind == ModelKind::kSdxlRefiner;
  }

  Components& components_;
  Arena& arena_;
  EmbeddingLibrary& embeddings_;
  std::vector<Encoder> encoders_;
  int64_t prepared_rows_ = 0, prepared_prompts_ = 0, prepared_vectors_ = 0;
  int prepared_skip_ = -1;
};

}  // namespace rocm_sd
