// Names of AutoencoderKL in CompVis single files (ldm/modules/diffusionmodules/model.py) and older Diffusers
// files, and of TAESD's numbered layers.
#include "base/format.hpp"
#include "weights/name_map.hpp"

namespace rocm_sd {
namespace {

struct Rename {
  std::string_view from, to;
};

constexpr Rename kLdmAttention[] = {
    {"norm.", "group_norm."}, {"q.", "to_q."}, {"k.", "to_k."}, {"v.", "to_v."}, {"proj_out.", "to_out.0."}};
constexpr Rename kOldAttention[] = {
    {"query.", "to_q."}, {"key.", "to_k."}, {"value.", "to_v."}, {"proj_attn.", "to_out.0."}};

std::optional<std::string> renamed(std::string_view rest, std::span<const Rename> rows, std::string_view to) {
  for (const Rename& row : rows)
    if (rest.starts_with(row.from)) return fmt::format("{}.{}{}", to, row.to, rest.substr(row.from.size()));
  return std::nullopt;
}

std::string resnet(std::string_view rest, std::string_view to) {
  constexpr std::string_view kShortcut = "nin_shortcut.";
  if (rest.starts_with(kShortcut))
    return fmt::format("{}.conv_shortcut.{}", to, rest.substr(kShortcut.size()));
  return fmt::format("{}.{}", to, rest);
}

// One half ("encoder" or "decoder"), name without "encoder.".
std::optional<std::string> half_name(std::string_view half, std::string_view name, int decoder_levels) {
  if (name.starts_with("conv_in.") || name.starts_with("conv_out.")) return fmt::format("{}.{}", half, name);
  if (name.starts_with("norm_out.")) return fmt::format("{}.conv_{}", half, name);
  if (name.starts_with("mid.attn_1."))
    return renamed(name.substr(11), kLdmAttention, concat(half, ".mid_block.attentions.0"));
  if (const auto block = numbered(name, "mid.block_"); block && block->number >= 1)
    return resnet(block->rest, fmt::format("{}.mid_block.resnets.{}", half, block->number - 1));
  const bool decoder = half == "decoder";
  const auto level = numbered(name, decoder ? "up." : "down.");
  if (!level) return std::nullopt;
  const int number = decoder ? decoder_levels - 1 - level->number : level->number;
  const std::string to = fmt::format("{}.{}.{}", half, decoder ? "up_blocks" : "down_blocks", number);
  if (const auto block = numbered(level->rest, "block."))
    return resnet(block->rest, fmt::format("{}.resnets.{}", to, block->number));
  constexpr std::string_view kUp = "upsample.conv.", kDown = "downsample.conv.";
  if (decoder && level->rest.starts_with(kUp))
    return fmt::format("{}.upsamplers.0.conv.{}", to, level->rest.substr(kUp.size()));
  if (!decoder && level->rest.starts_with(kDown))
    return fmt::format("{}.downsamplers.0.conv.{}", to, level->rest.substr(kDown.size()));
  return std::nullopt;
}

}  // namespace

LdmVaeNames::LdmVaeNames(std::span<const NamedTensor> tensors) {
  // Both halves have the same levels: the encoder's count where the decoder's coarsest is missing.
  for (const NamedTensor& tensor : tensors)
    for (const std::string_view list : {"decoder.up.", "encoder.down."})
      if (const auto level = numbered(tensor.name, list))
        decoder_levels_ = std::max(decoder_levels_, level->number + 1);
}

std::optional<std::string> LdmVaeNames::canonical(std::string_view name) const {
  if (name.starts_with("quant_conv.") || name.starts_with("post_quant_conv.")) return std::string(name);
  for (const std::string_view half : {"encoder", "decoder"})
    if (name.starts_with(half) && name.substr(half.size()).starts_with('.'))
      return half_name(half, name.substr(half.size() + 1), decoder_levels_);
  return std::nullopt;
}

std::optional<std::string> diffusers_vae_name(std::string_view name) {
  constexpr std::string_view kAttention = ".mid_block.attentions.";
  const size_t at = name.find(kAttention);
  if (at != name.npos)
    if (const auto attention = numbered(name.substr(at), kAttention))
      if (auto moved = renamed(attention->rest, kOldAttention,
                               name.substr(0, name.size() - attention->rest.size() - 1)))
        return moved;
  for (const std::string_view head : {"encoder.", "decoder.", "quant_conv.", "post_quant_conv."})
    if (name.starts_with(head)) return std::string(name);
  return std::nullopt;
}

std::optional<std::string> sequential_tiny_vae_name(std::string_view name, bool decoder) {
  const std::string_view half = decoder ? "decoder" : "encoder";
  if (name.starts_with(concat(half, "."))) name.remove_prefix(half.size() + 1);
  const auto layer = numbered(name, "");
  if (!layer || layer->rest.empty()) return std::nullopt;
  // The original decoder begins with a clamp that Diffusers left out of the list.
  const int number = layer->number - (decoder ? 1 : 0);
  if (number < 0) return std::nullopt;
  return fmt::format("{}.layers.{}.{}", half, number, layer->rest);
}

}  // namespace rocm_sd
