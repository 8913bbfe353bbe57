#include "models/control_mixer.hpp"

#include "base/error.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/gemm/linear.hpp"
#include "kernels/norm/norm.hpp"
#include "kernels/resample/resample.hpp"

namespace rocm_sd {
namespace {

// A handful of rows: as exact as the type allows, and never in 8 bits.
Linear exact(int64_t in, int64_t out) {
  Linear layer(in, out);
  layer.eight_bit = false;
  layer.precision = Precision::kFloat;
  return layer;
}

Tensor as(Exec& ex, const Tensor& x, DType dtype) { return x.dtype() == dtype ? x : cast(ex, x, dtype); }

// The mean of a map over its pixels: [B,1,C].
Tensor mean(Exec& ex, const Tensor& map, DType dtype) {
  const Tensor one = resample(ex, map, 1, 1, ResampleMode::kArea);  // [B,1,1,C]
  return as(ex, one.reshape({map.dim(0), 1, map.dim(3)}), dtype);
}

}  // namespace

ControlMixer::Layer::Layer(int64_t width)
    : norm1(width),
      norm2(width),
      qkv(exact(width, 3 * width)),
      out(exact(width, width)),
      fc1(exact(width, 4 * width)),
      fc2(exact(4 * width, width)) {}

void ControlMixer::Layer::visit(Visitor& v) {
  v("ln_1", norm1);
  v("attn.in_proj", qkv);
  v("attn.out_proj", out);
  v("ln_2", norm2);
  v("mlp.c_fc", fc1);
  v("mlp.c_proj", fc2);
}

Tensor ControlMixer::Layer::operator()(Exec& ex, const Tensor& x, int64_t heads) const {
  const int64_t width = x.dim(2);
  Tensor h = linear(ex, layer_norm(ex, x, norm1, norm1.eps), qkv);  // [B,P,3C]
  h = attention(ex, h.narrow(2, 0, width), h.narrow(2, width, width), h.narrow(2, 2 * width, width),
                {.heads = static_cast<int>(heads)});  // [B,P,C]
  const Tensor attended = linear(ex, h, out, {.residual = &x});
  h = linear(ex, layer_norm(ex, attended, norm2, norm2.eps), fc1, {.act = Activation::kQuickGelu});
  return linear(ex, h, fc2, {.residual = &attended});  // [B,P,C]
}

ControlMixer::ControlMixer(const ControlMixerConfig& config)
    : config_(config),
      tasks_(config.types, config.channels),
      layers_(static_cast<size_t>(config.layers), Layer(config.channels)),
      projection_(exact(config.channels, config.channels)),
      time1_(exact(config.types * config.type_width, config.time_width)),
      time2_(exact(config.time_width, config.time_width)) {}

void ControlMixer::visit(Visitor& v) {
  v("task_embedding", tasks_);
  v("transformer_layes", layers_);  // as Diffusers and the published files spell it
  v("spatial_ch_projs", projection_);
  v("control_add_embedding.linear_1", time1_);
  v("control_add_embedding.linear_2", time2_);
}

Tensor ControlMixer::type_embedding(Exec& ex, const Tensor& types, DType dtype) const {
  const int64_t batch = types.dim(0);
  require(types.shape() == Shape{batch, config_.types} && types.dtype() == DType::kF32,
          "union controlnet: expected types [B,", config_.types, "] f32, got ", types.shape(), " ",
          types.dtype());
  const DType held = time1_.weight.dtype();
  const Tensor each = timestep_embedding(ex, types.reshape({batch * config_.types}), config_.type_width, held,
                                         config_.timestep);
  Tensor h = each.reshape({batch, config_.types * config_.type_width});
  h = linear(ex, h, time1_, {.act = Activation::kSilu});
  return as(ex, linear(ex, h, time2_), dtype);  // [B,time_width]
}

Tensor ControlMixer::operator()(Exec& ex, const Tensor& map, std::span<const ControlSight> sights,
                                const Tap* tap) const {
  const int64_t batch = map.dim(0), width = config_.channels;
  const auto pictures = static_cast<int64_t>(sights.size());
  require(map.rank() == 4 && map.dim(3) == width && pictures > 0, "union controlnet: expected a map [B,h,w,",
          width, "] and a picture at least, got ", map.shape(), " and ", pictures);
  const DType type = projection_.weight.dtype();
  const EmbeddingWeight nowhere{affine(ex, tasks_.table.narrow(0, 0, 1), 0, 0)};  // [1,C]
  const Tensor tokens = ex.alloc({batch, pictures + 1, width}, type);
  for (int64_t i = 0; i < pictures; ++i) {
    const ControlSight& sight = sights[static_cast<size_t>(i)];
    const Tensor task = as(ex, embed_tokens(ex, sight.type, tasks_, nowhere, tasks_.table.dtype()), type);
    const Tensor token = add(ex, mean(ex, sight.hint, type), task);  // [B,1,C]
    copy_into(ex, add_scaled(ex, affine(ex, token, 0, 0), token, sight.scales), tokens.narrow(1, i, 1));
  }
  copy_into(ex, mean(ex, map, type), tokens.narrow(1, pictures, 1));
  Tensor x = tokens;
  for (size_t i = 0; i < layers_.size(); ++i) {
    x = layers_[i](ex, x, config_.heads);  // [B,P+1,C]
    show(tap, concat("transformer_layes.", i), x);
  }
  x = linear(ex, x, projection_);  // [B,P+1,C]
  Tensor out = map, shift;
  for (int64_t i = 0; i < pictures; ++i) {
    const ControlSight& sight = sights[static_cast<size_t>(i)];
    out = add_scaled(ex, out, sight.hint, sight.scales);
    const Tensor one = ex.alloc({batch, 1, 1, width}, type);
    copy_into(ex, x.narrow(1, i, 1), one);
    shift = add_scaled(ex, shift ? shift : affine(ex, one, 0, 0), one, sight.scales);
  }
  const Tensor spread = resample(ex, shift, map.dim(1), map.dim(2), ResampleMode::kNearest);
  return add(ex, out, as(ex, spread, map.dtype()));
}

}  // namespace rocm_sd
