#include "models/clip.hpp"

#include <algorithm>

#include "kernels/attention/attention.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/embed/embed.hpp"
#include "kernels/norm/norm.hpp"
#include "models/low_rank.hpp"

namespace rocm_sd {
namespace {

// x as it is: on the host f32 with weights in 16 bits, too.
template <class Layer>
Tensor multiply(Exec& ex, const Tensor& x, const Layer& layer, const Epilogue& epilogue = {}) {
  return linear_with_terms(ex, x, layer, layer.low_rank.get(), epilogue);
}

}  // namespace

ClipLayer::ClipLayer(const ClipConfig& config)
    : norm1(config.width, config.norm_eps),
      norm2(config.width, config.norm_eps),
      qkv(config.width, {{"q_proj", config.width}, {"k_proj", config.width}, {"v_proj", config.width}}, true),
      out(config.width, config.width),
      fc1(config.width, config.mlp_width),
      fc2(config.mlp_width, config.width) {}

void ClipLayer::visit(Visitor& v) {
  v("layer_norm1", norm1);
  v("self_attn", qkv);
  v("self_attn.out_proj", out);
  v("layer_norm2", norm2);
  v("mlp.fc1", fc1);
  v("mlp.fc2", fc2);
}

Tensor ClipLayer::operator()(Exec& ex, const Tensor& x, const ClipConfig& config, const Tensor* mask) const {
  const int64_t width = config.width;
  Tensor h = layer_norm(ex, x, norm1, norm1.eps);
  h = multiply(ex, h, qkv);  // [B,T,3C]
  h = attention(ex, h.narrow(2, 0, width), h.narrow(2, width, width), h.narrow(2, 2 * width, width),
                {.heads = static_cast<int>(config.heads), .causal = true, .mask = mask});  // [B,T,C]
  const Tensor attended = multiply(ex, h, out, {.residual = &x});
  h = layer_norm(ex, attended, norm2, norm2.eps);
  h = multiply(ex, h, fc1, {.act = config.activation});  // [B,T,mlp]
  return multiply(ex, h, fc2, {.residual = &attended});  // [B,T,C]
}

ClipTextModel::ClipTextModel(const ClipConfig& config)
    : config_(config),
      tokens_(config.vocabulary, config.width),
      positions_(config.positions, config.width),
      layers_(static_cast<size_t>(config.layers), ClipLayer(config)),
      final_norm_(config.width, config.norm_eps) {
  if (config.projection > 0) projection_.emplace(config.width, config.projection, false);
}

ClipTextModel ClipTextModel::load(Device& device, const ClipConfig& config, const ParameterSource& source,
                                  DType compute, DType stored) {
  ClipTextModel model(config);
  model.stored_ = stored;
  model.update(device, source);
  model.dtype_ = compute;
  return model;
}

void ClipTextModel::update(Device& device, const ParameterSource& source, const SlotFilter& only) {
  load_parameters(*this, device, source, stored_, {}, only);
}

void ClipTextModel::visit(Visitor& v) {
  v("text_model.embeddings.token_embedding", tokens_);
  v("text_model.embeddings.position_embedding", positions_);
  v("text_model.encoder.layers", layers_);
  v("text_model.final_layer_norm", final_norm_);
  v("text_projection", projection_);
}

// ids [B,T] -> [B,T,C]. Rows of the vocabulary and the vectors beside them become one table, of which
// positions then pick: an embedding each, with no position and with no vocabulary.
Tensor ClipTextModel::embed(Exec& ex, const Tensor& ids, const ClipArgs& args) const {
  if (!args.vectors) return embed_tokens(ex, ids, tokens_, positions_, dtype_);
  const Tensor &vectors = *args.vectors, &rows = *args.rows;
  const int64_t count = ids.numel(), added = vectors.dim(0);
  require(vectors.shape() == Shape{added, config_.width} && vectors.dtype() == table_dtype() &&
              rows.shape() == ids.shape(),
          "text encoder: expected vectors [E,", config_.width, "] ", table_dtype(), " and rows ", ids.shape(),
          ", got ", vectors.shape(), " ", vectors.dtype(), " and ", rows.shape());
  const EmbeddingWeight no_positions{affine(ex, positions_.table.narrow(0, 0, ids.dim(1)), 0, 0)};  // [T,C]
  const Tensor words = embed_tokens(ex, ids, tokens_, no_positions, table_dtype());                 // [B,T,C]
  const Tensor table = ex.alloc({count + added, config_.width}, table_dtype());
  copy_into(ex, words.reshape({count, config_.width}), table.narrow(0, 0, count));
  copy_into(ex, vectors, table.narrow(0, count, added));
  return embed_tokens(ex, rows, EmbeddingWeight{table}, positions_, dtype_);  // [B,T,C]
}

ClipOutput ClipTextModel::operator()(Exec& ex, const Tensor& ids, const ClipArgs& args) const {
  require(ids.rank() == 2 && ids.dtype() == DType::kI32 && ids.dim(1) <= config_.positions,
          "text encoder: expected ids [B,T<=", config_.positions, "] i32, got ", ids.shape(), " ",
          ids.dtype());
  require<UsageError>(args.skip >= 0 && args.skip < config_.layers, "clip skip: expected 0..",
                      config_.layers - 1, " layers to leave out, got ", args.skip);
  const int64_t state_layers = config_.layers - args.skip;
  const int64_t run_layers = args.pooled_rows ? config_.layers : state_layers;

  ClipOutput out;
  Tensor x = embed(ex, ids, args);  // [B,T,C]
  show(args.tap, "embeddings", x);
  for (int64_t i = 0; i < run_layers; ++i) {
    x = layers_[static_cast<size_t>(i)](ex, x, config_, args.mask);
    show(args.tap, concat("layers.", i), x);
    if (i + 1 == state_layers) out.states = x;
  }
  if (args.final_norm) out.states = layer_norm(ex, out.states, final_norm_, final_norm_.eps);
  if (args.pooled_rows) {
    const EmbeddingWeight states{x.reshape({ids.dim(0) * ids.dim(1), config_.width})};
    const EmbeddingWeight no_position{affine(ex, positions_.table.narrow(0, 0, 1), 0, 0)};  // [1,C]
    // Picking rows is embedding without positions.
    Tensor row = embed_tokens(ex, *args.pooled_rows, states, no_position, dtype_);  // [P,1,C]
    row = layer_norm(ex, row.reshape({row.dim(0), config_.width}), final_norm_, final_norm_.eps);
    out.pooled = projection_ ? multiply(ex, row, *projection_) : row;  // [P,projection]
  }
  return out;
}

std::vector<int32_t> pooled_rows(const ClipConfig& config, std::span<const int32_t> ids, int64_t tokens) {
  require<UsageError>(tokens > 0 && static_cast<int64_t>(ids.size()) % tokens == 0,
                      "pooled_rows: expected rows of ", tokens, " ids, got ", ids.size(), " ids");
  std::vector<int32_t> rows;
  for (size_t begin = 0; begin < ids.size(); begin += static_cast<size_t>(tokens)) {
    const auto row = ids.subspan(begin, static_cast<size_t>(tokens));
    auto found = config.eos_token_id == 2 ? std::max_element(row.begin(), row.end())
                                          : std::find(row.begin(), row.end(), config.eos_token_id);
    if (found == row.end()) found = row.begin();
    rows.push_back(static_cast<int32_t>(begin + static_cast<size_t>(found - row.begin())));
  }
  return rows;
}

void check_ids(const ClipConfig& config, std::span<const int32_t> ids) {
  for (const int32_t id : ids)
    require<UsageError>(id >= 0 && id < config.vocabulary, "text encoder: expected token ids 0..",
                        config.vocabulary - 1, ", got ", id);
}

}  // namespace rocm_sd
