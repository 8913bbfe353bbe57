#include "weights/derive_config.hpp"

#include <nlohmann/json.hpp>
#include <numeric>

#include "base/format.hpp"
#include "weights/name_map.hpp"

namespace rocm_sd {
namespace {

using nlohmann::json;

int64_t dim(const WeightStore& store, std::string_view name, int axis) {
  const Shape& shape = store.shape(name);
  require<FormatError>(axis < shape.rank() && shape[axis] > 0, store.title(), ": tensor \"", printable(name),
                       "\" has the unusable shape ", shape);
  return shape[axis];
}

// How many of "<head>0<tail>", "<head>1<tail>", ... are there, without a gap.
int count(const WeightStore& store, std::string_view head, std::string_view tail) {
  int n = 0;
  while (n < 1000 && store.has(fmt::format("{}{}{}", head, n, tail))) ++n;
  return n;
}

// One number where all are the same, else the list: as the configs on the hub have it.
json uniform(const std::vector<int64_t>& values) {
  for (const int64_t value : values)
    if (value != values.front()) return values;
  return values.front();
}

struct UnetLevel {
  int64_t channels = 0;
  int resnets = 0;
  int transformers = 0;  // transformer layers in each attention; 0: no attention
};

int transformer_layers(const WeightStore& store, std::string_view attention) {
  return count(store, concat(attention, ".transformer_blocks."), ".norm1.weight");
}

std::vector<UnetLevel> unet_levels(const WeightStore& store) {
  std::vector<UnetLevel> levels;
  const int blocks = count(store, "down_blocks.", ".resnets.0.conv1.weight");
  require<FormatError>(blocks >= 1 && blocks <= 16, store.title(), ": expected 1 to 16 down blocks, found ",
                       blocks);
  for (int b = 0; b < blocks; ++b) {
    const std::string block = fmt::format("down_blocks.{}", b);
    UnetLevel level;
    level.channels = dim(store, block + ".resnets.0.conv1.weight", 0);
    level.resnets = count(store, block + ".resnets.", ".conv1.weight");
    level.transformers = transformer_layers(store, block + ".attentions.0");
    levels.push_back(level);
  }
  return levels;
}

json heads_of(const std::vector<UnetLevel>& levels, ModelKind kind) {
  if (kind == ModelKind::kSd1) return 8;
  std::vector<int64_t> heads;
  for (const UnetLevel& level : levels) heads.push_back(std::max<int64_t>(1, level.channels / 64));
  return heads;
}

// Depth of the up blocks, listed as reverse_transformer_layers_per_block where it is not the down blocks'
// mirrored.
void add_up_blocks(const WeightStore& store, const std::vector<UnetLevel>& levels, json& config) {
  const int blocks = static_cast<int>(levels.size());
  std::vector<std::string> types;
  json depths = json::array();
  bool mirrored = true;
  for (int b = 0; b < blocks; ++b) {
    const int depth = transformer_layers(store, fmt::format("up_blocks.{}.attentions.0", b));
    types.push_back(depth > 0 ? "CrossAttnUpBlock2D" : "UpBlock2D");
    // SSD-1B and Vega differ from one attention of an up block to the next.
    std::vector<int64_t> each;
    const int attentions = count(store, fmt::format("up_blocks.{}.attentions.", b), ".norm.weight");
    for (int a = 0; a < attentions; ++a)
      each.push_back(transformer_layers(store, fmt::format("up_blocks.{}.attentions.{}", b, a)));
    const json entry = each.empty() ? json(1) : uniform(each);
    mirrored &= entry == json(std::max(1, levels[static_cast<size_t>(blocks - 1 - b)].transformers));
    depths.push_back(entry);
  }
  config["up_block_types"] = types;
  if (!mirrored) config["reverse_transformer_layers_per_block"] = depths;
}

// Depth of the down blocks, per attention where those differ.
json down_depths(const WeightStore& store, const std::vector<UnetLevel>& levels) {
  json depths = json::array();
  bool same = true;
  for (size_t b = 0; b < levels.size(); ++b) {
    std::vector<int64_t> each;
    for (int a = 0; levels[b].transformers > 0 && a < levels[b].resnets; ++a)
      each.push_back(transformer_layers(store, fmt::format("down_blocks.{}.attentions.{}", b, a)));
    depths.push_back(each.empty() ? json(1) : uniform(each));
    same &= depths.back() == depths.front();
  }
  // The middle takes its depth from the last entry, so a last block without attention carries the middle's.
  const int middle = transformer_layers(store, "mid_block.attentions.0");
  if (levels.back().transformers == 0 && middle > 0) depths.back() = middle;
  same = true;
  for (const json& depth : depths) same &= depth == depths.front();
  return same ? depths.front() : depths;
}

json derive_unet(const WeightStore& store, const DeriveHints& hints) {
  const std::vector<UnetLevel> levels = unet_levels(store);
  std::vector<int64_t> channels, resnets;
  std::vector<std::string> down;
  for (const UnetLevel& level : levels) {
    channels.push_back(level.channels);
    resnets.push_back(level.resnets);
    down.push_back(level.transformers > 0 ? "CrossAttnDownBlock2D" : "DownBlock2D");
  }
  const int64_t sizes[] = {64, hints.upcast_attention ? 96 : 64, 128, 128};
  json config = {{"_class_name", "UNet2DConditionModel"},
                 {"act_fn", "silu"},
                 {"attention_head_dim", heads_of(levels, hints.kind)},
                 {"block_out_channels", channels},
                 {"center_input_sample", false},
                 {"down_block_types", down},
                 {"downsample_padding", 1},
                 {"flip_sin_to_cos", true},
                 {"freq_shift", 0},
                 {"in_channels", dim(store, "conv_in.weight", 1)},
                 {"layers_per_block", uniform(resnets)},
                 {"mid_block_scale_factor", 1},
                 {"norm_eps", 1e-5},
                 {"norm_num_groups", std::gcd(int64_t{32}, channels.front())},
                 {"out_channels", dim(store, "conv_out.weight", 0)},
                 {"sample_size", sizes[static_cast<int>(hints.kind)]},
                 {"transformer_layers_per_block", down_depths(store, levels)}};
  add_up_blocks(store, levels, config);
  if (const int64_t width = cross_attention_width(store)) config["cross_attention_dim"] = width;
  if (!store.has("mid_block.resnets.0.conv1.weight"))
    config["mid_block_type"] = nullptr;
  else if (!store.has("mid_block.attentions.0.norm.weight"))
    config["mid_block_type"] = "UNetMidBlock2D";
  for (const auto& [name, weight] : store.weights())
    if (name.ends_with(".proj_in.weight")) {
      config["use_linear_projection"] = weight.shape.rank() == 2;
      break;
    }
  if (hints.upcast_attention) config["upcast_attention"] = true;
  if (store.has("add_embedding.linear_1.weight")) {
    const int64_t inputs = dim(store, "add_embedding.linear_1.weight", 1);
    const int64_t numbers =
        hints.kind == ModelKind::kSdxlRefiner ? 5 : 6;  // sizes and crops, or sizes and a score
    const int64_t rest = inputs - hints.pooled_width;
    const bool divides = hints.pooled_width > 0 && rest > 0 && rest % numbers == 0;
    config["addition_embed_type"] = "text_time";
    config["addition_time_embed_dim"] = divides ? rest / numbers : 256;
    config["projection_class_embeddings_input_dim"] = inputs;
  }
  return config;
}

json derive_vae(const WeightStore& store, const DeriveHints& hints) {
  const bool xl = hints.kind == ModelKind::kSdxl || hints.kind == ModelKind::kSdxlRefiner;
  std::vector<int64_t> channels;
  int resnets = 0;
  if (store.has("encoder.conv_in.weight")) {
    const int blocks = count(store, "encoder.down_blocks.", ".resnets.0.conv1.weight");
    for (int b = 0; b < blocks; ++b)
      channels.push_back(dim(store, fmt::format("encoder.down_blocks.{}.resnets.0.conv1.weight", b), 0));
    resnets = count(store, "encoder.down_blocks.0.resnets.", ".conv1.weight");
  } else {
    const int blocks = count(store, "decoder.up_blocks.", ".resnets.0.conv1.weight");
    for (int b = blocks - 1; b >= 0; --b)
      channels.push_back(dim(store, fmt::format("decoder.up_blocks.{}.resnets.0.conv1.weight", b), 0));
    resnets = count(store, "decoder.up_blocks.0.resnets.", ".conv1.weight") - 1;
  }
  require<FormatError>(!channels.empty() && channels.size() <= 16 && resnets >= 1, store.title(),
                       ": expected 1 to 16 levels of residual blocks, found ", channels.size());
  const bool decodes = store.has("decoder.conv_in.weight");
  const std::vector<std::string> down(channels.size(), "DownEncoderBlock2D"),
      up(channels.size(), "UpDecoderBlock2D");
  json config = {{"_class_name", "AutoencoderKL"},
                 {"act_fn", "silu"},
                 {"block_out_channels", channels},
                 {"down_block_types", down},
                 {"force_upcast", xl},
                 {"in_channels", decodes ? dim(store, "decoder.conv_out.weight", 0) : 3},
                 {"latent_channels", decodes ? dim(store, "decoder.conv_in.weight", 1)
                                             : dim(store, "encoder.conv_out.weight", 0) / 2},
                 {"layers_per_block", resnets},
                 {"norm_num_groups", std::gcd(int64_t{32}, channels.front())},
                 {"out_channels", decodes ? dim(store, "decoder.conv_out.weight", 0) : 3},
                 {"sample_size", xl                       ? 1024
                                 : hints.upcast_attention ? 768
                                                          : 512},
                 {"scaling_factor", xl ? 0.13025 : 0.18215},
                 {"up_block_types", up}};
  const std::string mid = decodes ? "decoder" : "encoder";
  if (!store.has(mid + ".mid_block.attentions.0.to_q.weight")) config["mid_block_add_attention"] = false;
  if (!store.has("quant_conv.weight") && store.has("encoder.conv_in.weight"))
    config["use_quant_conv"] = false;
  if (!store.has("post_quant_conv.weight") && decodes) config["use_post_quant_conv"] = false;
  return config;
}

json derive_text(const WeightStore& store, const DeriveHints& hints) {
  const std::string layer = "text_model.encoder.layers.0.";
  const int64_t width = dim(store, "text_model.embeddings.token_embedding.weight", 1);
  const int stored = count(store, "text_model.encoder.layers.", ".layer_norm1.weight");
  require<FormatError>(stored >= 1, store.title(), ": tensor \"", layer, "layer_norm1.weight\" is missing");
  const bool projects = store.component() == Component::kTextEncoder2;
  const int64_t projection =
      projects || store.has("text_projection.weight") ? dim(store, "text_projection.weight", 0) : width;
  return {{"architectures", json::array({projects ? "CLIPTextModelWithProjection" : "CLIPTextModel"})},
          {"bos_token_id", 49406},
          {"eos_token_id", 49407},
          {"hidden_act", hints.quick_gelu ? "quick_gelu" : "gelu"},
          {"hidden_size", width},
          {"intermediate_size", dim(store, layer + "mlp.fc1.weight", 0)},
          {"layer_norm_eps", 1e-5},
          {"max_position_embeddings", dim(store, "text_model.embeddings.position_embedding.weight", 0)},
          {"model_type", "clip_text_model"},
          {"num_attention_heads", std::max<int64_t>(1, width / 64)},
          {"num_hidden_layers", hints.drops_last_layer && stored > 1 ? stored - 1 : stored},
          {"pad_token_id", 1},
          {"projection_dim", projection},
          {"vocab_size", dim(store, "text_model.embeddings.token_embedding.weight", 0)}};
}

// The lists of AutoencoderTiny: residual blocks between two convolutions of changing size. `numbers` are the
// layers that have ".conv.0.weight"; a gap ends a stage.
std::vector<int64_t> tiny_stages(const WeightStore& store, std::string_view half) {
  std::vector<int64_t> stages;
  int previous = -1, run = 0;
  for (int n = 0; n < 200; ++n) {
    if (!store.has(fmt::format("{}.layers.{}.conv.0.weight", half, n))) continue;
    if (run > 0 && n != previous + 1) stages.push_back(std::exchange(run, 0));
    ++run;
    previous = n;
  }
  if (run > 0) stages.push_back(run);
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
  if (store.has("decoder.layers.0.weight")) {
    const std::vector<int64_t> stages = tiny_stages(store, "decoder");
    require<FormatError>(!stages.empty(), store.title(), ": no residual block in the decoder");
    config["num_decoder_blocks"] = stages;
    config["decoder_block_out_channels"] =
        std::vector<int64_t>(stages.size(), dim(store, "decoder.layers.0.weight", 0));
    config["latent_channels"] = dim(store, "decoder.layers.0.weight", 1);
  }
  if (store.has("encoder.layers.0.weight")) {
    const std::vector<int64_t> stages = tiny_stages(store, "encoder");
    require<FormatError>(!stages.empty(), store.title(), ": no residual block in the encoder");
    config["num_encoder_blocks"] = stages;
    config["encoder_block_out_channels"] =
        std::vector<int64_t>(stages.size(), dim(store, "encoder.layers.0.weight", 0));
  }
  return config;
}

}  // namespace

int64_t cross_attention_width(const WeightStore& unet) {
  for (const auto& [name, weight] : unet.weights())
    if (name.ends_with(".attn2.to_k.weight") && weight.shape.rank() == 2) return weight.shape[1];
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
