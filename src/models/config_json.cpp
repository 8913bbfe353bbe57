// Config rows from the JSON of Diffusers and transformers. Field names and defaults are those of
// UNet2DConditionModel, AutoencoderKL, AutoencoderTiny and CLIPTextConfig.
#include "models/config_fields.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "models/configs.hpp"

namespace rocm_sd {
namespace {

constexpr int64_t kMaxChannels = 16384, kMaxResnets = 16, kMaxTransformers = 64, kMaxWidth = 65536;
constexpr int64_t kMaxTransformersInAll = 1024;  // SDXL has 70; more would only cost memory before an error
constexpr int64_t kMaxTextLayers = 128;
constexpr size_t kMaxBlocks = 8;
const std::string kDown = "DownBlock2D", kCrossDown = "CrossAttnDownBlock2D";
const std::string kUp = "UpBlock2D", kCrossUp = "CrossAttnUpBlock2D";
const std::string kMid = "UNetMidBlock2D", kCrossMid = "UNetMidBlock2DCrossAttn";

// transformer_layers_per_block[i], or its reversed form: one number for every resnet of the block, or a list
// with one number per resnet.
std::vector<int> transformer_layers(ConfigFields& f, const std::string& field, const nlohmann::json& value,
                                    int resnets) {
  const std::string expected = concat("an integer 1..", kMaxTransformers, ", or a list of ", resnets);
  const auto one = [&](const nlohmann::json& item) {
    if (!item.is_number_integer() || item < 1 || item > kMaxTransformers) f.fail(field, expected, value);
    return item.get<int>();
  };
  if (!value.is_array()) return std::vector<int>(static_cast<size_t>(resnets), one(value));
  // A list may be longer than the block's resnets; Diffusers reads its beginning.
  if (value.size() < static_cast<size_t>(resnets) || value.size() > 64) f.fail(field, expected, value);
  std::vector<int> out;
  for (int i = 0; i < resnets; ++i) out.push_back(one(value[static_cast<size_t>(i)]));
  return out;
}

// The list of transformer_layers_per_block, one item per block.
std::vector<nlohmann::json> per_block(ConfigFields& f, const std::string& field, const nlohmann::json* value,
                                      size_t blocks) {
  if (!value) return std::vector<nlohmann::json>(blocks, 1);
  if (!value->is_array()) return std::vector<nlohmann::json>(blocks, *value);
  if (value->size() != blocks) f.fail(field, concat("an integer or a list of ", blocks), *value);
  return {value->begin(), value->end()};
}

bool crosses(ConfigFields& f, const std::string& field, std::string type, const std::string& plain,
             const std::string& cross) {
  if (type.starts_with("UNetRes")) type = type.substr(7);  // a prefix of old configs
  if (type != plain && type != cross)
    f.fail(field, concat(plain, " or ", cross, " (nothing else is implemented)"), type);
  return type == cross;
}

// Everything that is given once per resolution, finest first.
struct Resolutions {
  std::vector<int64_t> channels, resnets, heads, context;
  std::vector<bool> only_cross;
  std::vector<nlohmann::json> transformers, reversed;
};

Resolutions read_resolutions(ConfigFields& f) {
  Resolutions r;
  r.channels = f.integers("block_out_channels", {320, 640, 1280, 1280}, 1, kMaxChannels);
  const size_t count = r.channels.size();
  f.check(count <= kMaxBlocks, "block_out_channels", "expected at most ", kMaxBlocks, " blocks, got ", count);
  r.resnets = f.integer_each("layers_per_block", 2, 1, kMaxResnets, count);
  r.context = f.integer_each("cross_attention_dim", 1280, 1, kMaxWidth, count);
  r.only_cross = f.boolean_each("only_cross_attention", false, count);
  // In these configs attention_head_dim is the number of heads, unless num_attention_heads says otherwise.
  const char* heads = f.find("num_attention_heads") ? "num_attention_heads" : "attention_head_dim";
  f.find("attention_head_dim");
  r.heads = f.integer_each(heads, 8, 1, kMaxChannels, count);
  r.transformers =
      per_block(f, "transformer_layers_per_block", f.find("transformer_layers_per_block"), count);
  const nlohmann::json* reversed = f.find("reverse_transformer_layers_per_block");
  if (reversed)
    r.reversed = per_block(f, "reverse_transformer_layers_per_block", reversed, count);
  else
    r.reversed = {r.transformers.rbegin(), r.transformers.rend()};
  return r;
}

void check_heads(ConfigFields& f, int64_t channels, int64_t heads) {
  f.check(channels % heads == 0, "attention_head_dim", "expected a number of heads that divides ", channels,
          " channels, got ", heads);
}

void read_blocks(ConfigFields& f, UNetConfig& config) {
  const Resolutions r = read_resolutions(f);
  const size_t count = r.channels.size();
  const auto down = f.texts("down_block_types", {kCrossDown, kCrossDown, kCrossDown, kDown});
  const auto up = f.texts("up_block_types", {kUp, kCrossUp, kCrossUp, kCrossUp});
  f.check(down.size() == count, "down_block_types", "expected ", count, " (as block_out_channels), got ",
          down.size());
  f.check(up.size() == count, "up_block_types", "expected ", count, " (as block_out_channels), got ",
          up.size());
  for (const int64_t channels : r.channels)
    f.check(channels % config.norm_groups == 0, "block_out_channels",
            "expected multiples of norm_num_groups (", config.norm_groups, "), got ", channels);
  int64_t transformers = 0;
  for (size_t step = 0; step < 2 * count; ++step) {
    const bool going_up = step >= count;
    const size_t i = going_up ? 2 * count - 1 - step : step;  // resolution
    const size_t position = going_up ? step - count : step;   // in the lists of types
    UNetBlockConfig block{.channels = r.channels[i],
                          .resnets = static_cast<int>(r.resnets[i]) + (going_up ? 1 : 0),
                          .heads = r.heads[i],
                          .context_width = r.context[i],
                          .only_cross_attention = r.only_cross[i],
                          .resamples = position + 1 < count};
    const bool attends = going_up ? crosses(f, "up_block_types", up[position], kUp, kCrossUp)
                                  : crosses(f, "down_block_types", down[position], kDown, kCrossDown);
    if (attends) {
      check_heads(f, block.channels, block.heads);
      const char* field = going_up ? "reverse_transformer_layers_per_block" : "transformer_layers_per_block";
      block.transformer_layers =
          transformer_layers(f, field, (going_up ? r.reversed : r.transformers)[position], block.resnets);
    }
    for (const int layers : block.transformer_layers) transformers += layers;
    (going_up ? config.up : config.down).push_back(std::move(block));
  }
  f.check(transformers <= kMaxTransformersInAll, "transformer_layers_per_block", "expected at most ",
          kMaxTransformersInAll, " transformer blocks in all, got ", transformers);
  // The key set to null means no middle block; an absent key the usual one.
  const nlohmann::json* type = f.find("mid_block_type");
  if (!type && f.is_null("mid_block_type")) return;
  const std::string mid = type ? f.text("mid_block_type", "") : kCrossMid;
  config.mid = UNetMidConfig{{}, r.heads.back(), r.context.back()};
  if (!crosses(f, "mid_block_type", mid, kMid, kCrossMid)) return;
  check_heads(f, r.channels.back(), r.heads.back());
  config.mid->transformer_layers =
      transformer_layers(f, "transformer_layers_per_block", r.transformers.back(), 1);
}

void read_time(ConfigFields& f, UNetConfig& config) {
  const int64_t first = config.down.front().channels;
  config.time_width = f.integer("time_embedding_dim", 4 * first, 1, kMaxWidth);
  config.timestep.flip_sin_to_cos = f.boolean("flip_sin_to_cos", true);
  config.timestep.downscale_freq_shift = static_cast<float>(f.number("freq_shift", 0, 0, 1));
  f.check(first / 2 > config.timestep.downscale_freq_shift, "freq_shift", "expected less than half of ",
          first, " channels");
  config.time_cond_width = f.integer("time_cond_proj_dim", 0, 1, kMaxWidth);
  const std::string added = f.text("addition_embed_type", "");
  if (added.empty()) {
    // Set in some configs without a use for it.
    f.ignore({"addition_time_embed_dim", "projection_class_embeddings_input_dim"});
    return;
  }
  f.only("addition_embed_type", "text_time");
  config.added_time_width = f.integer("addition_time_embed_dim", 0, 2, kMaxWidth);
  config.added_width = f.integer("projection_class_embeddings_input_dim", 0, 1, kMaxWidth);
  f.check(config.added_time_width > 0, "addition_time_embed_dim", "expected an integer, got nothing");
  f.check(config.added_time_width / 2 > config.timestep.downscale_freq_shift, "addition_time_embed_dim",
          "expected more than twice freq_shift, got ", config.added_time_width);
  f.check(config.added_width > config.added_time_width, "projection_class_embeddings_input_dim",
          "expected more than addition_time_embed_dim (", config.added_time_width, "), got ",
          config.added_width);
}

// Options of UNet2DConditionModel that other families use.
void refuse_unet_options(ConfigFields& f) {
  for (const char* field : {"encoder_hid_dim", "encoder_hid_dim_type", "class_embed_type", "num_class_embeds",
                            "time_embedding_act_fn", "timestep_post_act", "cross_attention_norm"})
    f.only(field, nullptr);
  for (const char* field : {"dual_cross_attention", "resnet_skip_time_act", "class_embeddings_concat"})
    f.only(field, false);
  f.only("downsample_padding", 1);
  f.only("mid_block_scale_factor", 1);
  f.only("resnet_out_scale_factor", 1);
  f.only("resnet_time_scale_shift", "default");
  f.only("time_embedding_type", "positional");
  f.only("attention_type", "default");
  // Attention is computed in float throughout (upcast_attention); the rest is training's, or belongs to
  // blocks that are refused above.
  f.ignore({"sample_size", "dropout", "upcast_attention", "mid_block_only_cross_attention",
            "addition_embed_type_num_heads"});
}

void require_silu(ConfigFields& f) {
  const std::string act = f.text("act_fn", "silu");
  if (act != "swish") f.only("act_fn", "silu");
}

std::vector<int> as_ints(const std::vector<int64_t>& values) { return {values.begin(), values.end()}; }

}  // namespace

UNetConfig unet_config(const nlohmann::json& json, std::string_view what) {
  ConfigFields f(json, what);
  f.require_class({"UNet2DConditionModel"});
  UNetConfig config;
  config.in_channels = f.integer("in_channels", 4, 1, kMaxChannels);
  config.out_channels = f.integer("out_channels", 4, 1, kMaxChannels);
  config.center_input = f.boolean("center_input_sample", false);
  f.check(!f.is_null("norm_num_groups"), "norm_num_groups",
          "expected an integer, got null (a UNet without norms)");
  config.norm_groups = f.integer("norm_num_groups", 32, 1, kMaxChannels);
  config.norm_eps = static_cast<float>(f.number("norm_eps", 1e-5, 0, 1));
  config.conv_in_kernel = static_cast<int>(f.integer("conv_in_kernel", 3, 1, 15));
  config.conv_out_kernel = static_cast<int>(f.integer("conv_out_kernel", 3, 1, 15));
  f.check(config.conv_in_kernel % 2 == 1, "conv_in_kernel", "expected an odd size, got ",
          config.conv_in_kernel);
  f.check(config.conv_out_kernel % 2 == 1, "conv_out_kernel", "expected an odd size, got ",
          config.conv_out_kernel);
  f.boolean("use_linear_projection", false);  // a 1x1 convolution and a linear layer are the same product
  require_silu(f);
  read_blocks(f, config);
  read_time(f, config);
  refuse_unet_options(f);
  f.refuse_others();
  return config;
}

VaeConfig vae_config(const nlohmann::json& json, std::string_view what) {
  ConfigFields f(json, what);
  f.require_class({"AutoencoderKL"});
  VaeConfig config;
  config.image_channels = f.integer("in_channels", 3, 3, 3);
  f.integer("out_channels", 3, 3, 3);
  config.latent_channels = f.integer("latent_channels", 4, 1, 256);
  config.channels = f.integers("block_out_channels", {64}, 1, kMaxChannels);
  const size_t count = config.channels.size();
  f.check(count <= kMaxBlocks, "block_out_channels", "expected at most ", kMaxBlocks, " blocks, got ", count);
  config.resnets = static_cast<int>(f.integer("layers_per_block", 1, 1, kMaxResnets));
  config.norm_groups = f.integer("norm_num_groups", 32, 1, kMaxChannels);
  for (const int64_t channels : config.channels)
    f.check(channels % config.norm_groups == 0, "block_out_channels",
            "expected multiples of norm_num_groups (", config.norm_groups, "), got ", channels);
  for (const auto& [field, type] : {std::pair{"down_block_types", "DownEncoderBlock2D"},
                                    std::pair{"up_block_types", "UpDecoderBlock2D"}}) {
    const auto types = f.texts(field, {type});
    f.check(types.size() == count, field, "expected ", count, " (as block_out_channels), got ", types.size());
    for (const std::string& got : types)
      if (got != type) f.fail(field, concat(type, " (nothing else is implemented)"), got);
  }
  require_silu(f);
  config.quant_conv = f.boolean("use_quant_conv", true);
  config.post_quant_conv = f.boolean("use_post_quant_conv", true);
  config.mid_attention = f.boolean("mid_block_add_attention", true);
  config.scaling_factor = f.number("scaling_factor", 0.18215, 1e-6, 1e6);
  config.shift_factor = f.number("shift_factor", 0, -1e6, 1e6);
  config.force_upcast = f.boolean("force_upcast", true);
  const auto channels = static_cast<size_t>(config.latent_channels);
  config.latents_mean = f.numbers("latents_mean", channels, -1e6, 1e6);
  config.latents_std = f.numbers("latents_std", channels, 1e-6, 1e6);
  f.ignore({"sample_size"});
  f.refuse_others();
  return config;
}

TaesdConfig taesd_config(const nlohmann::json& json, std::string_view what) {
  ConfigFields f(json, what);
  f.require_class({"AutoencoderTiny"});
  TaesdConfig config;
  config.image_channels = f.integer("in_channels", 3, 3, 3);
  f.integer("out_channels", 3, 3, 3);
  config.latent_channels = f.integer("latent_channels", 4, 1, 256);
  const auto half = [&](const std::string& side, std::vector<int64_t>& channels, std::vector<int>& blocks) {
    const std::string widths = side + "_block_out_channels", counts = "num_" + side + "_blocks";
    channels = f.integers(widths, channels, 1, kMaxChannels);
    f.check(channels.size() <= kMaxBlocks, widths, "expected at most ", kMaxBlocks, " blocks, got ",
            channels.size());
    for (const int64_t width : channels)
      f.check(width == channels.front(), widths, "expected one width for all, got ",
              fmt::format("{}", fmt::join(channels, ", ")));
    blocks = as_ints(f.integers(counts, {blocks.begin(), blocks.end()}, 0, kMaxResnets, channels.size()));
  };
  half("encoder", config.encoder_channels, config.encoder_blocks);
  half("decoder", config.decoder_channels, config.decoder_blocks);
  config.scaling_factor = f.number("scaling_factor", 1, 1e-6, 1e6);
  config.shift_factor = f.number("shift_factor", 0, -1e6, 1e6);
  f.only("act_fn", "relu");
  f.only("upsample_fn", "nearest");
  f.only("upsampling_scaling_factor", 2);
  // The clamp of the decoder's input is 3 in Diffusers whatever latent_magnitude says; the shift serves its
  // 8-bit form.
  f.ignore({"latent_magnitude", "latent_shift", "force_upcast", "block_out_channels"});
  f.refuse_others();
  return config;
}

ClipConfig clip_config(const nlohmann::json& json, std::string_view what) {
  ConfigFields f(json, what);
  f.require_class({"CLIPTextModel", "CLIPTextModelWithProjection"});
  ClipConfig config;
  config.vocabulary = f.integer("vocab_size", 49408, 1, 1 << 24);
  config.width = f.integer("hidden_size", 512, 1, kMaxChannels);
  config.mlp_width = f.integer("intermediate_size", 2048, 1, kMaxWidth);
  config.layers = f.integer("num_hidden_layers", 12, 1, kMaxTextLayers);
  config.heads = f.integer("num_attention_heads", 8, 1, kMaxChannels);
  f.check(config.width % config.heads == 0, "num_attention_heads",
          "expected a number that divides hidden_size (", config.width, "), got ", config.heads);
  config.positions = f.integer("max_position_embeddings", 77, 1, kMaxWidth);
  config.norm_eps = static_cast<float>(f.number("layer_norm_eps", 1e-5, 0, 1));
  config.eos_token_id = f.integer("eos_token_id", 49407, 0, INT32_MAX);
  config.use_attention_mask = f.boolean("use_attention_mask", false);
  const std::string act = f.text("hidden_act", "quick_gelu");
  if (act != "quick_gelu" && act != "gelu") f.fail("hidden_act", "quick_gelu or gelu", act);
  config.activation = act == "gelu" ? Activation::kGelu : Activation::kQuickGelu;
  const int64_t projection = f.integer("projection_dim", 512, 1, kMaxWidth);
  const nlohmann::json* architectures = f.find("architectures");
  if (architectures && architectures->front() == "CLIPTextModelWithProjection")
    config.projection = projection;
  // transformers writes many generic fields that no text model reads; they are not looked at.
  return config;
}

}  // namespace rocm_sd
