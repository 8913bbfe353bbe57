#include "models/unet_blocks.hpp"

#include "kernels/attention/attention.hpp"
#include "kernels/conv/conv2d.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/gemm/linear.hpp"
#include "kernels/norm/norm.hpp"
#include "kernels/resample/resample.hpp"

namespace rocm_sd {
namespace {

constexpr float kTransformerNormEps = 1e-6f;  // of the norm before proj_in, whatever the UNet's norm_eps

// A resnet's slice of the time shifts.
Tensor shift_of(const ResBlock& resnet, const UNetContext& context) {
  return context.time_shifts.narrow(1, resnet.time_begin, resnet.conv1.out);  // [B,Cout]
}

// x as what the layer multiplies.
template <class Layer>
Tensor operand(Exec& ex, const Tensor& x, const Layer& layer) {
  if (is_split(layer))
    return split_bf16(ex, x.dtype() == DType::kF32 ? x : cast(ex, x, DType::kF32), parts_of(layer));
  return x.dtype() == layer.weight.dtype() ? x : cast(ex, x, layer.weight.dtype());
}

// What a norm before the layer writes: the layer's operand, or what that is made of.
template <class Layer>
DType normed_type(const Layer& layer) {
  return is_split(layer) ? DType::kF32 : layer.weight.dtype();
}

}  // namespace

ResBlock::ResBlock(int64_t in, int64_t out, float eps)
    : norm1(in, eps), norm2(out, eps), conv1(in, out), conv2(out, out) {
  if (in != out) skip.emplace(in, out, 1);
}

void ResBlock::visit(Visitor& v) {
  v("norm1", norm1);
  v("conv1", conv1);
  v("norm2", norm2);
  v("conv2", conv2);
  v("conv_shortcut", skip);
}

Tensor ResBlock::operator()(Exec& ex, Tensor x, Tensor second, const Tensor& shift, int64_t groups) const {
  const DType stream = x.dtype();
  const auto normed = [&](Tensor map, const Norm& norm, const Conv& conv, const Tensor* other) {
    const DType dtype = normed_type(conv);
    const bool in_place = !other && dtype == map.dtype() && map.storage().use_count() == 1;
    return operand(ex,
                   group_norm(ex, map, norm,
                              {.groups = static_cast<int>(groups),
                               .eps = norm.eps,
                               .act = Activation::kSilu,
                               .second = other,
                               .dtype = dtype,
                               .in_place = in_place}),
                   conv);
  };
  // The shortcut first: then nobody needs x any more, and the norm may write over it.
  Tensor shortcut = x;
  if (skip && is_split(*skip)) {
    const Tensor parts = split_bf16(ex, x, parts_of(*skip), second ? &second : nullptr);
    shortcut = conv2d(ex, parts, *skip, {.epilogue = {.dtype = stream}});  // [N,H,W,Cout]
  } else if (skip) {
    const Tensor other = second ? operand(ex, second, *skip) : Tensor();
    shortcut = conv2d(ex, operand(ex, x, *skip), *skip,
                      {.second = other ? &other : nullptr, .epilogue = {.dtype = stream}});  // [N,H,W,Cout]
  } else if (second) {
    shortcut = concat_channels(ex, x, second);
  }
  Tensor h = normed(std::move(x), norm1, conv1, second ? &second : nullptr);  // [N,H,W,Cin]
  second = Tensor();
  h = conv2d(ex, h, conv1,
             {.pad = Padding::same(1),
              .epilogue = {.channel_shift = shift ? &shift : nullptr, .dtype = stream}});  // [N,H,W,Cout]
  h = normed(std::move(h), norm2, conv2, nullptr);
  return conv2d(ex, h, conv2,
                {.pad = Padding::same(1), .epilogue = {.residual = &shortcut, .dtype = stream}});
}

SelfAttention::SelfAttention(int64_t width, int64_t head_count)
    : qkv(width, {{"to_q", width}, {"to_k", width}, {"to_v", width}}, false),
      out(width, width),
      heads(head_count) {}

void SelfAttention::visit(Visitor& v) {
  v("", qkv);
  v("to_out.0", out);
}

Tensor SelfAttention::operator()(Exec& ex, const Tensor& x, const Tensor& residual, int64_t perturbed) const {
  const int64_t width = x.dim(2);
  const AttentionArgs args{.heads = static_cast<int>(heads)};
  // Where sums of two bf16 are multiplied, what lies between the products has more bits than bf16, too.
  const DType product = is_split(qkv) ? DType::kF32 : qkv.weight.dtype();
  Tensor packed = linear(ex, operand(ex, x, qkv), qkv, {.dtype = product});  // [B,N,3C]
  if (is_split(qkv)) packed = cast(ex, packed, DType::kF16);
  const auto attended = [&](const Tensor& qkv_of) {
    return attention(ex, qkv_of.narrow(2, 0, width), qkv_of.narrow(2, width, width),
                     qkv_of.narrow(2, 2 * width, width), args);  // [B,N,C]
  };
  Tensor h;
  if (perturbed == 0) {
    h = attended(packed);
  } else {
    const int64_t seeing = x.dim(0) - perturbed;
    const Tensor first = attended(packed.narrow(0, 0, seeing));
    h = ex.alloc({x.dim(0), x.dim(1), width}, first.dtype());
    copy_into(ex, first, h.narrow(0, 0, seeing));
    copy_into(ex, packed.narrow(0, seeing, perturbed).narrow(2, 2 * width, width),
              h.narrow(0, seeing, perturbed));
  }
  return linear(ex, operand(ex, h, out), out, {.residual = &residual, .dtype = residual.dtype()});
}

CrossAttention::CrossAttention(int64_t width, int64_t context_width, int64_t head_count)
    : query(width, width, false),
      out(width, width),
      kv(context_width, {{"to_k", width}, {"to_v", width}}, false),
      heads(head_count) {}

void CrossAttention::visit(Visitor& v) {
  v("to_q", query);
  v("", kv);
  v("to_out.0", out);
}

Tensor CrossAttention::operator()(Exec& ex, const Tensor& x, const Tensor& residual,
                                  const UNetContext& context) const {
  const int64_t width = x.dim(2);
  const Tensor& packed = (*context.keys_values)[static_cast<size_t>(text_index)];  // [B,T,2C]
  const DType compute = query.weight.dtype(), wide = packed.dtype();
  Tensor q = linear(ex, operand(ex, x, query), query,
                    {.dtype = wide == compute ? compute : DType::kF32});  // [B,N,C]
  if (q.dtype() != wide) q = cast(ex, q, wide);
  // The text's keys and values are older than q.
  const Tensor h = attention(ex, q, packed.narrow(2, 0, width), packed.narrow(2, width, width),
                             {.heads = static_cast<int>(heads), .pdl_keys_ready = true});  // [B,N,C]
  return linear(ex, operand(ex, h, out), out, {.residual = &residual, .dtype = residual.dtype()});
}

TransformerBlock::TransformerBlock(int64_t width, int64_t context_width, int64_t heads,
                                   bool only_cross_attention)
    : norm1(width),
      norm2(width),
      norm3(width),
      cross(width, context_width, heads),
      ff_in(width, 8 * width),
      ff_out(4 * width, width) {
  if (only_cross_attention)
    first_cross.emplace(width, context_width, heads);
  else
    self.emplace(width, heads);
}

void TransformerBlock::visit(Visitor& v) {
  v("norm1", norm1);
  v("attn1", self);
  v("attn1", first_cross);
  v("norm2", norm2);
  v("attn2", cross);
  v("norm3", norm3);
  v("ff.net.0.proj", ff_in);
  v("ff.net.2", ff_out);
}

Tensor TransformerBlock::operator()(Exec& ex, Tensor x, const UNetContext& context) const {
  Tensor h =
      layer_norm(ex, x, norm1, norm1.eps, self ? normed_type(self->qkv) : normed_type(first_cross->query));
  const bool perturbed = self && context.perturbed > 0 && context.perturbed_layers->at(self->index);
  x = self ? (*self)(ex, h, x, perturbed ? context.perturbed : 0) : (*first_cross)(ex, h, x, context);
  h = layer_norm(ex, x, norm2, norm2.eps, normed_type(cross.query));
  x = cross(ex, h, x, context);
  h = operand(ex, layer_norm(ex, x, norm3, norm3.eps, normed_type(ff_in)), ff_in);
  h = operand(ex, linear_geglu(ex, h, ff_in), ff_out);  // [B,N,4C]
  return linear(ex, h, ff_out, {.residual = &x, .dtype = x.dtype()});
}

Transformer::Transformer(int64_t width, int64_t context_width, int64_t heads, int count,
                         bool only_cross_attention)
    : norm(width, kTransformerNormEps),
      proj_in(width, width),
      proj_out(width, width),
      blocks(static_cast<size_t>(count),
             TransformerBlock(width, context_width, heads, only_cross_attention)) {}

void Transformer::visit(Visitor& v) {
  v("norm", norm);
  v("proj_in", proj_in);
  v("transformer_blocks", blocks);
  v("proj_out", proj_out);
}

Tensor Transformer::operator()(Exec& ex, Tensor x, const UNetContext& context) const {
  const Shape map = x.shape();
  const Shape sequence{map[0], map[1] * map[2], map[3]};
  const Tensor residual = x.reshape(sequence);  // [N,HW,C], the same memory
  Tensor h = group_norm(
      ex, x, norm,
      {.groups = static_cast<int>(context.norm_groups), .eps = norm.eps, .dtype = normed_type(proj_in)});
  h = operand(ex, h.reshape(sequence), proj_in);
  h = linear(ex, h, proj_in, {.dtype = x.dtype()});
  for (const TransformerBlock& block : blocks) h = block(ex, std::move(h), context);
  h = operand(ex, h, proj_out);
  return linear(ex, h, proj_out, {.residual = &residual, .dtype = x.dtype()}).reshape(map);
}

DownBlock::DownBlock(int64_t in, const UNetBlockConfig& config, float eps) {
  for (int i = 0; i < config.resnets; ++i) {
    resnets.emplace_back(i == 0 ? in : config.channels, config.channels, eps);
    if (!config.transformer_layers.empty())
      attentions.emplace_back(config.channels, config.context_width, config.heads,
                              config.transformer_layers.at(static_cast<size_t>(i)),
                              config.only_cross_attention);
  }
  if (config.resamples) downsampler.emplace(config.channels, config.channels);
}

void DownBlock::visit(Visitor& v) {
  v("resnets", resnets);
  v("attentions", attentions);
  v("downsamplers.0.conv", downsampler);
}

Tensor DownBlock::operator()(Exec& ex, Tensor x, std::vector<Tensor>& skips, const UNetContext& context,
                             const std::string& name, const std::vector<ScaledMap>* added) const {
  const auto add_all = [&](bool here) {
    if (added && here)
      for (const ScaledMap& map : *added) x = add_map(ex, x, map);
  };
  for (size_t i = 0; i < resnets.size(); ++i) {
    x = resnets[i](ex, std::move(x), {}, shift_of(resnets[i], context), context.norm_groups);
    show(context.tap, concat(name, ".resnets.", i), x);
    if (!attentions.empty()) {
      x = attentions[i](ex, std::move(x), context);
      show(context.tap, concat(name, ".attentions.", i), x);
    }
    const bool last = i + 1 == resnets.size();
    add_all(last && (!attentions.empty() || !downsampler));
    skips.push_back(x);
  }
  if (downsampler) {
    x = conv2d(ex, operand(ex, x, *downsampler), *downsampler,
               {.stride = 2, .pad = Padding::same(1), .epilogue = {.dtype = x.dtype()}});
    show(context.tap, name + ".downsamplers.0", x);
    add_all(attentions.empty());
    skips.push_back(x);
  }
  return x;
}

MidBlock::MidBlock(int64_t channels, const UNetMidConfig& config, float eps) {
  resnets.emplace_back(channels, channels, eps);
  for (const int count : config.transformer_layers) {
    attentions.emplace_back(channels, config.context_width, config.heads, count, false);
    resnets.emplace_back(channels, channels, eps);
  }
}

void MidBlock::visit(Visitor& v) {
  v("resnets", resnets);
  v("attentions", attentions);
}

Tensor MidBlock::operator()(Exec& ex, Tensor x, const UNetContext& context) const {
  for (size_t i = 0; i < resnets.size(); ++i) {
    if (i > 0) x = attentions[i - 1](ex, std::move(x), context);
    x = resnets[i](ex, std::move(x), {}, shift_of(resnets[i], context), context.norm_groups);
  }
  return x;
}

UpBlock::UpBlock(int64_t in, const std::vector<int64_t>& skips, const UNetBlockConfig& config, float eps) {
  for (int i = 0; i < config.resnets; ++i) {
    const int64_t width = i == 0 ? in : config.channels;
    resnets.emplace_back(width + skips.at(static_cast<size_t>(i)), config.channels, eps);
    if (!config.transformer_layers.empty())
      attentions.emplace_back(config.channels, config.context_width, config.heads,
                              config.transformer_layers.at(static_cast<size_t>(i)),
                              config.only_cross_attention);
  }
  if (config.resamples) upsampler.emplace(config.channels, config.channels);
}

void UpBlock::visit(Visitor& v) {
  v("resnets", resnets);
  v("attentions", attentions);
  v("upsamplers.0.conv", upsampler);
}

Tensor UpBlock::operator()(Exec& ex, Tensor x, std::vector<Tensor>& skips, const UNetContext& context,
                           const std::string& name, const FreeULevel* freeu) const {
  for (size_t i = 0; i < resnets.size(); ++i) {
    Tensor second = std::move(skips.back());
    skips.pop_back();
    if (freeu) apply_freeu(ex, *freeu, x, second);
    x = resnets[i](ex, std::move(x), std::move(second), shift_of(resnets[i], context), context.norm_groups);
    show(context.tap, concat(name, ".resnets.", i), x);
    if (!attentions.empty()) {
      x = attentions[i](ex, std::move(x), context);
      show(context.tap, concat(name, ".attentions.", i), x);
    }
  }
  if (upsampler) {
    x = upsample_conv(ex, x, *upsampler, skips.back().dim(1), skips.back().dim(2));
    show(context.tap, name + ".upsamplers.0", x);
  }
  return x;
}

Tensor upsample_conv(Exec& ex, const Tensor& map, const Conv& conv, int64_t height, int64_t width) {
  const Tensor x = operand(ex, map, conv);
  const Epilogue epilogue{.dtype = map.dtype()};
  if (height == 2 * x.dim(1) && width == 2 * x.dim(2))
    return conv2d(ex, x, conv, {.pad = Padding::same(1), .upsample2x = true, .epilogue = epilogue});
  // An odd map was halved upwards: the doubled map loses its last row or column before the convolution pads
  // it. This equals torch's nearest interpolation to the same size, whose source index is floor(i h /
  // (2h-1)).
  const Tensor doubled = resample(ex, x, 2 * x.dim(1), 2 * x.dim(2), ResampleMode::kNearest);
  const Tensor cut = ex.alloc({x.dim(0), height, width, x.dim(3)}, x.dtype());
  for (int64_t n = 0; n < x.dim(0); ++n)
    copy_into(ex, doubled.narrow(0, n, 1).narrow(1, 0, height).narrow(2, 0, width), cut.narrow(0, n, 1));
  return conv2d(ex, cut, conv, {.pad = Padding::same(1), .epilogue = epilogue});
}

}  // namespace rocm_sd
