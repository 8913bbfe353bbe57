#include "weights/layout.hpp"

#include <algorithm>
#include <set>

namespace rocm_sd {
namespace {

struct Place {
  Component component;
  std::string_view prefix;
};
// In order of preference per component. The refiner's OpenCLIP encoder is the second one, as in Diffusers.
constexpr Place kPlaces[] = {
    {Component::kUnet, "model.diffusion_model."},
    {Component::kUnet, "diffusion_model."},
    {Component::kUnet, "unet."},
    {Component::kUnet, ""},
    {Component::kVae, "first_stage_model."},
    {Component::kVae, "vae."},
    {Component::kVae, ""},
    {Component::kTextEncoder, "cond_stage_model.transformer."},
    {Component::kTextEncoder, "cond_stage_model.model."},
    {Component::kTextEncoder, "cond_stage_model."},
    {Component::kTextEncoder, "conditioner.embedders.0.transformer."},
    {Component::kTextEncoder, "text_encoder."},
    {Component::kTextEncoder, ""},
    {Component::kTextEncoder2, "conditioner.embedders.1.model."},
    {Component::kTextEncoder2, "conditioner.embedders.0.model."},
    {Component::kTextEncoder2, "conditioner.embedders.1.transformer."},
    {Component::kTextEncoder2, "cond_stage_model.1.transformer."},  // stable-diffusion.cpp's
    {Component::kTextEncoder2, "cond_stage_model.1.model."},
    {Component::kTextEncoder2, "text_encoder_2."},
    {Component::kTextEncoder2, ""},
    {Component::kTinyVae, "decoder."},
    {Component::kTinyVae, "encoder."},
    {Component::kTinyVae, ""},
};

constexpr int64_t kBigGWidth = 1280;

class Finder {
 public:
  explicit Finder(const TensorSet& tensors) : tensors_(tensors) {
    for (const TensorRef& ref : tensors.tensors()) names_.emplace_back(ref.entry->name);
    std::sort(names_.begin(), names_.end());
  }

  // The styles in which the component stands under the prefix.
  std::vector<NameStyle> styles(Component component, std::string_view prefix) const {
    switch (component) {
      case Component::kUnet: return unet(prefix);
      case Component::kVae: return vae(prefix);
      case Component::kTextEncoder:
      case Component::kTextEncoder2: return text(prefix, component == Component::kTextEncoder2);
      case Component::kTinyVae: return tiny_vae(prefix);
    }
    return {};
  }

 private:
  const TensorEntry* find(std::string_view prefix, std::string_view name) const {
    return tensors_.find(concat(prefix, name));
  }
  bool has(std::string_view prefix, std::string_view name) const { return find(prefix, name) != nullptr; }
  bool is_conv(std::string_view prefix, std::string_view name) const {
    const TensorEntry* entry = find(prefix, name);
    return entry != nullptr && entry->shape.rank() == 4;
  }

  // Whether a name begins so.
  bool any(std::string_view prefix, std::string_view name) const {
    const std::string head = concat(prefix, name);
    const auto it = std::lower_bound(names_.begin(), names_.end(), head);
    return it != names_.end() && it->starts_with(head);
  }
  // A part of which one tensor is missing is still that part: one of its marks is enough, beside its blocks.
  bool is_unet(std::string_view p, std::initializer_list<std::string_view> blocks,
               std::initializer_list<std::string_view> marks) const {
    const auto there =
        std::count_if(marks.begin(), marks.end(), [&](std::string_view mark) { return has(p, mark); });
    return there == static_cast<ptrdiff_t>(marks.size()) ||
           (there > 0 &&
            std::all_of(blocks.begin(), blocks.end(), [&](std::string_view head) { return any(p, head); }));
  }
  bool any_of(std::string_view prefix, std::initializer_list<std::string_view> marks) const {
    return std::any_of(marks.begin(), marks.end(), [&](std::string_view mark) { return has(prefix, mark); });
  }

  std::vector<NameStyle> unet(std::string_view p) const {
    // A ControlNet has the first two marks too, but no way up; a motion module has no mark.
    if (is_unet(p, {"input_blocks.", "output_blocks."},
                {"input_blocks.0.0.weight", "time_embed.0.weight", "out.2.weight"}))
      return {NameStyle::kLdm};
    if (is_unet(p, {"down_blocks.", "up_blocks."},
                {"conv_in.weight", "time_embedding.linear_1.weight", "conv_out.weight"}))
      return {NameStyle::kDiffusers};
    return {};
  }
  std::vector<NameStyle> vae(std::string_view p) const {
    for (const auto& [half, list] : {std::pair("decoder.", "up"), std::pair("encoder.", "down")}) {
      const std::string head = concat(p, half);
      if (!any_of(head, {"conv_in.weight", "conv_out.weight", "conv_in.bias"})) continue;
      if (any(head, "mid.block_1.") || any(head, concat(list, "."))) return {NameStyle::kLdm};
      if (any(head, "mid_block.resnets.0.") || any(head, concat(list, "_blocks.")))
        return {NameStyle::kDiffusers};
    }
    return {};
  }
  std::vector<NameStyle> text(std::string_view p, bool second) const {
    // Without a prefix only the width tells SDXL's second encoder from the others.
    const auto in_place = [&](const TensorEntry* table, const TensorEntry* other) {
      if (table == nullptr) table = other;
      const bool wide = table != nullptr && table->shape.rank() == 2 && table->shape[1] == kBigGWidth;
      return !p.empty() || wide == second;
    };
    if (any(p, "transformer.resblocks.") &&
        any_of(p, {"token_embedding.weight", "positional_embedding", "ln_final.weight"}))
      return in_place(find(p, "positional_embedding"), find(p, "token_embedding.weight"))
                 ? std::vector{NameStyle::kOpenClip}
                 : std::vector<NameStyle>{};
    for (const std::string_view head : {"text_model.", ""}) {
      const std::string model = concat(p, head), at = model + "embeddings.";
      if (!any_of(at, {"token_embedding.weight", "position_embedding.weight"}) ||
          !(any(model, "encoder.layers.") || has(at, "token_embedding.weight")))
        continue;
      return in_place(find(at, "position_embedding.weight"), find(at, "token_embedding.weight"))
                 ? std::vector{NameStyle::kTransformers}
                 : std::vector<NameStyle>{};
    }
    return {};
  }
  std::vector<NameStyle> tiny_vae(std::string_view p) const {
    if (p.empty()) {
      if (is_conv("", "decoder.layers.0.weight") || is_conv("", "encoder.layers.0.weight"))
        return {NameStyle::kDiffusers};
      if (is_conv("", "0.weight") && is_conv("", "1.conv.0.weight")) return {NameStyle::kSequentialEncoder};
      if (is_conv("", "1.weight") && is_conv("", "3.conv.0.weight")) return {NameStyle::kSequentialDecoder};
    }
    if (p == "encoder." && is_conv(p, "0.weight") && is_conv(p, "1.conv.0.weight"))
      return {NameStyle::kSequentialEncoder};
    if (p == "decoder." && is_conv(p, "1.weight") && is_conv(p, "3.conv.0.weight"))
      return {NameStyle::kSequentialDecoder};
    return {};
  }

