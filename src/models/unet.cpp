#include "models/unet.hpp"

#include <algorithm>

#include "kernels/elementwise/elementwise.hpp"
#include "kernels/embed/embed.hpp"
#include "models/layer_ops.hpp"
#include "models/low_rank.hpp"

namespace rocm_sd {
// The host multiplies f32 by f16, a GPU f16 by f16.
DType UNet::text_dtype() const {
  if (dtype_ != DType::kBF16) return dtype_;
  return on_host_ ? DType::kF32 : DType::kF16;
}

TextCache UNet::make_text_cache(Device& device, int64_t batch, int64_t tokens) const {
  TextCache cache;
  for (const CrossAttention* layer : cross_attentions())
    cache.keys_values.push_back(
        layer->elsewhere ? Tensor() : make_tensor(device, {batch, tokens, layer->kv.rows()}, text_dtype()));
  return cache;
}

void UNet::prepare_text(Exec& ex, const Tensor& states, const TextCache& cache) const {
  const DType compute = text_dtype();
  Tensor x = states;
  for (const CrossAttention* layer : cross_attentions()) {
    if (layer->elsewhere) continue;
    require(states.rank() == 3 && states.dim(2) == layer->kv.in && takes(states.dtype()),
            "unet: expected text states [B,T,", layer->kv.in, "] ", dtype_, ", got ", states.shape(), " ",
            states.dtype());
    x = as_dtype(ex, x, compute);  // f32 on the host, though the weights are f16
    copy_into(ex, linear_with_terms(ex, x, layer->kv, layer->kv.low_rank.get()),
              cache.keys_values[static_cast<size_t>(layer->text_index)]);
  }
}

Tensor UNet::time_shifts(Exec& ex, const TimeInputs& inputs) const {
  const Tensor& t = inputs.timestep;
  require(t && t.rank() == 1 && t.dtype() == DType::kF32, "unet: expected timesteps [B] f32");
  Tensor h = timestep_embedding(ex, t, time1_.in, dtype_, config_.timestep);  // [B,C0]
  if (inputs.guidance_cond) {
    require(time_cond_.has_value(), "unet: this model takes no guidance embedding");
    h = linear(ex, as_dtype(ex, inputs.guidance_cond, dtype_), *time_cond_, {.residual = &h});
  }
  h = linear(ex, h, time1_, {.act = Activation::kSilu});  // [B,E]
  const Tensor* more = inputs.added ? &inputs.added : nullptr;
  if (!config_.has_added_conditions()) {
    h = linear(ex, h, time2_, {.residual = more, .act = Activation::kSilu});
  } else {
    const Tensor added = added_conditions(ex, inputs);                   // [B,E]
    const Tensor embedding = linear(ex, h, time2_, {.residual = more});  // [B,E]
    h = linear(ex, added, *added2_, {.residual = &embedding, .act = Activation::kSilu});
  }
  return linear(ex, h, time_projections_);  // [B,sum of channels]
}

// SDXL's pooled text and sizes through the first layer of their embedding: [B,E].
Tensor UNet::added_conditions(Exec& ex, const TimeInputs& inputs) const {
  const Tensor &text = inputs.text_embeds, &ids = inputs.time_ids;
  const int64_t batch = inputs.timestep.dim(0);
  if (text && !ids && text.shape() == Shape{batch, config_.added_width})  // the sizes are embedded in it
    return linear(ex, as_dtype(ex, text, dtype_), *added1_, {.act = Activation::kSilu});
  require(text && ids && text.rank() == 2 && ids.rank() == 2 && text.dim(0) == batch && ids.dim(0) == batch &&
              ids.dtype() == DType::kF32 &&
              text.dim(1) + ids.dim(1) * config_.added_time_width == config_.added_width,
          "unet: expected pooled text [", batch, ",P] and time ids [", batch, ",I] f32 with P + ",
          config_.added_time_width, " I = ", config_.added_width, ", got ", text.shape(), " and ",
          ids.shape());
  const int64_t count = ids.dim(1);
  Tensor sizes = timestep_embedding(ex, ids.reshape({batch * count}), config_.added_time_width, dtype_,
                                    config_.timestep);
  sizes = sizes.reshape({batch, count * config_.added_time_width});
  const Tensor both = concat_channels(ex, as_dtype(ex, text, dtype_), sizes);  // [B,added_width]
  return linear(ex, both, *added1_, {.act = Activation::kSilu});
}

UNetContext UNet::context(const Tensor& shifts, const TextCache& text, const UNetArgs& args) const {
  const std::vector<bool>* layers = args.perturbed_layers ? args.perturbed_layers : &middle_layers_;
  UNetContext out{shifts, &text.keys_values, config_.norm_groups, args.tap, args.perturbed,
                  layers, args.images};
  out.deep = args.deep;
  out.gate = args.gate;
  require<InternalError>(
      (args.ranks != nullptr) == !share_.all() && (!args.ranks || args.ranks->count() == share_.count),
      "split: tensor: a UNet of ", share_.count, " ranks is used by others");
  out.ranks = args.ranks;
  out.merge = args.merge;
  if (args.received) {
    out.received = args.received;
    out.received_layer = middle_self_attention().value();
  }
  return out;
}

// The convolutions at either end.
Tensor UNet::edge_conv(Exec& ex, Tensor x, const Conv& layer, const Tensor* residual) const {
  return conv2d(ex, std::move(x), layer,
                {.pad = Padding::same((layer.kernel - 1) / 2),
                 .epilogue = {.residual = residual, .dtype = input_dtype()}});
}

Tensor UNet::first_map(Exec& ex, const Tensor& latents, const Tensor* residual) const {
  return edge_conv(ex, config_.center_input ? affine(ex, latents, 2, -1) : latents, conv_in_, residual);
}

Tensor UNet::prediction(Exec& ex, Tensor x) const {
  return norm_silu_conv2d(ex, std::move(x), {}, norm_out_, config_.norm_groups, conv_out_,
                          {.pad = Padding::same((conv_out_.kernel - 1) / 2),
                           .epilogue = {.dtype = input_dtype()}});  // [B,h,w,out_channels]
}

UNetSkips UNet::encode(Exec& ex, const Tensor& latents, const Tensor& shifts, const TextCache& text,
                       const UNetArgs& args) const {
  require(latents.rank() == 4 && latents.dim(3) == config_.in_channels && takes(latents.dtype()),
          "unet: expected latents [B,h,w,", config_.in_channels, "] ", dtype_, ", got ", latents.shape(), " ",
          latents.dtype());
  require(shifts.shape() == Shape{latents.dim(0), time_channels()}, "unet: expected time shifts [",
          latents.dim(0), ",", time_channels(), "], got ", shifts.shape());
  const UNetContext run = context(shifts, text, args);
  Tensor x = first_map(ex, latents, args.conv_in_residual);  // [B,h,w,C0]
  show(args.tap, "conv_in", x);
  UNetSkips out{{x}, {}};
  const auto additions = [&](size_t block) {
    return args.additions && !(*args.additions)[block].empty() ? &(*args.additions)[block] : nullptr;
  };
  require(!args.additions || args.additions->size() == down_.size() + 1, "unet: expected additions for ",
          down_.size(), " down blocks and the middle");
  for (size_t i = 0; i < down_.size() && !run.deep_enough(out.skips.size()); ++i)
    x = down_[i](ex, std::move(x), out.skips, run, concat("down_blocks.", i), additions(i));
  if (args.deep && args.deep->reuse) return out;
  if (mid_) {
    x = (*mid_)(ex, std::move(x), run);
    show(args.tap, "mid_block", x);
  }
  if (const auto* added = additions(down_.size()))
    for (const ScaledMap& map : *added) x = add_map(ex, x, map);
  out.middle = std::move(x);
  if (!args.residuals) return out;
  const UNetSkips& residuals = *args.residuals;
  require(residuals.skips.size() == out.skips.size(), "unet: expected ", out.skips.size(),
          " residuals, one for each skip, got ", residuals.skips.size());
  out.middle = add(ex, out.middle, residuals.middle);
  for (size_t i = 0; i < out.skips.size(); ++i) out.skips[i] = add(ex, out.skips[i], residuals.skips[i]);
  return out;
}

size_t UNet::skip_count() const {
  size_t count = 0;
  for (const UpBlock& block : up_) count += block.resnets.size();
  return count;
}

Tensor UNet::decode(Exec& ex, UNetSkips skips, const Tensor& shifts, const TextCache& text,
                    const UNetArgs& args) const {
  require<InternalError>(!up_.empty(), "unet: there is no way up");
  const UNetContext run = context(shifts, text, args);
  Tensor x = std::move(skips.middle);
  size_t left_out = 0;  // of the resnets, which are as many as the skips
  if (args.deep && args.deep->reuse) {
    left_out = skip_count() - skips.skips.size();
    x = args.deep->map->narrow(0, args.deep->first, shifts.dim(0));
  }
  for (size_t i = 0; i < up_.size(); ++i) {
    const size_t own = up_[i].resnets.size(), first = std::min(left_out, own);
    left_out -= first;
    if (first == own) continue;
    x = up_[i](ex, std::move(x), skips.skips, run, concat("up_blocks.", i),
               args.freeu && i < args.freeu->blocks.size() ? &args.freeu->blocks[i] : nullptr, first);
  }
  return prediction(ex, std::move(x));
}

Tensor UNet::run_layers(Exec& ex, Tensor x, std::vector<Tensor>& skips, int64_t height, int64_t width,
                        const Tensor& shifts, const TextCache& text, const UNetArgs& args) const {
  const UNetContext run = context(shifts, text, args);
  const std::vector<UNetLayer> layers = unet_layers(config_);
  const UNetMaps maps = unet_maps(config_, layers, height, width);
  for (size_t i = own_.begin; i < std::min(own_.end, layers.size()); ++i) {
    const UNetLayer& layer = layers[i];
    const size_t b = layer.block;
    const std::string down = concat("down_blocks.", b), up = concat("up_blocks.", b);
    const auto* freeu = args.freeu && b < args.freeu->blocks.size() ? &args.freeu->blocks[b] : nullptr;
    Tensor second;
    if (layer.takes) second = std::move(skips.at(*layer.takes));
    switch (layer.kind) {
      case UNetLayer::Kind::kConvIn: x = first_map(ex, x, nullptr); break;
      case UNetLayer::Kind::kDown: x = down_[b].layer(ex, std::move(x), layer.index, run, down); break;
      case UNetLayer::Kind::kDownsample: x = down_[b].downsample(ex, std::move(x), run, down); break;
      case UNetLayer::Kind::kMid: x = (*mid_)(ex, std::move(x), run); break;
      case UNetLayer::Kind::kUp:
        x = up_[b].layer(ex, std::move(x), std::move(second), layer.index, run, up, freeu);
        break;
      case UNetLayer::Kind::kUpsample:
        x = up_[b].upsample(ex, x, maps.read[i + 1].height, maps.read[i + 1].width, run, up);
        break;
      case UNetLayer::Kind::kConvOut: x = prediction(ex, std::move(x)); break;
    }
    if (layer.gives) skips.at(*layer.gives) = x;
  }
  return x;
}

Tensor UNet::operator()(Exec& ex, const Tensor& latents, const Tensor& shifts, const TextCache& text,
                        const UNetArgs& args) const {
  return decode(ex, encode(ex, latents, shifts, text, args), shifts, text, args);
}

}  // namespace rocm_sd
