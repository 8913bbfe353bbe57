#include "server/comfy_request.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "server/comfy_evaluate.hpp"
#include "server/http.hpp"

namespace rocm_sd::server {
namespace {

using nlohmann::json;

// What a sampler is given.
struct Sampling {
  const ComfyNode* node = nullptr;
  ComfyModel model;
  ComfyCondition positive, negative;
  ComfyLatent latent;
  uint64_t seed = 0;
  int steps = 20;
  double strength = 1;  // the share of `steps` that run
};

class Compiler {
 public:
  Compiler(const ComfyGraph& graph, const ComfyPictures& pictures, const Catalog& catalog,
           const DrawLimits& limits)
      : graph_(graph),
        values_(graph, pictures),
        catalog_(catalog),
        limits_(limits),
        builder_(catalog, limits, 400) {}

  ComfyJob run() {
    for (const std::string& id : graph_.outputs) add_output(graph_.nodes.at(id));
    if (sampler_.empty()) return enlarged_file();
    const Sampling sampling = read_sampling(graph_.nodes.at(sampler_));
    set_model(sampling);
    set_texts(sampling);
    set_latent(sampling);
    set_sampling(sampling);
    set_controls(sampling);
    in(sampling.node->id, "", [&] { out_.request = builder_.finish(); });
    if (!image_.upscaler.empty()) {
      out_.request.enlargement = enlargement();
      out_.request.enlargement.of_drawn = true;
    }
    return std::move(out_);
  }

 private:
  // Runs `work`; what the request's checks refuse is told of this node's input.
  template <class Work>
  void in(const std::string& node, const std::string& input, const Work& work) {
    try {
      work();
    } catch (const RequestError& e) {
      graph_.refuse(node, input, e.error().message);
    }
  }
  void set(const std::string& node, const std::string& input, const std::string& option,
           const std::string& value) {
    in(node, input, [&] { builder_.set_text(input, option, value); });
  }

  void add_output(const ComfyNode& node) {
    const auto image = values_.input<ComfyImage>(node, "images");
    if (image.sampler.empty() && image.upscaler.empty())
      graph_.refuse(node.id, "images",
                    "expected the images of a VAEDecode behind a KSampler, or of ImageUpscaleWithModel");
    if (!out_.outputs.empty() && (sampler_ != image.sampler || image_.file != image.file))
      graph_.refuse(node.id, "images", "expected one KSampler in a graph: send one graph for each");
    if (!out_.outputs.empty() && image_.upscaler != image.upscaler)
      graph_.refuse(node.id, "images", "expected that all outputs are enlarged by the same network, or none");
    sampler_ = image.sampler;
    vae_ = image.vae;
    image_ = image;
    const bool temporary = node.kind->name == "PreviewImage";
    const std::string prefix = temporary ? "ComfyUI_temp" : node.text("filename_prefix");
    out_.outputs.push_back({node.id, prefix, temporary});
    out_.stages = {{"decode", node.links.at("images").node}};
    if (!image.upscaler.empty()) out_.stages.emplace_back("upscale", image.upscale_node);
  }

  Enlargement enlargement() {
    Enlargement out;
    for (const NamedFile& known : catalog_.upscalers())
      if (known.path.filename() == image_.upscaler) out.upscaler = known.path.string();
    if (out.upscaler.empty())
      graph_.refuse(image_.upscale_node, "upscale_model", "expected a network that is still there");
    return out;
  }

  // LoadImage, ImageUpscaleWithModel, SaveImage: nothing is drawn.
  ComfyJob enlarged_file() {
    set(image_.upscale_node, "image", "prompt", "");
    in(image_.upscale_node, "image", [&] { out_.request = builder_.finish(); });
    out_.request.enlargement = enlargement();
    out_.request.files = {{"image", *image_.file}};
    return std::move(out_);
  }