  const TensorSet& tensors_;
  std::vector<std::string_view> names_;  // sorted
};

}  // namespace

std::vector<LayoutPart> find_parts(const TensorSet& tensors, std::vector<std::string>* notes) {
  std::vector<LayoutPart> parts;
  const Finder finder(tensors);
  for (const Place& place : kPlaces) {
    for (const NameStyle style : finder.styles(place.component, place.prefix)) {
      const auto rival = std::find_if(parts.begin(), parts.end(), [&](const LayoutPart& part) {
        return part.component == place.component;
      });
      const bool other_half =
          place.component == Component::kTinyVae && rival != parts.end() && rival->style != style;
      if (rival == parts.end() || other_half) {
        parts.push_back({place.component, style, std::string(place.prefix)});
      } else if (notes != nullptr) {
        notes->push_back(concat(component_name(place.component), ": two candidates in ",
                                printable_path(tensors.path()), ": took \"", rival->prefix, "\", left \"",
                                place.prefix, "\""));
      }
    }
  }
  return parts;
}

std::vector<NamedTensor> tensors_of(const TensorSet& tensors, const LayoutPart& part,
                                    std::span<const LayoutPart> all) {
  const auto in_other = [&](std::string_view name) {
    return std::any_of(all.begin(), all.end(), [&](const LayoutPart& other) {
      return !other.prefix.empty() && other.prefix != part.prefix && name.starts_with(other.prefix);
    });
  };
  std::vector<NamedTensor> out;
  for (const TensorRef& ref : tensors.tensors()) {
    const std::string_view name = ref.entry->name;
    if (!name.starts_with(part.prefix) || (part.prefix.empty() && in_other(name))) continue;
    out.push_back({name.substr(part.prefix.size()), ref});
  }
  return out;
}

std::string describe_foreign(const TensorSet& tensors) {
  struct Mark {
    std::string_view piece, says;
  };
  constexpr Mark kMarks[] = {
      {"lora_down.weight", "a LoRA"},
      {"lora_A.weight", "a LoRA"},
      {"lora.down.weight", "a LoRA"},
      {"hada_w1_a", "a LyCORIS (LoHa)"},
      {"lokr_w1", "a LyCORIS (LoKr)"},
      {"joint_blocks.0.", "a Stable Diffusion 3 checkpoint"},
      {"double_blocks.0.", "a FLUX or similar transformer checkpoint"},
      {"double_layers.0.", "an AuraFlow checkpoint"},
      {"control_model.", "a ControlNet"},
      {"controlnet_cond_embedding.", "a ControlNet"},
      {"clip_txt_mapper.", "a Stable Cascade checkpoint"},
      {"motion_modules.", "an AnimateDiff motion module"},
      {"image_proj.", "an IP-Adapter"},
      {"emb_params", "a textual inversion embedding"},
      {"string_to_param", "a textual inversion embedding"},
      {"encoder.block.0.layer.0.SelfAttention", "a T5 text encoder"},
      {"RRDB", "an upscaler (ESRGAN)"},
      {"body.0.rdb1.", "an upscaler (ESRGAN)"},
      {"block_1.c1_r.", "an upscaler (SPAN)"},
      {"residual_group.blocks.", "an upscaler (SwinIR)"},
      {"mmdit", "a transformer diffusion checkpoint"},
  };
  for (const Mark& mark : kMarks)
    for (const TensorRef& ref : tensors.tensors())
      if (ref.entry->name.find(mark.piece) != std::string::npos) return std::string(mark.says);
  if (tensors.find("clip_l") || tensors.find("clip_g")) return "a textual inversion embedding";
  return {};
}

void sort_leftovers(const TensorSet& tensors, std::span<const LayoutPart> parts, KeyReport& report) {
  for (const TensorRef& ref : tensors.tensors()) {
    const std::string& name = ref.entry->name;
    const bool taken = std::any_of(parts.begin(), parts.end(),
                                   [&](const LayoutPart& part) { return name.starts_with(part.prefix); });
    if (!taken) (is_harmless_leftover(name) ? report.harmless : report.unexpected).push_back(name);
  }
}

}  // namespace rocm_sd
