#include "weights/name_map.hpp"

#include <functional>

#include "weights/scaled_fp8.hpp"

namespace rocm_sd {
namespace {

// Buffers inside a component that carry no weights.
bool is_harmless_buffer(Component component, std::string_view name) {
  if (component == Component::kTextEncoder || component == Component::kTextEncoder2) {
    for (const std::string_view head : {"vision_model.", "visual.", "visual_projection."})
      if (name.starts_with(head)) return true;
    return name.ends_with("position_ids") || name == "logit_scale" || name == "attn_mask";
  }
  return component == Component::kVae && (name.starts_with("loss.") || name.starts_with("model_ema."));
}

using Mapper = std::function<bool(const NamedTensor&, WeightMap&)>;

Mapper simple(std::function<std::optional<std::string>(std::string_view)> canonical) {
  return [canonical = std::move(canonical)](const NamedTensor& tensor, WeightMap& weights) {
    const std::optional<std::string> name = canonical(tensor.name);
    if (!name) return false;
    const auto [it, is_new] =
        weights.emplace(*name, StoredTensor{.ref = tensor.ref, .shape = tensor.ref.entry->shape});
    require<FormatError>(is_new, printable_path(tensor.ref.file->path()), ": \"",
                         printable(it->second.file_name()), "\" and \"", printable(tensor.ref.entry->name),
                         "\" both claim to be ", *name);
    return true;
  };
}

Mapper mapper_for(Component component, NameStyle style, std::span<const NamedTensor> tensors,
                  std::vector<std::string>& gaps) {
  switch (style) {
    case NameStyle::kLdm:
      if (component == Component::kUnet) {
        LdmUnetNames unet(tensors);
        gaps = unet.gaps();
        return simple([names = std::move(unet)](std::string_view name) { return names.canonical(name); });
      }
      return simple([names = LdmVaeNames(tensors)](std::string_view name) { return names.canonical(name); });
    case NameStyle::kTransformers:
      return [plain = simple(transformers_clip_name)](const NamedTensor& tensor, WeightMap& weights) {
        const Shape& shape = tensor.ref.entry->shape;
        if (tensor.name != "text_model.text_projection" || shape.rank() != 2) return plain(tensor, weights);
        // stable-diffusion.cpp's name of OpenCLIP's matrix, which is [in,out]
        return weights
            .emplace("text_projection.weight",
                     StoredTensor{.ref = tensor.ref, .shape = {shape[1], shape[0]}, .transposed = true})
            .second;
      };
    case NameStyle::kOpenClip: return add_open_clip_weights;
    case NameStyle::kSequentialDecoder:
    case NameStyle::kSequentialEncoder:
      return simple([decoder = style == NameStyle::kSequentialDecoder](std::string_view name) {
        return sequential_tiny_vae_name(name, decoder);
      });
    case NameStyle::kDiffusers: break;
  }
  if (component == Component::kVae) return simple(diffusers_vae_name);
  return simple([](std::string_view name) { return std::optional<std::string>(name); });
}

}  // namespace

std::string_view name_style_name(NameStyle style) {
  switch (style) {
    case NameStyle::kDiffusers: return "diffusers";
    case NameStyle::kLdm: return "ldm";
    case NameStyle::kTransformers: return "transformers";
    case NameStyle::kOpenClip: return "open_clip";
    case NameStyle::kSequentialDecoder: return "taesd decoder";
    case NameStyle::kSequentialEncoder: return "taesd encoder";
  }
  return "?";
}

MappedNames map_names(Component component, NameStyle style, std::span<const NamedTensor> tensors) {
  MappedNames out;
  ScaledFp8 fp8(tensors);
  const Mapper map = mapper_for(component, style, tensors, out.gaps);
  for (const NamedTensor& tensor : tensors) {
    const std::string& file_name = tensor.ref.entry->name;
    if (fp8.take(tensor, out.harmless)) continue;
    if (is_harmless_buffer(component, tensor.name))
      out.harmless.push_back(file_name);
    else if (!map(tensor, out.weights))
      (is_harmless_leftover(file_name) ? out.harmless : out.unexpected).push_back(file_name);
  }
  fp8.attach(out.weights, out.unexpected);
  return out;
}

bool is_harmless_leftover(std::string_view name) {
  constexpr std::string_view kHeads[] = {
      "model_ema.",
      "alphas_cumprod",
      "betas",
      "sqrt_alphas_cumprod",
      "sqrt_one_minus_alphas",
      "sqrt_recip",
      "log_one_minus_",
      "posterior_",
      "denoiser.",
      "embedding_manager.",
      "lvlb_weights",
      "logvar",
      "global_step",
      "scaled_fp8",
      "v_pred",
      "ztsnr",
      "edm_mean",
      "edm_std",
      "edm_vpred.sigma_max",
      "edm_vpred.sigma_min",
      "optimizer_states",
      "lora_te_alpha",
      "loss.",
      "cond_stage_model.logit_scale",
      "scale_factor",
      "first_stage_model.loss.",
  };
  for (const std::string_view head : kHeads)
    if (name.starts_with(head)) return true;
  return name.ends_with(".position_ids") || name.ends_with(".logit_scale") || name.ends_with(".attn_mask") ||
         name.ends_with("scaled_fp8");
}

}  // namespace rocm_sd