  Sampling read_sampling(const ComfyNode& node) {
    Sampling out{.node = &node,
                 .model = values_.input<ComfyModel>(node, "model"),
                 .positive = values_.input<ComfyCondition>(node, "positive"),
                 .negative = values_.input<ComfyCondition>(node, "negative"),
                 .latent = values_.input<ComfyLatent>(node, "latent_image")};
    if (!out.latent.sampler.empty())
      graph_.refuse(node.id, "latent_image",
                    "expected one KSampler in a graph: a second pass is not supported");
    out.steps = node.integer("steps");
    if (node.kind->name == "KSampler")
      read_denoise(node, out);
    else
      read_steps(node, out);
    if (out.strength < 1 && !out.latent.image)
      graph_.refuse(node.id, "latent_image",
                    "an empty latent image is drawn in all steps: expected VAEEncode's, or denoise 1");
    out_.stages.insert(out_.stages.end(),
                       {{"sample", node.id}, {"text", out.positive.node}, {"encode", out.latent.node}});
    return out;
  }

  // ComfyUI runs the last `steps` of int(steps / denoise) steps. Here a strength s runs floor(s * n) + 1 of
  // n.
  void read_denoise(const ComfyNode& node, Sampling& out) {
    out.seed = node.whole("seed");
    const double denoise = node.number("denoise");
    if (denoise > 0.9999) return;
    if (denoise <= 0) graph_.refuse(node.id, "denoise", "expected more than 0");
    const double whole = std::floor(out.steps / denoise);
    if (whole > limits_.steps)
      graph_.refuse(node.id, "denoise",
                    concat("steps / denoise: expected at most ", limits_.steps, ", got ", whole));
    set_part(out, out.steps, static_cast<int>(whole));
  }

  void read_steps(const ComfyNode& node, Sampling& out) {
    out.seed = node.whole("noise_seed");
    if (node.text("add_noise") != "enable")
      graph_.refuse(node.id, "add_noise",
                    "expected enable: latents that are noisy already are not supported");
    if (node.text("return_with_leftover_noise") != "disable" || node.integer("end_at_step") < out.steps)
      graph_.refuse(node.id, "end_at_step",
                    "expected all steps up to the last: latents with noise are not supported");
    const int first = node.integer("start_at_step");
    if (first >= out.steps) graph_.refuse(node.id, "start_at_step", concat("expected less than ", out.steps));
    set_part(out, out.steps - first, out.steps);
  }

  static void set_part(Sampling& out, int kept, int whole) {
    out.steps = whole;
    if (kept < whole) out.strength = (kept - 0.5) / whole;
  }

  void set_model(const Sampling& s) {
    for (const std::string& other : {s.positive.clip.checkpoint, s.negative.clip.checkpoint, vae_,
                                     s.latent.vae.empty() ? s.model.checkpoint : s.latent.vae})
      if (other != s.model.checkpoint)
        graph_.refuse(s.node->id, "model", "expected model, clip and vae of one checkpoint");
    builder_.request.model = s.model.checkpoint;
    for (const auto& [option, value] : s.model.options) set(s.node->id, "model", option, value);
    for (const auto& [id, node] : graph_.nodes)
      if (node.kind->name == "CheckpointLoaderSimple") out_.stages.emplace_back("load", id);
    set_loras(s);
  }

  // A LoRA's loader changes the UNet, the text encoders, or both: those that both chains have are one.
  void set_loras(const Sampling& s) {
    const std::vector<ComfyLora>& of_text = s.positive.clip.loras;
    const auto same = [](const ComfyLora& a, const ComfyLora& b) { return a.node == b.node; };
    if (!std::ranges::equal(of_text, s.negative.clip.loras, same) ||
        s.positive.clip.skip != s.negative.clip.skip)
      graph_.refuse(s.node->id, "negative", "expected the same clip for both prompts");
    if (s.positive.clip.skip > 0)
      set(s.positive.node, "clip", "clip-skip", std::to_string(s.positive.clip.skip));
    json loras = json::array();
    const auto add = [&](const ComfyLora& lora, double unet, double text) {
      std::string name;
      for (const NamedFile& known : catalog_.loras())
        if (known.path.filename() == lora.file) name = known.name;
      loras.push_back({{"name", name}, {"weight", unet}, {"te_weight", text}});
    };
    for (const ComfyLora& lora : s.model.loras) {
      const auto text = std::ranges::find(of_text, lora.node, &ComfyLora::node);
      add(lora, lora.strength, text == of_text.end() ? 0 : text->strength);
    }
    for (const ComfyLora& lora : of_text)
      if (std::ranges::find(s.model.loras, lora.node, &ComfyLora::node) == s.model.loras.end())
        add(lora, 0, lora.strength);
    if (loras.empty()) return;
    const std::vector<KnownOption> options = request_options();
    in(s.node->id, "model",
       [&] { builder_.set("loras", *std::ranges::find(options, "loras", &KnownOption::name), loras); });
  }

