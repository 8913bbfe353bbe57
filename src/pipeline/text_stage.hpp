// Tokens to what the UNet reads: the text encoders, prompt weights, SDXL's pooled embedding.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "pipeline/stage.hpp"
#include "pipeline/token_rows.hpp"

namespace rocm_sd {

// A request's prompts, encoded, in device memory; prompt 0 is a negative one where there is one.
struct TextStates {
  Tensor states;  // [prompts,tokens,width] f32
  Tensor pooled;  // [prompts,pooled width] f32; empty for SD 1 and SD 2
};

// All that the states of a request without LoRAs and embeddings depend on, but for the model.
struct TextKey {
  std::vector<std::vector<PromptChunk>> rows;  // these and the next: TokenRows'
  std::vector<int64_t> prompt_chunks;
  int64_t chunks = 0, negatives = 0;
  bool zero_negative = false;
  int clip_skip = 0;
  std::string emphasis;
  DType dtype = DType::kF32;  // that the encoders compute in
  bool operator==(const TextKey&) const = default;
};

// What the programs depend on.
struct TextShape {
  int64_t rows = 1;     // that a program takes at once: requests of more run it several times
  int64_t vectors = 0;  // rows of the table of embeddings
  int clip_skip = 0;
  std::vector<int64_t> tokens;  // of a row, for each encoder
  friend bool operator==(const TextShape&, const TextShape&) = default;
};
TextShape text_shape(const PreparedRequest& r);

class TextStage final : public Stage {
 public:
  // components and arena must outlive the stage. Throws UsageError for a clip_skip of more layers than there
  // are.
  TextStage(Components& components, Arena& arena, TextShape shape);

  const TextShape& shape() const { return shape_; }
  DType dtype() const override { return components_.dtype_of(Part::kText); }
  std::vector<Program*> programs() override;
  uint64_t buffer_bytes() const override;

  // Where a row of an encoder goes.
  struct RowPlace {
    int64_t prompt = 0, chunk = 0;  // of the prompt's own
  };

  // Throws NotFinite.
  TextStates run(const PreparedRequest& r, const RunWatch& watch);

 private:
  // One encoder, for shape_.rows rows.
  struct Encoder {
    const TextEncoder& text;
    Tensor ids, mask, pooled_rows, states, pooled;  // persistent
    Tensor vectors, places;                         // of embeddings; empty where no prompt has one
    std::unique_ptr<Program> program;
  };
  std::unique_ptr<Encoder> make_encoder(const TextEncoder& text, int64_t tokens);
  using Slice = std::span<const PromptChunk>;
  void upload_inputs(const TokenRows& rows, Encoder& encoder, Slice slice);
  void upload_embeddings(const TokenRows& rows, Encoder& encoder, Slice slice);
  void set_strengths(const PreparedRequest& r, const Encoder& encoder, std::span<const RowPlace> places);
  void weigh(Encoder& encoder, Slice slice, Emphasis emphasis);

  Components& components_;
  TextShape shape_;
  std::vector<std::unique_ptr<Encoder>> encoders_;
};

}  // namespace rocm_sd
