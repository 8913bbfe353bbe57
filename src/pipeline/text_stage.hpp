// Prompts to what the UNet reads: tokens, the text encoders, prompt weights, SDXL's pooled embedding.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "pipeline/components.hpp"
#include "pipeline/embeddings.hpp"
#include "pipeline/prompt_texts.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd {

// Text states of a request on the host; entry 0 is a negative prompt where there is one.
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
  std::vector<std::vector<int64_t>> calls;     // PromptTexts::calls, of prompts
  std::vector<UsedEmbedding> embeddings;       // that the prompts name: InsertedVector::name counts them
  int64_t vectors = 0;                         // rows of the table of all their vectors
  std::vector<std::string> warnings;           // each once

  // Which prompt each condition reads at a call of the UNet.
  const std::vector<int64_t>& prompts_at(size_t call) const {
    return calls[std::min(call, calls.size() - 1)];
  }
  int64_t count() const { return std::accumulate(prompt_chunks.begin(), prompt_chunks.end(), int64_t{0}); }
};

class TextStage {
 public:
  // All must outlive the stage.
  TextStage(Components& components, Arena& arena, EmbeddingLibrary& embeddings)
      : components_(components), arena_(arena), embeddings_(embeddings) {}

  // Throws UsageError for prompts that cannot be read, FormatError for a vocabulary that does not fit the
  // model, and what opening embeddings throws.
  TokenRows tokenise(const ResolvedRequest& resolved) const;

  // Arena bytes that encoding needs.
  size_t plan(const TokenRows& rows, int clip_skip);
  bool planned(const TokenRows& rows, int clip_skip) const;
  void forget();  // what was planned: the encoders' weights have moved
  uint64_t buffer_bytes() const;
  TextStates encode(const TokenRows& rows, const GenerateRequest& request, Profiler* profiler,
                    const CancelCheck* cancel);

 private:
  // One encoder for one number of rows, which go through it in slices of it.
  struct Encoder {
    Tensor ids, mask, pooled_rows, states, pooled;  // persistent
    Tensor vectors, rows;                           // of embeddings; empty where no prompt has one
    std::unique_ptr<Program> program;
  };
  void prepare(const TokenRows& rows, int clip_skip);
  using Slice = std::span<const PromptChunk>;
  void upload_inputs(const TokenRows& rows, size_t encoder, Slice slice);
  void upload_embeddings(const TokenRows& rows, size_t encoder, Slice slice);
  // Every row through encoder e: its states [rows,tokens,width] and pooled states [rows,projection].
  struct RowStates {
    std::vector<float> states, pooled;
  };
  RowStates run_rows(const TokenRows& rows, size_t encoder, Profiler* profiler, const CancelCheck* cancel);
  bool is_sdxl() const {
    return components_.kind == ModelKind::kSdxl || components_.kind == ModelKind::kSdxlRefiner;
  }

  Components& components_;
  Arena& arena_;
  EmbeddingLibrary& embeddings_;
  std::vector<Encoder> encoders_;
  int64_t prepared_rows_ = 0, prepared_vectors_ = 0;
  int prepared_skip_ = -1;
};

}  // namespace rocm_sd
