#include "server/comfy_evaluate.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/text.hpp"

namespace rocm_sd::server {
namespace {

using nlohmann::json;
using Values = std::vector<ComfyValue>;

uint32_t big_endian(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

}  // namespace

bool has_alpha(std::string_view file) {
  constexpr size_t kFirstChunk = 8, kColourType = 25, kWebpFlags = 20;
  if (file.starts_with("RIFF"))
    return file.size() > kWebpFlags &&
           (file.substr(12, 4) == "VP8L" || (file.substr(12, 4) == "VP8X" && (file[kWebpFlags] & 0x10) != 0));
  if (!file.starts_with("\x89PNG") || file.size() <= kColourType) return false;
  if ((file[kColourType] & 4) != 0) return true;
  for (size_t at = kFirstChunk; at + 12 <= file.size(); at += size_t{12} + big_endian(file.substr(at, 4))) {
    if (file.substr(at + 4, 4) == "tRNS") return true;
    if (file.substr(at + 4, 4) == "IDAT") return false;
  }
  return false;
}

const ComfyValue& ComfyEvaluator::value(const ComfyLink& link) {
  auto found = values_.find(link.node);
  if (found == values_.end())
    found = values_.emplace(link.node, outputs_of(graph_.nodes.at(link.node))).first;
  return found->second.at(link.slot);
}

Values ComfyEvaluator::outputs_of(const ComfyNode& node) {
  const std::string& category = node.kind->category;
  if (category == "sampling") return {ComfyLatent{.node = node.id, .sampler = node.id}};
  if (category == "loaders") return loader(node);
  if (category == "model_patches/unet") return patched(node);
  if (category == "conditioning/controlnet") return control(node);
  if (category.starts_with("latent")) return latent(node);
  if (category.starts_with("image") || category == "mask") return image(node);
  return condition(node);
}

Values ComfyEvaluator::loader(const ComfyNode& node) {
  const std::string& kind = node.kind->name;
  if (kind == "CheckpointLoaderSimple") {
    const std::string name = node.text("ckpt_name");
    return {ComfyModel{name, {}, {}}, ComfyClip{name, {}, 0}, ComfyVae{name}};
  }
  if (kind == "UpscaleModelLoader") return {ComfyUpscaler{node.text("model_name")}};
  if (kind == "ControlNetLoader") return {ComfyControlNet{node.text("control_net_name")}};
  auto model = input<ComfyModel>(node, "model");
  model.loras.push_back({node.id, node.text("lora_name"), node.number("strength_model")});
  if (kind == "LoraLoaderModelOnly") return {std::move(model)};
  auto clip = input<ComfyClip>(node, "clip");
  clip.loras.push_back({node.id, node.text("lora_name"), node.number("strength_clip")});
  return {std::move(model), std::move(clip)};
}

Values ComfyEvaluator::patched(const ComfyNode& node) {
  auto model = input<ComfyModel>(node, "model");
  if (node.kind->name == "PerturbedAttentionGuidance") {
    model.options.emplace_back("pag-scale", fmt::format("{}", node.number("scale")));
  } else {
    model.options.emplace_back(node.kind->name == "FreeU" ? "freeu" : "freeu-v2",
                               fmt::format("{},{},{},{}", node.number("b1"), node.number("b2"),
                                           node.number("s1"), node.number("s2")));
  }
  return {std::move(model)};
}

Values ComfyEvaluator::condition(const ComfyNode& node) {
  auto clip = input<ComfyClip>(node, "clip");
  if (node.kind->name == "CLIPSetLastLayer") {
    clip.skip = -node.integer("stop_at_clip_layer");
    return {std::move(clip)};
  }
  ComfyCondition out{.node = node.id, .clip = std::move(clip)};
  if (node.kind->name == "CLIPTextEncode") {
    out.text = node.text("text");
    return {std::move(out)};
  }
  out.text = node.text("text_l");
  out.text_2 = node.text("text_g");
  out.sizes = {
      {"original-width", node.integer("width")},      {"original-height", node.integer("height")},
      {"crop-left", node.integer("crop_w")},          {"crop-top", node.integer("crop_h")},
      {"target-width", node.integer("target_width")}, {"target-height", node.integer("target_height")}};
  return {std::move(out)};
}

Values ComfyEvaluator::control(const ComfyNode& node) {
  auto net = input<ComfyControlNet>(node, "control_net");
  if (node.kind->name == "SetUnionControlNetType") {
    const std::string type = node.text("type");
    net.type = type == "auto"                               ? "none"
               : type == "hed/pidi/scribble/ted"            ? "softedge"
               : type == "canny/lineart/anime_lineart/mlsd" ? "canny"
               : type == "repaint"                          ? "inpaint"
                                                            : type;
    return {std::move(net)};
  }
  const bool advanced = node.kind->name == "ControlNetApplyAdvanced";
  ComfyControl control{.node = node.id,
                       .net = std::move(net),
                       .image = input<ComfyImage>(node, "image"),
                       .strength = node.number("strength")};
  if (control.image.file == nullptr || !control.image.upscaler.empty())
    graph_.refuse(node.id, "image",
                  "expected a picture of LoadImage: images that are drawn first are not supported");
  if (!advanced) {
    auto condition = input<ComfyCondition>(node, "conditioning");
    if (control.strength != 0) condition.controls.push_back(std::move(control));
    return {std::move(condition)};
  }
  control.start = node.number("start_percent");
  control.end = node.number("end_percent");
  control.both = false;  // it is on the negative prompt, too, where that goes through the node
  auto positive = input<ComfyCondition>(node, "positive"), negative = input<ComfyCondition>(node, "negative");
  if (control.strength != 0) {
    positive.controls.push_back(control);
    negative.controls.push_back(std::move(control));
  }
  return {std::move(positive), std::move(negative)};
}

Values ComfyEvaluator::latent(const ComfyNode& node) {
  const std::string& kind = node.kind->name;
  if (kind == "EmptyLatentImage")
    return {ComfyLatent{.node = node.id,
                        .width = node.integer("width") / 8 * 8,  // of whole latents
                        .height = node.integer("height") / 8 * 8,
                        .batch = node.integer("batch_size")}};
  if (kind == "VAEEncode") {
    auto pixels = input<ComfyImage>(node, "pixels");
    if (!pixels.is_loaded()) graph_.refuse(node.id, "pixels", "expected a picture of LoadImage as it is");
    return {ComfyLatent{
        .node = node.id, .image = std::move(pixels), .vae = input<ComfyVae>(node, "vae").checkpoint}};
  }
  auto samples = input<ComfyLatent>(node, "samples");
  if (kind == "VAEDecode") {
    if (samples.sampler.empty()) graph_.refuse(node.id, "samples", "expected the latents of a KSampler");
    return {ComfyImage{.sampler = samples.sampler, .vae = input<ComfyVae>(node, "vae").checkpoint}};
  }
  if (!samples.sampler.empty())
    graph_.refuse(node.id, "samples", "not supported: changes of latents behind a KSampler");
  if (kind == "RepeatLatentBatch") {
    const int most = node.kind->find("amount")->settings().at("max");
    samples.batch *= node.integer("amount");
    if (samples.batch > most)
      graph_.refuse(node.id, "amount", concat("expected at most ", most, " images in all"));
  }
  if (kind == "SetLatentNoiseMask") samples.mask = input<ComfyMask>(node, "mask");
  return {std::move(samples)};
}

ComfyImage ComfyEvaluator::picture(const ComfyNode& node, const std::string& input) {
  auto file = pictures_(node.text(input));
  if (file == nullptr)
    graph_.refuse(node.id, input, concat("Invalid image file: ", printable(node.text(input))));
  return {.file = std::move(file)};
}

ComfyMask ComfyEvaluator::mask(const ComfyNode& node, bool alpha) {
  ComfyImage image = picture(node, "image");
  if (alpha != has_alpha(*image.file))
    graph_.refuse(node.id, "image",
                  alpha ? "expected a picture with transparency, which is what is drawn anew"
                        : "expected a picture without transparency: its grey is the mask");
  return {std::move(image.file)};
}

Values ComfyEvaluator::image(const ComfyNode& node) {
  const std::string& kind = node.kind->name;
  if (kind == "LoadImageMask") return {mask(node, node.text("channel") == "alpha")};
  if (kind == "LoadImage") {
    ComfyImage image = picture(node, "image");
    ComfyMask transparent{image.file};
    return {std::move(image), std::move(transparent)};
  }
  auto image = input<ComfyImage>(node, "image");
  if (kind == "ImageUpscaleWithModel") {
    if (image.preprocess != "none" || !image.upscaler.empty())
      graph_.refuse(node.id, "image", "expected a picture of LoadImage, or of VAEDecode, as it is");
    image.upscaler = input<ComfyUpscaler>(node, "upscale_model").file;
    image.upscale_node = node.id;
    return {std::move(image)};
  }
  if (!image.is_loaded()) graph_.refuse(node.id, "image", "expected a picture of LoadImage");
  constexpr double kWhite = 255;
  image.preprocess = kind == "ImageInvert"
                         ? "invert"
                         : fmt::format("canny:{:.0f}:{:.0f}", kWhite * node.number("low_threshold"),
                                       kWhite * node.number("high_threshold"));
  return {std::move(image)};
}

}  // namespace rocm_sd::server
