#include "models/control_mixer.hpp"

#include "base/error.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/gemm/linear.hpp"
#include "kernels/norm/norm.hpp"
#include "kernels/resample/resample.hpp"

namespace rocm_sd {
namespace {

Tensor as(Exec& ex, const Tensor& x, DType dtype) { return x.dtype() == dtype ? x : cast(ex, x, dtype); }

}  // namespace

ControlMixer::Layer::Layer(int64_t width)
    : norm1(width),
      norm2(width),
      qkv(width, 3 * width),
      out(width, width),
      fc1(width, 4 * width),
      fc2(4 * width, width) {}

void ControlMixer::Layer::visit(Visitor& v) {
  v("ln_1", norm1);
  v("attn.in_proj", qkv);
  v("attn.out_proj", out);
  v("ln_2", norm2);
  v("mlp.c_fc", fc1);
  v("mlp.c_proj", fc2);
}

Tensor ControlMixer::Layer::operator()(Exec& ex, const Tensor& x) const {
  const int64_t width = x.dim(2);
  Tensor h = linear(ex, layer_norm(ex, x, norm1, norm1.eps), qkv);                           // [N,1,3C]
  const Tensor attended = linear(ex, h.narrow(2, 2 * width, width), out, {.residual = &x});  // [N,1,C]
  h = linear(ex, layer_norm(ex, attended, norm2, norm2.eps), fc1, {.act = Activation::kQuickGelu});
  return linear(ex, h, fc2, {.residual = &attended});  // [N,1,C]
}

ControlMixer::ControlMixer(const ControlMixerConfig& config)
    : config_(config),
      tasks_(config.types, config.channels),
      layers_(static_cast<size_t>(config.layers), Layer(config.channels)),
      projection_(config.channels, config.channels),
      time1_(config.types * config.type_width, config.time_width),
      time2_(config.time_width, config.time_width) {}

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

Tensor ControlMixer::operator()(Exec& ex, const Tensor& hint, const Tensor& type,
                                const Tensor& scales) const {
  const int64_t count = hint.dim(0), width = config_.channels;
  require(hint.rank() == 4 && hint.dim(3) == width && type.shape() == Shape{count, 1},
          "union controlnet: expected a hint [N,h,w,", width, "] and types [N,1], got ", hint.shape(),
          " and ", type.shape());
  const DType dtype = projection_.weight.dtype();
  const EmbeddingWeight nowhere{affine(ex, tasks_.table.narrow(0, 0, 1), 0, 0)};  // [1,C]
  const auto scaled = [&](const Tensor& x) { return add_scaled(ex, affine(ex, x, 0, 0), x, scales); };
  const Tensor task = as(ex, embed_tokens(ex, type, tasks_, nowhere, tasks_.table.dtype()), dtype);
  const Tensor mean = resample(ex, hint, 1, 1, ResampleMode::kArea).reshape({count, 1, width});
  Tensor x = scaled(add(ex, as(ex, mean, dtype), task));  // [N,1,C]
  for (const Layer& layer : layers_) x = layer(ex, x);
  x = as(ex, linear(ex, x, projection_), hint.dtype()).reshape({count, 1, 1, width});
  return scaled(add(ex, hint, resample(ex, x, hint.dim(1), hint.dim(2), ResampleMode::kNearest)));
}

}  // namespace rocm_sd
