#include "models/image_projection.hpp"

#include "kernels/attention/attention.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "models/layer_ops.hpp"

namespace rocm_sd {

ImageProjection::ResamplerLayer::ResamplerLayer(const ImageProjectionConfig& config)
    : norm_states(config.hidden),
      norm_queries(config.hidden),
      norm_mlp(config.hidden),
      query(config.hidden, config.heads * config.head_dim, false),
      out(config.heads * config.head_dim, config.hidden, false),
      fc1(config.hidden, config.mlp_width, false),
      fc2(config.mlp_width, config.hidden, false),
      kv(config.hidden, 2 * config.heads * config.head_dim, false),
      heads(config.heads) {}

void ImageProjection::ResamplerLayer::visit(Visitor& v) {
  v("0.norm1", norm_states);
  v("0.norm2", norm_queries);
  v("0.to_q", query);
  v("0.to_kv", kv);
  v("0.to_out", out);
  v("1.0", norm_mlp);
  v("1.1", fc1);
  v("1.3", fc2);
}

// queries [N,Q,C], states [N,T,C] -> [N,Q,C]
Tensor ImageProjection::ResamplerLayer::operator()(Exec& ex, const Tensor& queries,
                                                   const Tensor& states) const {
  const int64_t count = queries.dim(0), own = queries.dim(1), others = states.dim(1), width = queries.dim(2);
  const Tensor normed = layer_norm(ex, queries, norm_queries, norm_queries.eps);
  const Tensor all = ex.alloc({count, others + own, width}, queries.dtype());
  copy_into(ex, layer_norm(ex, states, norm_states, norm_states.eps), all.narrow(1, 0, others));
  copy_into(ex, normed, all.narrow(1, others, own));
  const Tensor keys_values = linear(ex, all, kv);  // [N,T+Q,2I]
  const int64_t inner = keys_values.dim(2) / 2;
  Tensor h = attention(ex, linear(ex, normed, query), keys_values.narrow(2, 0, inner),
                       keys_values.narrow(2, inner, inner), {.heads = static_cast<int>(heads)});
  const Tensor attended = linear(ex, h, out, {.residual = &queries});
  h = layer_norm(ex, attended, norm_mlp, norm_mlp.eps);
  h = linear(ex, h, fc1, {.act = Activation::kGelu});
  return linear(ex, h, fc2, {.residual = &attended});
}

ImageProjection::ImageProjection(const ImageProjectionConfig& config)
    : config_(config), norm_(config.context_width), face_norm_(config.hidden) {
  const int64_t made = config.tokens * config.context_width;
  switch (config.kind) {
    case ImageProjectionKind::kLinear: out_ = Linear(config.in_width, made); return;
    case ImageProjectionKind::kFeedForward:
      in_ = Linear(config.in_width, config.hidden);
      out_ = Linear(config.hidden, made);
      return;
    case ImageProjectionKind::kResampler:
      in_ = Linear(config.in_width, config.hidden);
      out_ = Linear(config.hidden, config.context_width);
      if (config.has_both()) {
        face_in_ = Linear(config.face_width, config.face_hidden);
        face_out_ = Linear(config.face_hidden, config.tokens * config.hidden);
      } else {
        queries_.emplace(config.tokens, config.hidden);
      }
      layers_.assign(static_cast<size_t>(config.layers), ResamplerLayer(config));
      return;
  }
}

void ImageProjection::visit(Visitor& v) {
  const std::string resampler = config_.has_both() ? "perceiver_resampler." : "";
  switch (config_.kind) {
    case ImageProjectionKind::kLinear:
      v("proj", out_);
      v("norm", norm_);
      return;
    case ImageProjectionKind::kFeedForward:
      v("proj.0", in_);
      v("proj.2", out_);
      v(config_.faces ? "norm" : "proj.3", norm_);
      return;
    case ImageProjectionKind::kResampler:
      if (config_.has_both()) {
        v("proj.0", face_in_);
        v("proj.2", face_out_);
        v("norm", face_norm_);
      } else {
        v("latents", *queries_);
      }
      v(resampler + "proj_in", in_);
      v(resampler + "layers", layers_);
      v(resampler + "proj_out", out_);
      v(resampler + "norm_out", norm_);
      return;
  }
}

// faces [N,F] -> [N,tokens,C]
Tensor ImageProjection::face_tokens(Exec& ex, const Tensor& faces) const {
  const Tensor h = linear(ex, linear(ex, faces, face_in_, {.act = Activation::kGelu}), face_out_);
  return layer_norm(ex, h.reshape({faces.dim(0), config_.tokens, config_.hidden}), face_norm_,
                    face_norm_.eps);
}

// queries [N,tokens,C], empty for those of the file
Tensor ImageProjection::resample(Exec& ex, const Tensor& states, Tensor queries, const Tap* tap) const {
  const int64_t count = states.dim(0);
  const Tensor x = linear(ex, states, in_);  // [N,T,C]
  if (!queries) {
    queries = ex.alloc({count, config_.tokens, config_.hidden}, x.dtype());
    for (int64_t n = 0; n < count; ++n) copy_into(ex, queries_->table, queries.narrow(0, n, 1));
  }
  for (size_t i = 0; i < layers_.size(); ++i) {
    queries = layers_[i](ex, queries, x);
    show(tap, concat("layers.", i), queries);
  }
  return linear(ex, queries, out_);
}

Tensor ImageProjection::operator()(Exec& ex, const Tensor& x, const Tensor& faces, const Tap* tap) const {
  const bool states = config_.reads_states(), both = config_.has_both();
  require(x.rank() == (states ? 3 : 2) && x.dim(x.rank() - 1) == config_.in_width,
          "image projection: expected ", states ? "states [N,T," : "an embedding [N,", config_.in_width,
          "], got ", x.shape());
  require(both == static_cast<bool>(faces) && (!both || faces.shape() == Shape{x.dim(0), config_.face_width}),
          "image projection: expected faces [N,", config_.face_width,
          "] beside the states of FaceID Plus alone");
  const int64_t count = x.dim(0), width = config_.context_width;
  Tensor h, queries;
  if (both) queries = face_tokens(ex, faces);
  switch (config_.kind) {
    case ImageProjectionKind::kLinear: h = linear(ex, x, out_); break;
    case ImageProjectionKind::kFeedForward:
      h = linear(ex, linear(ex, x, in_, {.act = Activation::kGelu}), out_);
      break;
    case ImageProjectionKind::kResampler: h = resample(ex, x, queries, tap); break;
  }
  const Tensor tokens = h.reshape({count, h.numel() / (count * width), width});
  const Tensor normed = layer_norm(ex, tokens, norm_, norm_.eps);
  return config_.shortcut ? add(ex, queries, normed) : normed;
}

}  // namespace rocm_sd
