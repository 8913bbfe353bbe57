#include "pipeline/text_stage.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.hpp"
#include "kernels/elementwise/elementwise.hpp"

namespace rocm_sd {
namespace {

template <class T>
void upload_ints(Device& device, const Tensor& tensor, const std::vector<T>& values) {
  device.copy_to_device(tensor.data(), values.data(), values.size() * sizeof(T));
}

void upload_zeros(Device& device, const Tensor& tensor) {
  const std::vector<float> zeros(static_cast<size_t>(tensor.numel()));
  upload(device, tensor, zeros.data(), tensor.numel());
}

using RowPlace = TextStage::RowPlace;

std::vector<RowPlace> row_places(const TokenRows& rows) {
  std::vector<RowPlace> out;
  for (int64_t p = 0; p < rows.prompts; ++p)
    for (int64_t c = 0; c < rows.prompt_chunks[static_cast<size_t>(p)]; ++c) out.push_back({p, c});
  return out;
}

}  // namespace

TextShape text_shape(const PreparedRequest& r) {
  constexpr int64_t kMaxRows = 64, kVectorStep = 16;  // few programs serve many prompts
  TextShape shape{.rows = std::min(r.rows.count(), kMaxRows),
                  .vectors = (r.rows.vectors + kVectorStep - 1) / kVectorStep * kVectorStep,
                  .clip_skip = r.request.clip_skip,
                  .tokens = {}};
  for (const auto& rows : r.rows.rows) shape.tokens.push_back(static_cast<int64_t>(rows.front().ids.size()));
  return shape;
}

TextStage::TextStage(Components& components, Arena& arena, TextShape shape)
    : Stage(Part::kText, arena), components_(components), shape_(std::move(shape)) {
  for (size_t e = 0; e < components_.text.size(); ++e)
    encoders_.push_back(make_encoder(components_.text[e], shape_.tokens[e]));
}

std::unique_ptr<TextStage::Encoder> TextStage::make_encoder(const TextEncoder& text, int64_t tokens) {
  const ClipConfig& config = text.model.config();
  const int64_t rows = shape_.rows;
  auto out = std::make_unique<Encoder>(Encoder{.text = text,
                                               .ids = make_tensor(device(), {rows, tokens}, DType::kI32),
                                               .mask = {},
                                               .pooled_rows = {},
                                               .states = {},
                                               .pooled = {},
                                               .vectors = {},
                                               .places = {},
                                               .program = {}});
  Encoder& encoder = *out;
  encoder.states = make_tensor(device(), {rows, tokens, config.width}, DType::kF32);
  if (text.masks_padding) encoder.mask = make_tensor(device(), {rows, 1, 1, tokens}, DType::kF32);
  if (text.pooled) {
    encoder.pooled_rows = make_tensor(device(), {rows, 1}, DType::kI32);
    encoder.pooled =
        make_tensor(device(), {rows, config.projection > 0 ? config.projection : config.width}, DType::kF32);
  }
  if (shape_.vectors > 0) {
    encoder.vectors = make_tensor(device(), {shape_.vectors, config.width}, text.model.table_dtype());
    encoder.places = make_tensor(device(), {rows, tokens}, DType::kI32);
  }
  const int asked = shape_.clip_skip;
  const int skip = asked > 0 ? std::max(asked - 1, text.native_skip) : text.native_skip;
  require<UsageError>(skip < config.layers, "clip-skip: ", asked, ", the text encoder has ", config.layers,
                      " layers");
  encoder.program = std::make_unique<Program>(
      "text encoder " + std::to_string(encoders_.size() + 1), arena(), [&encoder, skip](Exec& ex) {
        const TextEncoder& text = encoder.text;
        const ClipOutput out = text.model(ex, encoder.ids,
                                          {.skip = skip,
                                           .final_norm = text.final_norm,
                                           .pooled_rows = text.pooled ? &encoder.pooled_rows : nullptr,
                                           .mask = encoder.mask ? &encoder.mask : nullptr,
                                           .vectors = encoder.vectors ? &encoder.vectors : nullptr,
                                           .rows = encoder.places ? &encoder.places : nullptr});
        copy_into(ex, out.states, encoder.states);
        if (text.pooled) copy_into(ex, out.pooled, encoder.pooled);
      });
  return out;
}

std::vector<Program*> TextStage::programs() {
  std::vector<Program*> out;
  for (const auto& encoder : encoders_) out.push_back(encoder->program.get());
  return out;
}

uint64_t TextStage::buffer_bytes() const {
  uint64_t bytes = 0;
  for (const auto& e : encoders_)
    bytes += bytes_of({&e->ids, &e->mask, &e->pooled_rows, &e->states, &e->pooled, &e->vectors, &e->places});
  return bytes;
}

// The vectors of the prompts' embeddings, and which places of the rows they take.
void TextStage::upload_embeddings(const TokenRows& rows, Encoder& encoder, Slice slice) {
  if (!encoder.vectors) return;
  const auto width = static_cast<size_t>(encoder.text.model.config().width);
  std::vector<float> table(static_cast<size_t>(encoder.vectors.numel()));
  for (const UsedEmbedding& used : rows.embeddings) {
    const EmbeddingMatrix& matrix =
        used.file->of_encoder(encoder.text.component, static_cast<int64_t>(width), components_.is_sdxl());
    std::copy(matrix.values.begin(), matrix.values.end(),
              table.begin() + static_cast<ptrdiff_t>(used.first * matrix.width));
  }
  upload(device(), encoder.vectors, table.data(), encoder.vectors.numel());
  std::vector<int32_t> places(static_cast<size_t>(encoder.places.numel()));
  std::iota(places.begin(), places.end(), 0);
  const auto tokens = static_cast<size_t>(encoder.places.dim(1));
  for (size_t r = 0; r < slice.size(); ++r)
    for (const InsertedVector& inserted : slice[r].inserted)
      places[r * tokens + static_cast<size_t>(inserted.position)] =
          static_cast<int32_t>(encoder.places.numel() +
                               rows.embeddings[static_cast<size_t>(inserted.name)].first + inserted.vector);
  upload_ints(device(), encoder.places, places);
}

// What the encoder's program reads, from the slice of the rows; what is behind it repeats the last one.
void TextStage::upload_inputs(const TokenRows& rows, Encoder& encoder, Slice slice) {
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
  upload_ints(device(), encoder.ids, ids);
  upload_embeddings(rows, encoder, slice);
  if (encoder.mask) upload(device(), encoder.mask, mask.data(), encoder.mask.numel());
  if (encoder.text.pooled)
    upload_ints(device(), encoder.pooled_rows, pooled_rows(encoder.text.model.config(), ids, tokens));
}

// Rows behind the slice are those of its last one.
void TextStage::set_strengths(const PreparedRequest& r, const Encoder& encoder,
                              std::span<const RowPlace> places) {
  RowStrengths* strengths = components_.row_strengths(encoder.text.component);
  if (!strengths) return;
  std::vector<std::vector<float>> wanted;
  for (size_t row = 0; row < static_cast<size_t>(shape_.rows); ++row) {
    const int64_t prompt = places[std::min(row, places.size() - 1)].prompt;
    wanted.push_back(r.strengths.text[static_cast<size_t>(r.rows.images[static_cast<size_t>(prompt)])]);
  }
  strengths->set(std::move(wanted));
}

// The prompts' weights on the states of a slice, in place. Rows without any are left alone.
void TextStage::weigh(Encoder& encoder, Slice slice, Emphasis emphasis) {
  for (size_t r = 0; r < slice.size(); ++r) {
    const std::vector<float>& weights = slice[r].weights;
    if (std::ranges::all_of(weights, [](float w) { return w == 1.0f; })) continue;
    const Tensor row = encoder.states.narrow(0, static_cast<int64_t>(r), 1);  // [1,tokens,width]
    std::vector<float> states = to_floats(device(), row);
    apply_token_weights(states.data(), row.dim(1), row.dim(2), weights, emphasis);
    upload(device(), row, states.data(), row.numel());
  }
}

TextStates TextStage::run(const PreparedRequest& r, const RunWatch& watch) {
  const TokenRows& rows = r.rows;
  const Emphasis emphasis = emphasis_from_name(r.request.emphasis);
  const int64_t tokens = shape_.tokens.front();  // of a chunk
  int64_t width = 0;
  for (const auto& encoder : encoders_) width += encoder->states.dim(2);
  TextStates out{make_tensor(device(), {rows.prompts, rows.chunks * tokens, width}, DType::kF32), {}};
  const std::vector<RowPlace> places = row_places(rows);
  Exec ex = eager(watch);

  int64_t column = 0;
  for (size_t e = 0; e < encoders_.size(); ++e) {
    Encoder& encoder = *encoders_[e];
    const Slice all = rows.rows[e];
    const int64_t own_width = encoder.states.dim(2);
    if (encoder.pooled)
      out.pooled = make_tensor(device(), {rows.prompts, encoder.pooled.dim(1)}, DType::kF32);
    for (size_t begin = 0; begin < all.size(); begin += static_cast<size_t>(shape_.rows)) {
      const Slice slice = all.subspan(begin, std::min(static_cast<size_t>(shape_.rows), all.size() - begin));
      upload_inputs(rows, encoder, slice);
      set_strengths(r, encoder, std::span(places).subspan(begin, slice.size()));
      encoder.program->run(watch.profiler, watch.cancel);
      weigh(encoder, slice, emphasis);
      for (size_t i = 0; i < slice.size(); ++i) {
        const auto& [prompt, chunk] = places[begin + i];
        const auto row = static_cast<int64_t>(i);
        const Tensor target = out.states.narrow(0, prompt, 1).narrow(2, column, own_width);
        // A prompt of fewer chunks than the longest is repeated.
        const int64_t own = rows.prompt_chunks[static_cast<size_t>(prompt)];
        for (int64_t to = chunk; to < rows.chunks; to += own)
          copy_into(ex, encoder.states.narrow(0, row, 1), target.narrow(1, to * tokens, tokens));
        // Of each prompt's first chunk, as A1111 pools.
        if (encoder.pooled && chunk == 0)
          copy_into(ex, encoder.pooled.narrow(0, row, 1), out.pooled.narrow(0, prompt, 1));
      }
    }
    column += own_width;
  }
  if (rows.zero_negative) {
    upload_zeros(device(), out.states.narrow(0, 0, rows.negatives));
    if (out.pooled) upload_zeros(device(), out.pooled.narrow(0, 0, rows.negatives));
  }
  require_finite(ex, "text encoder", {&out.states, &out.pooled});
  return out;
}

}  // namespace rocm_sd
