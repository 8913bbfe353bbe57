#include "weights/ldm_export.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "weights/name_map.hpp"

namespace rocm_sd {
namespace {

struct Rename {
  std::string_view from, to;
};

constexpr Rename kUnetTop[] = {
    {"time_embedding.linear_1.", "time_embed.0."},
    {"time_embedding.linear_2.", "time_embed.2."},
    {"add_embedding.linear_1.", "label_emb.0.0."},
    {"add_embedding.linear_2.", "label_emb.0.2."},
    {"conv_in.", "input_blocks.0.0."},
    {"conv_norm_out.", "out.0."},
    {"conv_out.", "out.2."},
};
constexpr Rename kUnetResnet[] = {
    {"norm1.", "in_layers.0."},  {"conv1.", "in_layers.2."},  {"time_emb_proj.", "emb_layers.1."},
    {"norm2.", "out_layers.0."}, {"conv2.", "out_layers.3."}, {"conv_shortcut.", "skip_connection."},
};
constexpr Rename kVaeAttention[] = {
    {"group_norm.", "norm."}, {"to_q.", "q."}, {"to_k.", "k."}, {"to_v.", "v."}, {"to_out.0.", "proj_out."}};
constexpr Rename kOpenClipTop[] = {
    {"text_model.embeddings.token_embedding.weight", "token_embedding.weight"},
    {"text_model.embeddings.position_embedding.weight", "positional_embedding"},
    {"text_model.final_layer_norm.weight", "ln_final.weight"},
    {"text_model.final_layer_norm.bias", "ln_final.bias"},
    {"text_projection.weight", "text_projection"},
};
constexpr Rename kOpenClipLayer[] = {
    {"layer_norm1.", "ln_1."},
    {"layer_norm2.", "ln_2."},
    {"mlp.fc1.", "mlp.c_fc."},
    {"mlp.fc2.", "mlp.c_proj."},
    {"self_attn.out_proj.", "attn.out_proj."},
};

std::optional<std::string> renamed(std::string_view name, std::span<const Rename> rows,
                                   std::string_view head) {
  for (const Rename& row : rows)
    if (name.starts_with(row.from)) return fmt::format("{}{}{}", head, row.to, name.substr(row.from.size()));
  return std::nullopt;
}

int count(const LdmUnetExport::Has& has, const std::string& head, std::string_view tail) {
  int n = 0;
  while (n < 1000 && has(fmt::format("{}{}{}", head, n, tail))) ++n;
  return n;
}

// "<list>.3.rest" -> {3, rest} for one of a block's lists.
std::optional<Numbered> entry(std::string_view rest, std::string_view list) { return numbered(rest, list); }

std::string vae_resnet(std::string_view rest, const std::string& head) {
  constexpr std::string_view kShortcut = "conv_shortcut.";
  if (rest.starts_with(kShortcut))
    return head + ".nin_shortcut." + std::string(rest.substr(kShortcut.size()));
  return head + '.' + std::string(rest);
}

}  // namespace

LdmUnetExport::LdmUnetExport(const WeightStore& unet)
    : LdmUnetExport([&](const std::string& name) { return unet.has(name); }) {}

LdmUnetExport::LdmUnetExport(const Has& has) {
  int down_blocks = 1, up_blocks = 0;  // input block 0 is the first convolution
  for (int b = 0; has(fmt::format("down_blocks.{}.resnets.0.conv1.weight", b)); ++b) {
    const std::string block = fmt::format("down_blocks.{}.", b);
    const int resnets = count(has, block + "resnets.", ".conv1.weight");
    down_.push_back({down_blocks, resnets, has(block + "attentions.0.norm.weight")});
    down_blocks += resnets + 1;  // and the downsampler
  }
  for (int b = 0; has(fmt::format("up_blocks.{}.resnets.0.conv1.weight", b)); ++b) {
    const std::string block = fmt::format("up_blocks.{}.", b);
    const int resnets = count(has, block + "resnets.", ".conv1.weight");
    up_.push_back({up_blocks, resnets, has(block + "attentions.0.norm.weight")});
    up_blocks += resnets;
  }
  middle_attention_ = has("mid_block.attentions.0.norm.weight");
}

std::optional<std::string> LdmUnetExport::ldm_name(std::string_view name) const {
  if (auto top = renamed(name, kUnetTop, "")) return top;
  if (name.starts_with("mid_block.")) {
    const std::string_view rest = name.substr(10);
    const int step = middle_attention_ ? 2 : 1;
    if (const auto resnet = entry(rest, "resnets."))
      return renamed(resnet->rest, kUnetResnet, fmt::format("middle_block.{}.", resnet->number * step));
    if (const auto attention = entry(rest, "attentions."))
      return fmt::format("middle_block.{}.{}", attention->number * 2 + 1, attention->rest);
    return std::nullopt;
  }
  const bool down = name.starts_with("down_blocks.");
  const auto block = numbered(name, down ? "down_blocks." : "up_blocks.");
  const std::vector<Level>& levels = down ? down_ : up_;
  if (!block || static_cast<size_t>(block->number) >= levels.size()) return std::nullopt;
  const Level& level = levels[static_cast<size_t>(block->number)];
  const std::string_view list = down ? "input_blocks" : "output_blocks";
  if (const auto resnet = entry(block->rest, "resnets."))
    return renamed(resnet->rest, kUnetResnet, fmt::format("{}.{}.0.", list, level.first + resnet->number));
  if (const auto attention = entry(block->rest, "attentions."))
    return fmt::format("{}.{}.1.{}", list, level.first + attention->number, attention->rest);
  constexpr std::string_view kDown = "downsamplers.0.conv.", kUp = "upsamplers.0.conv.";
  if (down && block->rest.starts_with(kDown))
    return fmt::format("{}.{}.0.op.{}", list, level.first + level.resnets, block->rest.substr(kDown.size()));
  if (!down && block->rest.starts_with(kUp))
    return fmt::format("{}.{}.{}.conv.{}", list, level.first + level.resnets - 1, level.attention ? 2 : 1,
                       block->rest.substr(kUp.size()));
  return std::nullopt;
}

std::optional<std::string> ldm_vae_name(std::string_view name, int levels) {
  if (name.starts_with("quant_conv.") || name.starts_with("post_quant_conv.")) return std::string(name);
  const bool decoder = name.starts_with("decoder.");
  if (!decoder && !name.starts_with("encoder.")) return std::nullopt;
  const std::string half = decoder ? "decoder." : "encoder.";
  const std::string_view rest = name.substr(half.size());
  if (rest.starts_with("conv_in.") || rest.starts_with("conv_out.")) return std::string(name);
  if (rest.starts_with("conv_norm_out.")) return half + std::string(rest.substr(5));
  constexpr std::string_view kAttention = "mid_block.attentions.0.";
  if (rest.starts_with(kAttention))
    return renamed(rest.substr(kAttention.size()), kVaeAttention, half + "mid.attn_1.");
  if (const auto resnet = numbered(rest, "mid_block.resnets."))
    return vae_resnet(resnet->rest, fmt::format("{}mid.block_{}", half, resnet->number + 1));
  const auto block = numbered(rest, decoder ? "up_blocks." : "down_blocks.");
  if (!block || (decoder && block->number >= levels)) return std::nullopt;
  const std::string level = fmt::format("{}{}.{}", half, decoder ? "up" : "down",
                                        decoder ? levels - 1 - block->number : block->number);
  if (const auto resnet = entry(block->rest, "resnets."))
    return vae_resnet(resnet->rest, fmt::format("{}.block.{}", level, resnet->number));
  constexpr std::string_view kDown = "downsamplers.0.conv.", kUp = "upsamplers.0.conv.";
  if (!decoder && block->rest.starts_with(kDown))
    return fmt::format("{}.downsample.conv.{}", level, block->rest.substr(kDown.size()));
  if (decoder && block->rest.starts_with(kUp))
    return fmt::format("{}.upsample.conv.{}", level, block->rest.substr(kUp.size()));
  return std::nullopt;
}

std::optional<std::string> open_clip_name(std::string_view canonical) {
  if (auto top = renamed(canonical, kOpenClipTop, "")) return top;
  const auto layer = numbered(canonical, "text_model.encoder.layers.");
  if (!layer) return std::nullopt;
  const std::string head = fmt::format("transformer.resblocks.{}.", layer->number);
  for (const std::string_view part : {"self_attn.q_proj.", "self_attn.k_proj.", "self_attn.v_proj."})
    if (layer->rest.starts_with(part))
      return fmt::format("{}attn.in_proj_{}", head, layer->rest.substr(part.size()));
  return renamed(layer->rest, kOpenClipLayer, head);
}

std::vector<OpenClipTensor> open_clip_tensors(const WeightStore& text) {
  std::vector<OpenClipTensor> out;
  for (const auto& [name, weight] : text.weights()) {
    const bool projection = name == "text_projection.weight";
    if (const auto top = renamed(name, kOpenClipTop, "")) {
      out.push_back({*top, {name}, projection});
      continue;
    }
    const auto layer = numbered(name, "text_model.encoder.layers.");
    if (!layer) continue;
    const std::string head = fmt::format("transformer.resblocks.{}.", layer->number);
    constexpr std::string_view kQuery = "self_attn.q_proj.";
    if (layer->rest.starts_with(kQuery)) {
      const std::string stem = name.substr(0, name.size() - layer->rest.size()) + "self_attn.";
      const std::string leaf(layer->rest.substr(kQuery.size()));
      out.push_back({head + "attn.in_proj_" + leaf,
                     {stem + "q_proj." + leaf, stem + "k_proj." + leaf, stem + "v_proj." + leaf},
                     false});
    } else if (const auto moved = renamed(layer->rest, kOpenClipLayer, head)) {
      out.push_back({*moved, {name}, false});
    }
  }
  return out;
}

}  // namespace rocm_sd