  void set_texts(const Sampling& s) {
    set(s.positive.node, "text", "prompt", s.positive.text);
    set(s.negative.node, "text", "negative-prompt", s.negative.text);
    if (s.positive.text_2) set(s.positive.node, "text_g", "prompt-2", *s.positive.text_2);
    if (s.negative.text_2) set(s.negative.node, "text_g", "negative-prompt-2", *s.negative.text_2);
    for (const auto& [option, value] : s.positive.sizes)
      set(s.positive.node, option, option, std::to_string(value));
    for (const auto& [option, value] : s.negative.sizes)
      set(s.negative.node, option, "negative-" + option, std::to_string(value));
    set(s.positive.node, "text", "emphasis", "no norm");
  }

  void set_latent(const Sampling& s) {
    set(s.latent.node, "batch_size", "batch", std::to_string(s.latent.batch));
    if (!s.latent.image) {
      if (s.latent.mask)
        graph_.refuse(s.node->id, "latent_image", "a mask needs a picture: expected VAEEncode's latents");
      set(s.latent.node, "width", "width", std::to_string(s.latent.width));
      set(s.latent.node, "height", "height", std::to_string(s.latent.height));
      return;
    }
    in(s.latent.node, "pixels", [&] { builder_.set_image("pixels", "init-image", *s.latent.image->file); });
    set(s.node->id, "denoise", "strength", fmt::format("{}", s.strength));
    if (!s.latent.mask) return;
    in(s.latent.node, "mask", [&] { builder_.set_image("mask", "mask", *s.latent.mask->file); });
    set(s.latent.node, "mask", "mask-blur", "0");
  }

  void set_sampling(const Sampling& s) {
    const std::string& id = s.node->id;
    // PyTorch's generator on the CPU looks at the lowest 32 bits of a seed.
    constexpr uint64_t kMaxSeed = 0x7fffffffffffffff;
    set(id, "seed", "seed", std::to_string(s.seed & kMaxSeed));
    set(id, "seed", "rng", "cpu");
    set(id, "steps", "steps", std::to_string(s.steps));
    set(id, "cfg", "cfg-scale", fmt::format("{}", s.node->number("cfg")));
    set(id, "sampler_name", "sampler", sampler_of_comfy(s.node->text("sampler_name")));
    set(id, "scheduler", "schedule", s.node->text("scheduler"));
  }

  void set_controls(const Sampling& s) {
    for (const ComfyControl& one : s.positive.controls) {
      const bool on_negative =
          std::ranges::find(s.negative.controls, one.node, &ComfyControl::node) != s.negative.controls.end();
      if (!one.both && !on_negative)
        graph_.refuse(one.node, "negative",
                      "expected that the negative conditioning goes through the same node");
      std::string name;
      for (const NamedFile& known : catalog_.controls())
        if (known.path.filename() == one.net.name) name = known.name;
      in(one.node, "image", [&] {
        builder_.add_control("control_net", {name,
                                             *one.image.file,
                                             {},
                                             {{"control-strength", fmt::format("{}", one.strength)},
                                              {"control-start", fmt::format("{}", one.start)},
                                              {"control-end", fmt::format("{}", one.end)},
                                              {"control-type", one.net.type},
                                              {"control-preprocess", one.image.preprocess}}});
      });
    }
    for (const ComfyControl& one : s.negative.controls)
      if (std::ranges::find(s.positive.controls, one.node, &ComfyControl::node) == s.positive.controls.end())
        graph_.refuse(one.node, "", "expected a ControlNet on the positive conditioning");
  }

  const ComfyGraph& graph_;
  ComfyEvaluator values_;
  const Catalog& catalog_;
  const DrawLimits& limits_;
  RequestBuilder builder_;
  std::string sampler_, vae_;
  ComfyImage image_;  // that the outputs show
  ComfyJob out_;
};

}  // namespace

ComfyJob compile_graph(const ComfyGraph& graph, const ComfyPictures& pictures, const Catalog& catalog,
                       const DrawLimits& limits) {
  return Compiler(graph, pictures, catalog, limits).run();
}

}  // namespace rocm_sd::server
