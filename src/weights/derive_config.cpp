#include "weights/derive_config.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/format.hpp"
#include "weights/derive_unet.hpp"
#include "weights/name_extent.hpp"

namespace rocm_sd {
namespace {

using nlohmann::json;

// The SD VAE's levels, for a decoder that stands alone: its encoder would say how many there are.
const std::vector<int64_t> kSdVaeChannels = {128, 256, 512, 512};

json derive_vae(const WeightStore& store, const DeriveHints& hints) {
  const bool xl = hints.kind == ModelKind::kSdxl || hints.kind == ModelKind::kSdxlRefiner;
  const bool encodes = has_any(store, "encoder."), decodes = has_any(store, "decoder.");
  const int blocks = std::max(extent(store, "encoder.down_blocks."), extent(store, "decoder.up_blocks."));
  std::vector<int64_t> channels;
  int resnets = 0;
  for (int b = 0; b < blocks && blocks <= 16; ++b) {
    const std::string down = fmt::format("encoder.down_blocks.{}.resnets.", b),
                      up = fmt::format("decoder.up_blocks.{}.resnets.", blocks - 1 - b);
    channels.push_back(dim_of(
        store,
        {down + "0.conv1.weight", up + "0.conv1.weight", down + "0.conv2.weight", up + "0.conv2.weight"}, 0,
        0));
    resnets = std::max({resnets, extent(store, down), extent(store, up) - 1});
  }
  require<FormatError>(
      !channels.empty() && resnets >= 1 && std::find(channels.begin(), channels.end(), 0) == channels.end(),
      store.title(), ": expected 1 to 16 levels of residual blocks, found ", blocks);
  if (!encodes && channels.front() == kSdVaeChannels.front()) channels = kSdVaeChannels;
  const std::vector<std::string> down(channels.size(), "DownEncoderBlock2D"),
      up(channels.size(), "UpDecoderBlock2D");
  // Every VAE of SD 1, 2 and XL has quant_conv, post_quant_conv and attention in the middle; what a file
  // without them is, a config.json says.
  return {{"_class_name", "AutoencoderKL"},
          {"act_fn", "silu"},
          {"block_out_channels", channels},
          {"down_block_types", down},
          {"force_upcast", xl},
          {"in_channels", dim_of(store, {"encoder.conv_in.weight"}, 1, 3)},
          {"latent_channels",
           decodes ? dim_of(store, {"decoder.conv_in.weight", "post_quant_conv.weight"}, 1, 4)
                   : std::max<int64_t>(1, dim_of(store, {"encoder.conv_out.weight"}, 0, 8) / 2)},
          {"layers_per_block", resnets},
          {"norm_num_groups", std::gcd(int64_t{32}, channels.front())},
          {"out_channels", dim_of(store, {"decoder.conv_out.weight"}, 0, 3)},
          {"sample_size", xl                       ? 1024
                          : hints.upcast_attention ? 768
                                                   : 512},
          {"scaling_factor", xl ? 0.13025 : 0.18215},
          {"up_block_types", up}};
}

// Text encoders of the known models run this many layers, so that a last layer that is missing is noticed.
int known_layers(int64_t width, int64_t vocabulary) {
  constexpr int64_t kClipVocabulary = 49408;
  if (vocabulary != kClipVocabulary) return 0;
  return width == 768 ? 12 : width == 1024 ? 23 : width == 1280 ? 32 : 0;
}

json derive_text(const WeightStore& store, const DeriveHints& hints) {
  const std::string head = "text_model.encoder.layers.", layer = head + "0.";
  const int64_t width = text_width(store);
  const int64_t vocabulary = dim_of(store, {"text_model.embeddings.token_embedding.weight"}, 0, 49408);
  const int stored = extent(store, head), known = known_layers(width, vocabulary);
  require<FormatError>(stored >= 1, store.title(), ": tensor \"", layer, "layer_norm1.weight\" is missing");
  const int layers = std::max(hints.drops_last_layer && stored > 1 ? stored - 1 : stored, known);
  const bool projects = store.component() == Component::kTextEncoder2;
  return {
      {"architectures", json::array({projects ? "CLIPTextModelWithProjection" : "CLIPTextModel"})},
      {"bos_token_id", 49406},
      {"eos_token_id", 49407},
      {"hidden_act", hints.quick_gelu ? "quick_gelu" : "gelu"},
      {"hidden_size", width},
      {"intermediate_size", dim_of(store, {layer + "mlp.fc1.weight", layer + "mlp.fc1.bias"}, 0, 4 * width)},
      {"layer_norm_eps", 1e-5},
      {"max_position_embeddings", dim_of(store, {"text_model.embeddings.position_embedding.weight"}, 0, 77)},
      {"model_type", "clip_text_model"},
      {"num_attention_heads", std::max<int64_t>(1, width / 64)},
      {"num_hidden_layers", layers},
      {"pad_token_id", 1},
      {"projection_dim", dim_of(store, {"text_projection.weight"}, 0, width)},
      {"vocab_size", vocabulary}};
}

// The lists of AutoencoderTiny: residual blocks between two convolutions of changing size, whatever of a
// block is there. In the decoder the first convolution has an activation behind it, and an upsampler stands
// before each other but the last; these count as layers and have no tensors.
std::vector<int64_t> tiny_stages(const WeightStore& store, const std::string& half) {
  const std::string head = half + ".layers.";
  const bool decoder = half == "decoder";
  const int layers = extent(store, head);
  std::vector<int64_t> stages;
  int begin = decoder ? 2 : 1;
  for (int n = begin; n < layers && layers <= 200; ++n) {
    const bool conv = store.has(fmt::format("{}{}.weight", head, n)) || n + 1 == layers;
    if (!conv) continue;
    const int blocks = n - begin - (decoder && n + 1 < layers ? 1 : 0);
    stages.push_back(std::max(0, blocks));
    begin = n + 1;
  }
  return stages;
}

json derive_tiny_vae(const WeightStore& store) {
  json config = {{"_class_name", "AutoencoderTiny"},
                 {"act_fn", "relu"},
                 {"in_channels", 3},
                 {"out_channels", 3},
                 {"latent_channels", 4},
                 {"latent_magnitude", 3},
                 {"latent_shift", 0.5},
                 {"scaling_factor", 1.0},
                 {"force_upcast", false},
                 {"shift_factor", 0.0},
                 {"upsample_fn", "nearest"},
                 {"upsampling_scaling_factor", 2}};
  for (const std::string half : {"decoder", "encoder"}) {
    if (!has_any(store, half + ".layers.")) continue;
    const std::vector<int64_t> stages = tiny_stages(store, half);
    require<FormatError>(!stages.empty(), store.title(), ": no residual block in the ", half);
    const int64_t width = dim_of(store, {half + ".layers.0.weight", half + ".layers.3.conv.0.weight"}, 0, 64);
    config[concat("num_", half, "_blocks")] = stages;
    config[concat(half, "_block_out_channels")] = std::vector<int64_t>(stages.size(), width);
    if (half == "decoder") config["latent_channels"] = dim_of(store, {"decoder.layers.0.weight"}, 1, 4);
  }
  return config;
}

}  // namespace

int64_t text_width(const WeightStore& text) {
  const int64_t width = dim_of(
      text,
      {"text_model.embeddings.token_embedding.weight", "text_model.embeddings.position_embedding.weight"}, 1,
      0);
  require<FormatError>(width > 0, text.title(),
                       ": tensor \"text_model.embeddings.token_embedding.weight\" is missing");
  return width;
}

int64_t cross_attention_width(const WeightStore& unet) {
  for (const auto& [name, weight] : unet.weights())
    if ((name.ends_with(".attn2.to_k.weight") || name.ends_with(".attn2.to_v.weight")) &&
        weight.shape.rank() == 2)
      return weight.shape[1];
  return 0;
}

json derive_config(const WeightStore& store, const DeriveHints& hints) {
  switch (store.component()) {
    case Component::kUnet: return derive_unet(store, hints);
    case Component::kVae: return derive_vae(store, hints);
    case Component::kTextEncoder:
    case Component::kTextEncoder2: return derive_text(store, hints);
    case Component::kTinyVae: return derive_tiny_vae(store);
  }
  throw InternalError("derive_config: unknown component");
}

}  // namespace rocm_sd
