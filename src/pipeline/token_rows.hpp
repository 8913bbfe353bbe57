// Prompts as tokens: what the text encoders are to encode.
#pragma once

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "pipeline/embeddings.hpp"
#include "pipeline/request.hpp"

namespace rocm_sd {

// What is to be encoded: the rows of every encoder.
struct TokenRows {
  int64_t prompts = 0;
  int64_t chunks = 0;                  // of the states that the UNet reads: a multiple of each prompt's own
  std::vector<int64_t> prompt_chunks;  // [prompts]: its own, the same for every encoder
  std::vector<std::vector<PromptChunk>> rows;  // per encoder: [count()], a prompt's chunks together
  bool zero_negative = false;                  // SDXL base: no negative prompt counts as zeros
  std::vector<int64_t> images;                 // [prompts]: the image whose LoRAs a prompt is read with
  int64_t negatives = 0;                       // the first so many prompts are negative ones
  std::vector<std::vector<int64_t>> calls;     // PromptTexts::calls, of prompts
  std::vector<UsedEmbedding> embeddings;       // that the prompts name: InsertedVector::name counts them
  int64_t vectors = 0;                         // rows of the table of all their vectors
  std::vector<std::string> warnings;           // each once

  // Which prompt each condition, or each image of each condition, reads at a call of the UNet.
  const std::vector<int64_t>& prompts_at(size_t call) const {
    return calls[std::min(call, calls.size() - 1)];
  }
  int64_t count() const { return std::accumulate(prompt_chunks.begin(), prompt_chunks.end(), int64_t{0}); }
};

// Throws UsageError for prompts that cannot be read, FormatError for a vocabulary that does not fit the
// model, and what opening embeddings throws.
TokenRows tokenise(const ResolvedRequest& resolved, const Components& components, EmbeddingLibrary& library);

class SharedUnet;

// A request whose prompts are tokens: all that the stages work from.
struct PreparedRequest : ResolvedRequest {
  TokenRows rows;
  AdapterStrengths strengths = {};
  SharedUnet* shared = nullptr;  // of a request that others may join; null: it is drawn alone
};

}  // namespace rocm_sd
