#include "server/comfy_nodes.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "schedulers/sampler.hpp"
#include "schedulers/schedule.hpp"

namespace rocm_sd::server {
namespace {

using nlohmann::json;
using Strings = std::vector<std::string>;

// ComfyUI's order. "ddim" is its Euler sampler; the two agree in the latents that it works on.
constexpr const char* kSamplers[] = {"euler",        "euler_ancestral",
                                     "heun",         "heunpp2",
                                     "dpm_2",        "dpm_2_ancestral",
                                     "lms",          "dpm_fast",
                                     "dpm_adaptive", "dpmpp_2s_ancestral",
                                     "dpmpp_sde",    "dpmpp_2m",
                                     "dpmpp_2m_sde", "dpmpp_3m_sde",
                                     "ddpm",         "lcm",
                                     "ipndm",        "ipndm_v",
                                     "deis",         "res_multistep",
                                     "er_sde",       "ddim",
                                     "uni_pc",       "uni_pc_bh2"};
constexpr const char* kSchedulers[] = {"simple",      "sgm_uniform",      "karras",
                                       "exponential", "ddim_uniform",     "beta",
                                       "normal",      "linear_quadratic", "kl_optimal"};

bool is_sampler(const std::string& name) {
  try {
    plan_sampling(NoiseSchedule(), {.sampler = sampler_of_comfy(name)});
    return true;
  } catch (const Error&) {
    return false;
  }
}

Strings sampler_choices() {
  static const Strings names = [] {
    Strings known;
    for (const char* name : kSamplers)
      if (is_sampler(name)) known.push_back(name);
    return known;
  }();
  return names;
}

Strings schedule_choices() {
  Strings known;
  for (const char* name : kSchedulers)
    if (parse_schedule(name)) known.push_back(name);
  return known;
}

std::shared_ptr<const json> shared(json config) { return std::make_shared<const json>(std::move(config)); }
ComfyInput link(const char* name, const char* type) { return {name, type}; }
ComfyInput optional_link(const char* name, const char* type) { return {name, type, {}, {}, false}; }
ComfyInput integer(const char* name, int64_t fallback, uint64_t least, uint64_t most, int step = 1) {
  return {name, "INT", shared({{"default", fallback}, {"min", least}, {"max", most}, {"step", step}})};
}
ComfyInput number(const char* name, double fallback, double least, double most, double step = 0.01) {
  return {name, "FLOAT", shared({{"default", fallback}, {"min", least}, {"max", most}, {"step", step}})};
}
ComfyInput text(const char* name) {
  return {name, "STRING", shared({{"multiline", true}, {"dynamicPrompts", true}})};
}
ComfyInput choice(const char* name, Strings choices) { return {name, "COMBO", {}, std::move(choices)}; }

ComfyInput seed(const char* name) {
  ComfyInput input = integer(name, 0, 0, 0xffffffffffffffffu);
  json config = input.settings();
  config["control_after_generate"] = true;
  input.config = shared(std::move(config));
  return input;
}

ComfyInput image_choice(const Strings& images) {
  ComfyInput input = choice("image", images);
  input.config = shared({{"image_upload", true}});
  return input;
}

void add_loaders(std::vector<ComfyNodeClass>& out, const ComfyNames& names) {
  out.push_back({"CheckpointLoaderSimple",
                 "Load Checkpoint",
                 "loaders",
                 {choice("ckpt_name", names.checkpoints)},
                 {"MODEL", "CLIP", "VAE"}});
  out.push_back({"LoraLoader",
                 "Load LoRA",
                 "loaders",
                 {link("model", "MODEL"), link("clip", "CLIP"), choice("lora_name", names.loras),
                  number("strength_model", 1, -100, 100), number("strength_clip", 1, -100, 100)},
                 {"MODEL", "CLIP"}});
  out.push_back(
      {"LoraLoaderModelOnly",
       "LoraLoaderModelOnly",
       "loaders",
       {link("model", "MODEL"), choice("lora_name", names.loras), number("strength_model", 1, -100, 100)},
       {"MODEL"}});
  out.push_back({"ControlNetLoader",
                 "Load ControlNet Model",
                 "loaders",
                 {choice("control_net_name", names.controls)},
                 {"CONTROL_NET"}});
  out.push_back({"UpscaleModelLoader",
                 "Load Upscale Model",
                 "loaders",
                 {choice("model_name", names.upscalers)},
                 {"UPSCALE_MODEL"}});
  out.push_back({"LoadImage", "Load Image", "image", {image_choice(names.images)}, {"IMAGE", "MASK"}});
  out.push_back({"LoadImageMask",
                 "Load Image (as Mask)",
                 "mask",
                 {image_choice(names.images), choice("channel", {"alpha", "red", "green", "blue"})},
                 {"MASK"}});
}

void add_conditions(std::vector<ComfyNodeClass>& out) {
  out.push_back(
      {"CLIPSetLastLayer",
       "CLIP Set Last Layer",
       "conditioning",
       {link("clip", "CLIP"),
        {"stop_at_clip_layer", "INT", shared({{"default", -1}, {"min", -24}, {"max", -1}, {"step", 1}})}},
       {"CLIP"}});
  out.push_back({"CLIPTextEncode",
                 "CLIP Text Encode (Prompt)",
                 "conditioning",
                 {text("text"), link("clip", "CLIP")},
                 {"CONDITIONING"}});
  std::vector<ComfyInput> sizes = {link("clip", "CLIP")};
  for (const char* name : {"width", "height"}) sizes.push_back(integer(name, 1024, 0, 16384));
  for (const char* name : {"crop_w", "crop_h"}) sizes.push_back(integer(name, 0, 0, 16384));
  for (const char* name : {"target_width", "target_height"}) sizes.push_back(integer(name, 1024, 0, 16384));
  for (const char* name : {"text_g", "text_l"}) sizes.push_back(text(name));
  out.push_back(
      {"CLIPTextEncodeSDXL", "CLIPTextEncodeSDXL", "advanced/conditioning", sizes, {"CONDITIONING"}});
  out.push_back(
      {"SetUnionControlNetType",
       "SetUnionControlNetType",
       "conditioning/controlnet",
       {link("control_net", "CONTROL_NET"),
        choice("type", {"auto", "openpose", "depth", "hed/pidi/scribble/ted",
                        "canny/lineart/anime_lineart/mlsd", "normal", "segment", "tile", "repaint"})},
       {"CONTROL_NET"}});
  out.push_back({"ControlNetApply",
                 "Apply ControlNet (OLD)",
                 "conditioning/controlnet",
                 {link("conditioning", "CONDITIONING"), link("control_net", "CONTROL_NET"),
                  link("image", "IMAGE"), number("strength", 1, 0, 10)},
                 {"CONDITIONING"}});
  out.push_back({"ControlNetApplyAdvanced",
                 "Apply ControlNet",
                 "conditioning/controlnet",
                 {link("positive", "CONDITIONING"), link("negative", "CONDITIONING"),
                  link("control_net", "CONTROL_NET"), link("image", "IMAGE"), number("strength", 1, 0, 10),
                  number("start_percent", 0, 0, 1, 0.001), number("end_percent", 1, 0, 1, 0.001),
                  optional_link("vae", "VAE")},
                 {"CONDITIONING", "CONDITIONING"}});
}

void add_latents(std::vector<ComfyNodeClass>& out, const DrawLimits& limits) {
  const auto batch = static_cast<uint64_t>(limits.batch);
  out.push_back({"EmptyLatentImage",
                 "Empty Latent Image",
                 "latent",
                 {integer("width", 512, 16, 16384, 8), integer("height", 512, 16, 16384, 8),
                  integer("batch_size", 1, 1, batch)},
                 {"LATENT"}});
  out.push_back({"RepeatLatentBatch",
                 "Repeat Latent Batch",
                 "latent/batch",
                 {link("samples", "LATENT"), integer("amount", 1, 1, batch)},
                 {"LATENT"}});
  out.push_back({"SetLatentNoiseMask",
                 "Set Latent Noise Mask",
                 "latent/inpaint",
                 {link("samples", "LATENT"), link("mask", "MASK")},
                 {"LATENT"}});
  out.push_back(
      {"VAEEncode", "VAE Encode", "latent", {link("pixels", "IMAGE"), link("vae", "VAE")}, {"LATENT"}});
  out.push_back(
      {"VAEDecode", "VAE Decode", "latent", {link("samples", "LATENT"), link("vae", "VAE")}, {"IMAGE"}});
}

void add_samplers(std::vector<ComfyNodeClass>& out, const DrawLimits& limits) {
  const auto steps = static_cast<uint64_t>(limits.steps);
  const Strings samplers = sampler_choices(), schedules = schedule_choices();
  out.push_back(
      {"KSampler",
       "KSampler",
       "sampling",
       {link("model", "MODEL"), seed("seed"), integer("steps", 20, 1, steps), number("cfg", 8, 0, 100, 0.1),
        choice("sampler_name", samplers), choice("scheduler", schedules), link("positive", "CONDITIONING"),
        link("negative", "CONDITIONING"), link("latent_image", "LATENT"), number("denoise", 1, 0, 1)},
       {"LATENT"}});
  out.push_back(
      {"KSamplerAdvanced",
       "KSampler (Advanced)",
       "sampling",
       {link("model", "MODEL"), choice("add_noise", {"enable", "disable"}), seed("noise_seed"),
        integer("steps", 20, 1, steps), number("cfg", 8, 0, 100, 0.1), choice("sampler_name", samplers),
        choice("scheduler", schedules), link("positive", "CONDITIONING"), link("negative", "CONDITIONING"),
        link("latent_image", "LATENT"), integer("start_at_step", 0, 0, 10000),
        integer("end_at_step", 10000, 0, 10000), choice("return_with_leftover_noise", {"disable", "enable"})},
       {"LATENT"}});
}

void add_patches(std::vector<ComfyNodeClass>& out) {
  for (const char* name : {"FreeU", "FreeU_V2"}) {
    const bool first = std::string(name) == "FreeU";
    out.push_back(
        {name,
         name,
         "model_patches/unet",
         {link("model", "MODEL"), number("b1", first ? 1.1 : 1.3, 0, 10),
          number("b2", first ? 1.2 : 1.4, 0, 10), number("s1", 0.9, 0, 10), number("s2", 0.2, 0, 10)},
         {"MODEL"}});
  }
  out.push_back({"PerturbedAttentionGuidance",
                 "PerturbedAttentionGuidance",
                 "model_patches/unet",
                 {link("model", "MODEL"), number("scale", 3, 0, 100)},
                 {"MODEL"}});
}

void add_images(std::vector<ComfyNodeClass>& out) {
  out.push_back({"ImageInvert", "Invert Image", "image", {link("image", "IMAGE")}, {"IMAGE"}});
  out.push_back({"Canny",
                 "Canny",
                 "image/preprocessors",
                 {link("image", "IMAGE"), number("low_threshold", 0.4, 0.01, 0.99),
                  number("high_threshold", 0.8, 0.01, 0.99)},
                 {"IMAGE"}});
  out.push_back({"ImageUpscaleWithModel",
                 "Upscale Image (using Model)",
                 "image/upscaling",
                 {link("upscale_model", "UPSCALE_MODEL"), link("image", "IMAGE")},
                 {"IMAGE"}});
  ComfyInput prefix{"filename_prefix", "STRING", shared({{"default", "ComfyUI"}})};
  out.push_back({"SaveImage", "Save Image", "image", {link("images", "IMAGE"), prefix}, {}, true});
  out.push_back({"PreviewImage", "Preview Image", "image", {link("images", "IMAGE")}, {}, true});
}

}  // namespace

bool ComfyInput::is_value() const {
  return type == "INT" || type == "FLOAT" || type == "STRING" || type == "COMBO";
}

json ComfyInput::settings() const { return config == nullptr ? json::object() : *config; }

const ComfyInput* ComfyNodeClass::find(const std::string& input) const {
  const auto found = std::ranges::find(inputs, input, &ComfyInput::name);
  return found == inputs.end() ? nullptr : &*found;
}

std::string sampler_of_comfy(const std::string& name) { return name == "ddim" ? "euler" : name; }

ComfyNames comfy_names(const Catalog& catalog) {
  ComfyNames names;
  for (const ModelEntry& model : catalog.models()) names.checkpoints.push_back(model_title(model));
  for (const NamedFile& lora : catalog.loras()) names.loras.push_back(lora.path.filename().string());
  for (const NamedFile& control : catalog.controls())
    names.controls.push_back(control.path.filename().string());
  for (const NamedFile& one : catalog.upscalers()) names.upscalers.push_back(one.path.filename().string());
  return names;
}

std::vector<ComfyNodeClass> comfy_node_classes(const ComfyNames& names, const DrawLimits& limits) {
  std::vector<ComfyNodeClass> out;
  add_loaders(out, names);
  add_conditions(out);
  add_latents(out, limits);
  add_samplers(out, limits);
  add_patches(out);
  add_images(out);
  return out;
}

nlohmann::ordered_json object_info(const ComfyNodeClass& node) {
  using ordered = nlohmann::ordered_json;
  ordered inputs = {{"required", ordered::object()}}, order = {{"required", ordered::array()}};
  for (const ComfyInput& input : node.inputs) {
    const char* group = input.required ? "required" : "optional";
    ordered described = ordered::array();
    if (input.type == "COMBO")
      described.push_back(input.choices);
    else
      described.push_back(input.type);
    if (input.config != nullptr) described.push_back(ordered(*input.config));
    inputs[group][input.name] = described;
    order[group].push_back(input.name);
  }
  return {{"input", inputs},
          {"input_order", order},
          {"output", node.outputs},
          {"output_is_list", std::vector<bool>(node.outputs.size(), false)},
          {"output_name", node.outputs},
          {"name", node.name},
          {"display_name", node.display_name},
          {"description", ""},
          {"python_module", "nodes"},
          {"category", node.category},
          {"output_node", node.is_output}};
}

}  // namespace rocm_sd::server
