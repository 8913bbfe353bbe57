#include "models/clip_vision.hpp"

#include <nlohmann/json.hpp>

#include "kernels/elementwise/elementwise.hpp"
#include "models/config_fields.hpp"
#include "models/layer_ops.hpp"

namespace rocm_sd {
namespace {

ClipConfig layer_config(const ClipVisionConfig& config) {
  ClipConfig out;
  out.width = config.width;
  out.heads = config.heads;
  out.mlp_width = config.mlp_width;
  out.activation = config.activation;
  out.norm_eps = config.norm_eps;
  out.causal = false;
  return out;
}

}  // namespace

ClipVisionConfig clip_vision_config(const nlohmann::json& json, std::string_view what) {
  constexpr int64_t kMaxWidth = 65536, kMaxLayers = 128, kMaxSide = 1024;
  ConfigFields f(json, what);
  f.require_class({"CLIPVisionModelWithProjection", "CLIPVisionModel", "CLIPModel"});
  ClipVisionConfig config;
  config.width = f.integer("hidden_size", 768, 1, kMaxWidth);
  config.mlp_width = f.integer("intermediate_size", 3072, 1, kMaxWidth);
  config.layers = f.integer("num_hidden_layers", 12, 2, kMaxLayers);
  config.heads = f.integer("num_attention_heads", 12, 1, kMaxWidth);
  f.check(config.width % config.heads == 0, "num_attention_heads",
          "expected a number that divides hidden_size (", config.width, "), got ", config.heads);
  f.integer("num_channels", 3, 3, 3);
  config.image_size = f.integer("image_size", 224, 1, kMaxSide);
  config.patch_size = f.integer("patch_size", 32, 1, kMaxSide);
  f.check(config.patch_size <= config.image_size, "patch_size", "expected at most image_size (",
          config.image_size, "), got ", config.patch_size);
  config.projection = f.integer("projection_dim", 512, 1, kMaxWidth);
  config.norm_eps = static_cast<float>(f.number("layer_norm_eps", 1e-5, 0, 1));
  const std::string act = f.text("hidden_act", "quick_gelu");
  if (act != "quick_gelu" && act != "gelu") f.fail("hidden_act", "quick_gelu or gelu", act);
  config.activation = act == "gelu" ? Activation::kGelu : Activation::kQuickGelu;
  return config;
}

ClipVisionModel::ClipVisionModel(const ClipVisionConfig& config)
    : config_(config),
      layer_config_(layer_config(config)),
      patches_(3, config.width, static_cast<int>(config.patch_size), false),
      class_(1, config.width),
      positions_(config.tokens(), config.width),
      first_norm_(config.width, config.norm_eps),
      last_norm_(config.width, config.norm_eps),
      layers_(static_cast<size_t>(config.layers), ClipLayer(layer_config_)),
      projection_(config.width, config.projection, false) {}

ClipVisionModel ClipVisionModel::load(Device& device, const ClipVisionConfig& config,
                                      const ParameterSource& source, DType compute, DType stored) {
  ClipVisionModel model(config);
  model.dtype_ = compute;
  load_parameters(model, device, source, compute, {.short_for_f32 = stored != compute});
  return model;
}

void ClipVisionModel::visit(Visitor& v) {
  v("vision_model.embeddings.patch_embedding", patches_);
  v("vision_model.embeddings.class_embedding", class_);
  v("vision_model.embeddings.position_embedding", positions_);
  v("vision_model.pre_layrnorm", first_norm_);  // as transformers and the published files spell it
  v("vision_model.encoder.layers", layers_);
  v("vision_model.post_layernorm", last_norm_);
  v("visual_projection", projection_);
}

Shape ClipVisionModel::result_shape(VisionResult result, int64_t images) const {
  if (result == VisionResult::kEmbedding) return {images, config_.projection};
  return {images, config_.tokens(), config_.width};
}

// pixels [N,S,S,3] -> [N,T,C]: the class token before the patches, positions added.
Tensor ClipVisionModel::embed(Exec& ex, const Tensor& pixels) const {
  const int64_t count = pixels.dim(0), patches = config_.tokens() - 1, width = config_.width;
  const Tensor map = conv2d(ex, pixels, patches_,
                            {.stride = static_cast<int>(config_.patch_size), .epilogue = {.dtype = dtype_}});
  const Tensor places = as_dtype(ex, positions_.table, dtype_);  // [T,C]
  const Tensor x = ex.alloc({count, patches + 1, width}, dtype_);
  for (int64_t n = 0; n < count; ++n) {
    const Tensor row = x.narrow(0, n, 1).reshape({patches + 1, width});
    const Tensor own = map.narrow(0, n, 1).reshape({patches, width});
    copy_into(ex, add(ex, as_dtype(ex, class_.table, dtype_), places.narrow(0, 0, 1)), row.narrow(0, 0, 1));
    copy_into(ex, add(ex, own, places.narrow(0, 1, patches)), row.narrow(0, 1, patches));
  }
  return x;
}

Tensor ClipVisionModel::operator()(Exec& ex, const Tensor& pixels, VisionResult result,
                                   const Tap* tap) const {
  const int64_t side = config_.image_size, count = pixels.dim(0);
  require(pixels.shape() == Shape{count, side, side, 3} && pixels.dtype() == DType::kF32,
          "image encoder: expected pixels [N,", side, ",", side, ",3] f32, got ", pixels.shape(), " ",
          pixels.dtype());
  const bool embedding = result == VisionResult::kEmbedding;
  Tensor x = layer_norm(ex, embed(ex, pixels), first_norm_, first_norm_.eps);  // [N,T,C]
  show(tap, "embeddings", x);
  const size_t run = layers_.size() - (embedding ? 0 : 1);
  for (size_t i = 0; i < run; ++i) {
    x = layers_[i](ex, x, layer_config_, nullptr);
    show(tap, concat("layers.", i), x);
  }
  if (!embedding) return x;
  const Tensor rows = ex.alloc({count, config_.width}, dtype_);
  copy_into(ex, x.narrow(1, 0, 1), rows);
  return linear(ex, layer_norm(ex, rows, last_norm_, last_norm_.eps), projection_);  // [N,projection]
}

}  // namespace rocm_sd
