// Names of CLIP text encoders: transformers' CLIPTextModel, and OpenCLIP's with packed attention projections.
#include "base/format.hpp"
#include "weights/name_map.hpp"

namespace rocm_sd {
namespace {

struct Rename {
  std::string_view from, to;
};
constexpr Rename kOpenClipTop[] = {
    {"token_embedding.weight", "text_model.embeddings.token_embedding.weight"},
    {"positional_embedding", "text_model.embeddings.position_embedding.weight"},
    {"ln_final.weight", "text_model.final_layer_norm.weight"},
    {"ln_final.bias", "text_model.final_layer_norm.bias"},
    {"text_projection.weight", "text_projection.weight"},
};
constexpr Rename kOpenClipLayer[] = {
    {"ln_1.", "layer_norm1."},
    {"ln_2.", "layer_norm2."},
    {"mlp.c_fc.", "mlp.fc1."},
    {"mlp.c_proj.", "mlp.fc2."},
    {"attn.out_proj.", "self_attn.out_proj."},
};

StoredTensor whole(const TensorRef& ref) { return {.ref = ref, .shape = ref.entry->shape}; }

}  // namespace

std::optional<std::string> transformers_clip_name(std::string_view name) {
  if (name == "text_projection.weight" || name.starts_with("text_model.")) return std::string(name);
  for (const std::string_view head : {"embeddings.", "encoder.", "final_layer_norm."})
    if (name.starts_with(head)) return concat("text_model.", name);
  return std::nullopt;
}

bool add_open_clip_weights(const NamedTensor& tensor, WeightMap& weights) {
  const auto put = [&](std::string name, const StoredTensor& weight) {
    const bool is_new = weights.emplace(std::move(name), weight).second;
    require<FormatError>(is_new, "two tensors for one place: \"", printable(tensor.ref.entry->name), "\"");
  };
  const Shape& shape = tensor.ref.entry->shape;
  for (const Rename& row : kOpenClipTop)
    if (tensor.name == row.from) return put(std::string(row.to), whole(tensor.ref)), true;
  if (tensor.name == "text_projection" && shape.rank() == 2) {  // x @ P in OpenCLIP, so [in,out]
    put("text_projection.weight", {.ref = tensor.ref, .shape = {shape[1], shape[0]}, .transposed = true});
    return true;
  }
  const auto layer = numbered(tensor.name, "transformer.resblocks.");
  if (!layer) return false;
  const std::string to = fmt::format("text_model.encoder.layers.{}.", layer->number);
  for (const Rename& row : kOpenClipLayer)
    if (layer->rest.starts_with(row.from))
      return put(fmt::format("{}{}{}", to, row.to, layer->rest.substr(row.from.size())), whole(tensor.ref)),
             true;
  const bool is_weight = layer->rest == "attn.in_proj_weight", is_bias = layer->rest == "attn.in_proj_bias";
  if ((!is_weight && !is_bias) || shape.rank() != (is_weight ? 2 : 1)) return false;
  require<FormatError>(shape[0] % 3 == 0, "tensor \"", printable(tensor.ref.entry->name), "\" of shape ",
                       shape, " should hold q, k and v, but its rows do not divide by three");
  constexpr std::string_view kParts[] = {"q_proj", "k_proj", "v_proj"};
  for (int part = 0; part < 3; ++part) {
    StoredTensor weight = whole(tensor.ref);
    weight.shape[0] = shape[0] / 3;
    weight.row_begin = part * weight.shape[0];
    put(fmt::format("{}self_attn.{}.{}", to, kParts[part], is_weight ? "weight" : "bias"), weight);
  }
  return true;
}

}  // namespace rocm_sd
