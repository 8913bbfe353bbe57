#include "models/unet_blocks.hpp"

#include "kernels/attention/attention.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/resample/resample.hpp"
#include "models/layer_ops.hpp"
#include "models/row_split.hpp"

namespace rocm_sd {
namespace {

// A resnet's slice of the time shifts.
Tensor shift_of(const ResBlock& resnet, const UNetContext& context) {
  return context.time_shifts.narrow(1, resnet.time_begin, resnet.conv1.out);  // [B,Cout]
}

void keep_deep(Exec& ex, const Tensor& x, const DeepMap& deep) {
  Tensor& map = *deep.map;
  if (!map) map = make_tensor(ex.device(), {deep.rows, x.dim(1), x.dim(2), x.dim(3)}, x.dtype());
  copy_into(ex, x, map.narrow(0, deep.first, x.dim(0)));
}

}  // namespace

Tensor ResBlock::operator()(Exec& ex, Tensor x, Tensor second, const Tensor& shift, int64_t groups) const {
  const Epilogue to_maps{.dtype = x.dtype()};
  const Epilogue shifted{.channel_shift = shift ? &shift : nullptr, .dtype = x.dtype()};
  // The shortcut first: then nobody needs x any more, and the norm may write over it.
  const Tensor shortcut = skip     ? conv2d(ex, x, second, *skip, {.epilogue = to_maps})
                          : second ? concat_channels(ex, x, second)
                                   : x;  // [N,H,W,Cout]
  const Epilogue added{.residual = &shortcut, .dtype = x.dtype()};
  Tensor h = norm_silu_conv2d(ex, std::move(x), std::move(second), norm1, groups, conv1,
                              {.pad = Padding::same(1), .epilogue = shifted});  // [N,H,W,Cout]
  return norm_silu_conv2d(ex, std::move(h), {}, norm2, groups, conv2,
                          {.pad = Padding::same(1), .epilogue = added});
}

Tensor SharedEnd::sum(Exec& ex, Tensor h, const Linear& last, const Tensor& like, bool adds,
                      Ranks* ranks) const {
  const bool own = static_cast<bool>(h);
  Tensor part;
  if (own)
    part = linear(ex, std::move(h), last,
                  {.residual = adds && (!ranks || leads) ? &like : nullptr, .dtype = like.dtype()});
  return ranks ? sum_of_ranks(ex, *ranks, part, parts, like.shape(), like.dtype()) : part;
}

Tensor SharedEnd::operator()(Exec& ex, Tensor h, const Linear& last, const Tensor& residual,
                             Ranks* ranks) const {
  return sum(ex, std::move(h), last, residual, true, ranks);
}

Tensor SharedEnd::alone(Exec& ex, Tensor h, const Linear& last, const Tensor& like, Ranks* ranks) const {
  return sum(ex, std::move(h), last, like, false, ranks);
}

Tensor SelfAttention::operator()(Exec& ex, Tensor x, const Tensor* residual, DType dtype, int64_t perturbed,
                                 const AttentionReceived* received, Ranks* ranks) const {
  Tensor h;
  if (heads > 0) h = attend(ex, std::move(x), perturbed, received);
  if (!ranks) return linear(ex, std::move(h), out, {.residual = residual, .dtype = dtype});
  require<InternalError>(residual && residual->dtype() == dtype,
                         "split: tensor: an attention without a residual of its type");
  return end(ex, std::move(h), out, *residual, ranks);
}

Tensor SelfAttention::attend(Exec& ex, Tensor x, int64_t perturbed, const AttentionReceived* received) const {
  const int64_t width = out.in, batch = x.dim(0), seeing = batch - perturbed;
  // Where split bf16 is multiplied, what lies between the products has more bits than bf16, too.
  const DType inside = is_split(qkv) ? DType::kF16 : qkv.weight.dtype();
  const Tensor packed = linear_as(ex, std::move(x), qkv, inside);  // [B,N,3C]
  if (received) note_received(ex, packed, *received);
  const auto attended = [&](const Tensor& of) {
    return packed_attention(ex, of, {.heads = static_cast<int>(heads)});  // [B,N,C]
  };
  if (perturbed == 0) return attended(packed);
  const Tensor first = attended(packed.narrow(0, 0, seeing));
  Tensor h = ex.alloc({batch, packed.dim(1), width}, first.dtype());
  copy_into(ex, first, h.narrow(0, 0, seeing));
  copy_into(ex, packed.narrow(0, seeing, perturbed).narrow(2, 2 * width, width),
            h.narrow(0, seeing, perturbed));
  return h;
}

// Attention gives no weights, but over values that are rows of the identity it gives those of as many keys as
// a head has channels.
void SelfAttention::note_received(Exec& ex, const Tensor& packed, const AttentionReceived& to) const {
  const int64_t keys = packed.dim(1), width = packed.dim(2) / 3, head_dim = width / heads;
  const int64_t bands = (keys + head_dim - 1) / head_dim;
  require(to.means.shape() == Shape{to.images * bands, width} && to.row_of_ones >= (bands - 1) * head_dim &&
              to.selector.dim(1) >= to.row_of_ones + keys,
          "attention: received was made for another map than ", packed.shape());
  const Tensor selector = as_dtype(ex, to.selector, packed.dtype());
  for (int64_t image = 0; image < to.images; ++image) {
    const Tensor own = packed.narrow(0, image, 1);
    for (int64_t band = 0; band < bands; ++band) {
      const Tensor weights = attention(ex, own.narrow(2, 0, width), own.narrow(2, width, width),
                                       selector.narrow(1, to.row_of_ones - band * head_dim, keys),
                                       {.heads = static_cast<int>(heads)});  // [1,N,C]
      const Tensor mean = resample(ex, as_dtype(ex, weights, DType::kF32).reshape({1, keys, 1, width}), 1, 1,
                                   ResampleMode::kArea);
      copy_into(ex, mean, to.means.narrow(0, image * bands + band, 1));
    }
  }
}

Tensor CrossAttention::operator()(Exec& ex, Tensor x, const Tensor& residual,
                                  const UNetContext& context) const {
  Tensor h;
  if (heads > 0) h = attend(ex, std::move(x), context);
  if (context.gate)
    return note_mean(ex, end.alone(ex, std::move(h), out, residual, context.ranks), residual, *context.gate);
  return end(ex, std::move(h), out, residual, context.ranks);
}

Tensor CrossAttention::attend(Exec& ex, Tensor x, const UNetContext& context) const {
  const int64_t width = out.in;
  const Tensor& packed = (*context.keys_values)[static_cast<size_t>(text_index)];  // [B,T,2C]
  const Tensor q = linear_as(ex, std::move(x), query, packed.dtype());             // [B,N,C]
  // The text's keys and values are older than q.
  Tensor h = attention(ex, q, packed.narrow(2, 0, width), packed.narrow(2, width, width),
                       {.heads = static_cast<int>(heads), .pdl_keys_ready = true});  // [B,N,C]
  if (context.images && image_index >= 0)
    for (const ImageTokens& image : *context.images) h = add_image(ex, q, std::move(h), image);
  return h;
}

Tensor CrossAttention::note_mean(Exec& ex, const Tensor& added, const Tensor& residual,
                                 const TextGate& gate) const {
  const int64_t images = added.dim(0) / gate.conditions;
  auto& means = *gate.means;
  const auto index = static_cast<size_t>(text_index);
  if (means.size() <= index) means.resize(index + 1);
  Tensor& mean = means[index];
  if (!mean) mean = make_tensor(ex.device(), {images, added.dim(1), added.dim(2)}, added.dtype());
  Tensor sum = added.narrow(0, 0, images);
  for (int64_t c = 1; c < gate.conditions; ++c) sum = add(ex, sum, added.narrow(0, c * images, images));
  copy_into(ex, affine(ex, sum, 1.0f / static_cast<float>(gate.conditions), 0), mean);
  return add(ex, added, residual);
}

Tensor CrossAttention::gated(Exec& ex, const Tensor& residual, const UNetContext& context) const {
  return add(ex, residual, context.gate->means->at(static_cast<size_t>(text_index)));
}

Tensor CrossAttention::add_image(Exec& ex, const Tensor& q, Tensor attended, const ImageTokens& image) const {
  const int64_t width = q.dim(2);
  const auto index = static_cast<size_t>(image_index);
  const Tensor& packed = image.keys_values.at(index);  // [B,T,2C], of all heads
  const Tensor own = attention(ex, q, packed.narrow(2, first_channel, width),
                               packed.narrow(2, packed.dim(2) / 2 + first_channel, width),
                               {.heads = static_cast<int>(heads), .pdl_keys_ready = true});  // [B,N,C]
  return add_map(ex, attended, {own, image.factors.at(index)});
}

Tensor TransformerBlock::operator()(Exec& ex, Tensor x, const UNetContext& context,
                                    const TokenGrid& map) const {
  if (!self && context.gate_open()) {
    x = first_cross->gated(ex, x, context);
  } else {
    x = first_attention(ex, std::move(x), context, map);
  }
  if (context.gate_open()) {
    x = cross.gated(ex, x, context);
  } else {
    Tensor h;
    if (cross.heads > 0) h = layer_norm(ex, x, norm2, norm2.eps, operand_type(cross.query));
    x = cross(ex, std::move(h), x, context);
  }
  Tensor h;
  if (ff_out.in > 0) {
    h = layer_norm(ex, x, norm3, norm3.eps, operand_type(ff_in));
    h = linear_geglu(ex, std::move(h), ff_in);  // [B,N,4C]
  }
  return ff_end(ex, std::move(h), ff_out, x, context.ranks);
}

Tensor TransformerBlock::merged_attention(Exec& ex, const Tensor& x, const UNetContext& context,
                                          const TokenGrid& map, int64_t merged) const {
  const Tensor places = match_tokens(ex, x, map, merged, self->qkv.weight.dtype());
  const int64_t tokens = map.tokens(), left = tokens - merged, width = x.dim(2);
  Tensor h = merge_tokens(ex, layer_norm(ex, x, norm1, norm1.eps, operand_type(self->qkv)), places, left);
  const bool perturbed = context.perturbed > 0 && context.perturbed_layers->at(self->index);
  h = (*self)(ex, std::move(h), nullptr, x.dtype(), perturbed ? context.perturbed : 0);
  if (double* saved = context.merge->saved_operations) {
    const auto rows = static_cast<double>(x.dim(0));
    const auto of = [&](int64_t n) {  // a row's layers and attention over n tokens
      return 8.0 * static_cast<double>(n * width * width) + 4.0 * static_cast<double>(n * n * width);
    };
    *saved += rows *
              (of(tokens) - of(left) - 2.0 * static_cast<double>(map.sources() * map.destinations() * width));
  }
  return unmerge_tokens(ex, h, places, x);
}

Tensor TransformerBlock::first_attention(Exec& ex, Tensor x, const UNetContext& context,
                                         const TokenGrid& map) const {
  if (self && context.merge)
    if (const int64_t merged = context.merge->merged(map))
      return merged_attention(ex, x, context, map, merged);
  Tensor h;
  if ((self ? self->heads : first_cross->heads) > 0)
    h = layer_norm(ex, x, norm1, norm1.eps,
                   self ? operand_type(self->qkv) : operand_type(first_cross->query));
  if (!self) return (*first_cross)(ex, std::move(h), x, context);
  const bool perturbed = context.perturbed > 0 && context.perturbed_layers->at(self->index);
  const AttentionReceived* received =
      context.received && context.received_layer == self->index ? context.received : nullptr;
  return (*self)(ex, std::move(h), &x, x.dtype(), perturbed ? context.perturbed : 0, received, context.ranks);
}

Tensor Transformer::operator()(Exec& ex, Tensor x, const UNetContext& context) const {
  const Shape map = x.shape();
  const Shape sequence{map[0], map[1] * map[2], map[3]};
  const Tensor residual = x.reshape(sequence);  // [N,HW,C], the same memory
  Tensor h = group_norm_as(ex, x, norm, context.norm_groups, operand_type(proj_in));
  h = linear(ex, h.reshape(sequence), proj_in, {.dtype = x.dtype()});
  for (const TransformerBlock& block : blocks) h = block(ex, std::move(h), context, {map[1], map[2]});
  return linear(ex, std::move(h), proj_out, {.residual = &residual, .dtype = x.dtype()}).reshape(map);
}

Tensor DownBlock::operator()(Exec& ex, Tensor x, std::vector<Tensor>& skips, const UNetContext& context,
                             const std::string& name, const std::vector<ScaledMap>* added) const {
  const auto add_all = [&](bool here) {
    if (added && here)
      for (const ScaledMap& map : *added) x = add_map(ex, x, map);
  };
  for (size_t i = 0; i < resnets.size(); ++i) {
    x = layer(ex, std::move(x), i, context, name);
    const bool last = i + 1 == resnets.size();
    add_all(last && (!attentions.empty() || !downsampler));
    skips.push_back(x);
    if (context.deep_enough(skips.size())) return x;
  }
  if (downsampler) {
    x = downsample(ex, std::move(x), context, name);
    add_all(attentions.empty());
    skips.push_back(x);
  }
  return x;
}

Tensor DownBlock::layer(Exec& ex, Tensor x, size_t i, const UNetContext& context,
                        const std::string& name) const {
  x = resnets[i](ex, std::move(x), {}, shift_of(resnets[i], context), context.norm_groups);
  show(context.tap, concat(name, ".resnets.", i), x);
  if (attentions.empty()) return x;
  x = attentions[i](ex, std::move(x), context);
  show(context.tap, concat(name, ".attentions.", i), x);
  return x;
}

Tensor DownBlock::downsample(Exec& ex, Tensor x, const UNetContext& context, const std::string& name) const {
  const DType maps = x.dtype();
  x = conv2d(ex, std::move(x), *downsampler,
             {.stride = 2, .pad = Padding::same(1), .epilogue = {.dtype = maps}});
  show(context.tap, name + ".downsamplers.0", x);
  return x;
}

Tensor MidBlock::operator()(Exec& ex, Tensor x, const UNetContext& context) const {
  for (size_t i = 0; i < resnets.size(); ++i) {
    if (i > 0) x = attentions[i - 1](ex, std::move(x), context);
    x = resnets[i](ex, std::move(x), {}, shift_of(resnets[i], context), context.norm_groups);
  }
  return x;
}

Tensor UpBlock::operator()(Exec& ex, Tensor x, std::vector<Tensor>& skips, const UNetContext& context,
                           const std::string& name, const std::vector<FreeULevel>* freeu,
                           size_t first) const {
  for (size_t i = first; i < resnets.size(); ++i) {
    if (context.deep && !context.deep->reuse && skips.size() == context.deep->skip + 1)
      keep_deep(ex, x, *context.deep);
    Tensor second = std::move(skips.back());
    skips.pop_back();
    x = layer(ex, std::move(x), std::move(second), i, context, name, freeu);
  }
  return upsampler ? upsample(ex, x, skips.back().dim(1), skips.back().dim(2), context, name) : x;
}

Tensor UpBlock::layer(Exec& ex, Tensor x, Tensor second, size_t i, const UNetContext& context,
                      const std::string& name, const std::vector<FreeULevel>* freeu) const {
  for (size_t j = 0; freeu && j < freeu->size(); ++j)
    if ((*freeu)[j].channels == 0 || (*freeu)[j].channels == x.dim(3)) {
      apply_freeu(ex, (*freeu)[j], x, second);
      break;
    }
  x = resnets[i](ex, std::move(x), std::move(second), shift_of(resnets[i], context), context.norm_groups);
  show(context.tap, concat(name, ".resnets.", i), x);
  if (attentions.empty()) return x;
  x = attentions[i](ex, std::move(x), context);
  show(context.tap, concat(name, ".attentions.", i), x);
  return x;
}

Tensor UpBlock::upsample(Exec& ex, const Tensor& x, int64_t height, int64_t width, const UNetContext& context,
                         const std::string& name) const {
  const Tensor larger = upsample_conv(ex, x, *upsampler, height, width);
  show(context.tap, name + ".upsamplers.0", larger);
  return larger;
}

Tensor upsample_conv(Exec& ex, const Tensor& map, const Conv& conv, int64_t height, int64_t width) {
  const int64_t twice_height = 2 * map.dim(1), twice_width = 2 * map.dim(2);
  const Epilogue epilogue{.dtype = map.dtype()};
  // All ranks take the same way: what they exchange depends on it.
  const RowSplit* rows = rows_at_work();
  const bool doubles = height == twice_height && width == twice_width;
  if (rows ? rows->doubles(map.dim(1) * map.dim(2), height * width) : doubles)
    return conv2d(ex, map, conv, {.pad = Padding::same(1), .upsample2x = true, .epilogue = epilogue});
  // An odd map was halved upwards: the doubled map loses its last row or column before the convolution pads
  // it. This equals torch's nearest interpolation to the same size, whose source index is floor(i h /
  // (2h-1)).
  const Tensor doubled = resample(ex, map, twice_height, twice_width, ResampleMode::kNearest);
  Tensor cut = ex.alloc({map.dim(0), height, width, map.dim(3)}, map.dtype());
  for (int64_t n = 0; n < map.dim(0); ++n)
    copy_into(ex, doubled.narrow(0, n, 1).narrow(1, 0, height).narrow(2, 0, width), cut.narrow(0, n, 1));
  return conv2d(ex, std::move(cut), conv, {.pad = Padding::same(1), .epilogue = epilogue});
}

}  // namespace rocm_sd
