#include "models/unet.hpp"

#include <algorithm>
#include <ranges>

#include "kernels/conv/conv2d.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/embed/embed.hpp"
#include "kernels/gemm/linear.hpp"
#include "kernels/norm/norm.hpp"

namespace rocm_sd {
namespace {

// x in dtype, copied only if it has another one.
Tensor as_dtype(Exec& ex, const Tensor& x, DType dtype) {
  return x.dtype() == dtype ? x : cast(ex, x, dtype);
}

int64_t widest(const UNetConfig& config) {
  const auto channels = [](const UNetBlockConfig& block) { return block.channels; };
  return std::ranges::max(config.down | std::views::transform(channels));
}

}  // namespace

UNet::UNet(const UNetConfig& config)
    : config_(config),
      conv_in_(config.in_channels, config.down.front().channels, config.conv_in_kernel),
      conv_out_(config.down.front().channels, config.out_channels, config.conv_out_kernel),
      time1_(config.down.front().channels, config.time_width),
      time2_(config.time_width, config.time_width),
      time_projections_(config.time_width, {}, true),
      norm_out_(config.down.front().channels, config.norm_eps) {
  if (config.time_cond_width > 0)
    time_cond_.emplace(config.time_cond_width, config.down.front().channels, false);
  if (config.has_added_conditions()) {
    added1_.emplace(config.added_width, config.time_width);
    added2_.emplace(config.time_width, config.time_width);
  }
  int64_t width = config.down.front().channels;
  std::vector<int64_t> skips = {width};  // channels of every tensor that an up block will take back
  for (const UNetBlockConfig& block : config.down) {
    down_.emplace_back(width, block, config.norm_eps);
    width = block.channels;
    skips.insert(skips.end(), static_cast<size_t>(block.resnets + (block.resamples ? 1 : 0)), width);
  }
  if (config.mid) mid_.emplace(width, *config.mid, config.norm_eps);
  for (const UNetBlockConfig& block : config.up) {
    std::vector<int64_t> taken;
    for (int i = 0; i < block.resnets; ++i) {
      taken.push_back(skips.back());
      skips.pop_back();
    }
    up_.emplace_back(width, taken, block, config.norm_eps);
    width = block.channels;
  }
  choose_precisions();
  // Little work, too, and every value passes through them.
  conv_in_.eight_bit = conv_out_.eight_bit = time1_.eight_bit = time2_.eight_bit = false;
  for (std::optional<Linear>* layer : {&time_cond_, &added1_, &added2_})
    if (*layer) (*layer)->eight_bit = false;
  number_layers();
}

UNet UNet::load(const LoadTarget& target, const UNetConfig& config, const ParameterSource& source,
                DType compute, const WeightFormat& weights) {
  UNet unet(config);
  unet.choose_types(target, compute, weights);
  unet.update(target, source, weights);
  return unet;
}

void UNet::choose_types(const LoadTarget& target, DType compute, const WeightFormat& weights) {
  held_ = compute;
  on_host_ = target.products.kind() == DeviceKind::kHost;
  dtype_ = weights ? compute : product_dtype(target.products, compute, widest(config_));
}

WeightFormat UNet::format_of(const WeightFormat& weights) const {
  WeightFormat format = weights;
  format.short_for_f32 = dtype_ != held_;
  return format;
}

void UNet::update(const LoadTarget& target, const ParameterSource& source, const WeightFormat& weights,
                  const SlotFilter& only) {
  load_parameters(*this, target.memory, source, dtype_, format_of(weights), only);
}

// What a model in bf16 computes with more bits: layers that bring much of the prediction's error and do
// little of the work (docs/architecture.md, "Numerics"). The last block's rounding reaches the prediction
// undamped, so more of its layers are among them. Of a narrow model, all but those of the time.
void UNet::choose_precisions() {
  conv_in_.precision = Precision::kFloat;  // all that follows sees its rounding of the latents
  conv_out_.precision = Precision::kSplit;
  for (CrossAttention* layer : cross_attentions()) {
    layer->kv.precision = Precision::kHalf;  // every step of a picture sees the same error of the text
    layer->out.precision = Precision::kSplitInput;
  }
  if (is_narrow(widest(config_))) return split_all();
  const auto choose = [](std::vector<ResBlock>& resnets, std::vector<Transformer>& transformers,
                         Precision precision) {
    for (ResBlock& block : resnets)
      if (block.skip) block.skip->precision = precision;
    for (Transformer& block : transformers) block.proj_in.precision = block.proj_out.precision = precision;
  };
  for (DownBlock& block : down_) choose(block.resnets, block.attentions, Precision::kSplitInput);
  if (mid_) choose(mid_->resnets, mid_->attentions, Precision::kSplitInput);
  for (UpBlock& block : up_) choose(block.resnets, block.attentions, Precision::kSplitInput);
  std::vector<std::vector<Transformer>*> finest = {&down_.front().attentions};
  if (!up_.empty()) finest.push_back(&up_.back().attentions);
  for (std::vector<Transformer>* transformers : finest)
    for (Transformer& transformer : *transformers)
      for (TransformerBlock& block : transformer.blocks) block.ff_in.precision = Precision::kSplitInput;
  if (up_.empty()) return;
  UpBlock& last = up_.back();
  choose(last.resnets, last.attentions, Precision::kSplit);
  last.resnets.back().conv2.precision = Precision::kSplitInput;
}

// Thrice the products of every layer, where all together are few.
void UNet::split_all() {
  const auto split = [](auto& layer) { layer.precision = Precision::kSplit; };
  const auto split_blocks = [&](auto& block) {
    for (ResBlock& resnet : block.resnets) {
      split(resnet.conv1);
      split(resnet.conv2);
      if (resnet.skip) split(*resnet.skip);
    }
    for (Transformer& transformer : block.attentions) {
      split(transformer.proj_in);
      split(transformer.proj_out);
      for (TransformerBlock& layers : transformer.blocks) {
        if (layers.self) split(layers.self->qkv), split(layers.self->out);
        split(layers.ff_in);
        split(layers.ff_out);
      }
    }
  };
  for (CrossAttention* layer : cross_attentions()) split(layer->query), split(layer->out);
  for (DownBlock& block : down_) {
    split_blocks(block);
    if (block.downsampler) split(*block.downsampler);
  }
  if (mid_) split_blocks(*mid_);
  for (UpBlock& block : up_) {
    split_blocks(block);
    if (block.upsampler) split(*block.upsampler);
  }
}

// Gives every residual block its columns of the time shifts and every cross attention its place in the text
// cache, in the order of running.
void UNet::number_layers() {
  const auto number = [this](std::vector<ResBlock>& resnets, const std::string& block) {
    for (size_t i = 0; i < resnets.size(); ++i) {
      resnets[i].time_begin = time_projections_.rows();
      time_projections_.parts.push_back(
          {concat(block, ".resnets.", i, ".time_emb_proj"), resnets[i].conv1.out});
    }
  };
  for (size_t i = 0; i < down_.size(); ++i) number(down_[i].resnets, concat("down_blocks.", i));
  if (mid_) number(mid_->resnets, "mid_block");
  for (size_t i = 0; i < up_.size(); ++i) number(up_[i].resnets, concat("up_blocks.", i));
  int index = 0;
  for (CrossAttention* layer : cross_attentions()) layer->text_index = index++;
  const auto name = [this](std::vector<Transformer>& attentions, const std::string& block, bool middle) {
    for (size_t i = 0; i < attentions.size(); ++i)
      for (size_t j = 0; j < attentions[i].blocks.size(); ++j) {
        if (!attentions[i].blocks[j].self) continue;
        attentions[i].blocks[j].self->index = self_attentions_.size();
        self_attentions_.push_back(concat(block, ".attentions.", i, ".transformer_blocks.", j, ".attn1"));
        middle_layers_.push_back(middle);
      }
  };
  for (size_t i = 0; i < down_.size(); ++i) name(down_[i].attentions, concat("down_blocks.", i), false);
  if (mid_) name(mid_->attentions, "mid_block", true);
  for (size_t i = 0; i < up_.size(); ++i) name(up_[i].attentions, concat("up_blocks.", i), false);
}

std::vector<CrossAttention*> UNet::cross_attentions() {
  std::vector<CrossAttention*> out;
  const auto collect = [&out](std::vector<Transformer>& attentions) {
    for (Transformer& transformer : attentions)
      for (TransformerBlock& block : transformer.blocks) {
        if (block.first_cross) out.push_back(&*block.first_cross);
        out.push_back(&block.cross);
      }
  };
  for (DownBlock& block : down_) collect(block.attentions);
  if (mid_) collect(mid_->attentions);
  for (UpBlock& block : up_) collect(block.attentions);
  return out;
}

std::vector<const CrossAttention*> UNet::cross_attentions() const {
  const auto layers = const_cast<UNet*>(this)->cross_attentions();  // the walk itself changes nothing
  return {layers.begin(), layers.end()};
}

void UNet::visit(Visitor& v) {
  v("conv_in", conv_in_);
  v("time_embedding.linear_1", time1_);
  v("time_embedding.cond_proj", time_cond_);
  v("time_embedding.linear_2", time2_);
  v("add_embedding.linear_1", added1_);
  v("add_embedding.linear_2", added2_);
  v("", time_projections_);
  v("down_blocks", down_);
  v("mid_block", mid_);
  if (up_.empty()) return;
  v("up_blocks", up_);
  v("conv_norm_out", norm_out_);
  v("conv_out", conv_out_);
}

// The host multiplies f32 by f16, a GPU f16 by f16.
DType UNet::text_dtype() const {
  if (dtype_ != DType::kBF16) return dtype_;
  return on_host_ ? DType::kF32 : DType::kF16;
}

TextCache UNet::make_text_cache(Device& device, int64_t batch, int64_t tokens) const {
  TextCache cache;
  for (const CrossAttention* layer : cross_attentions())
    cache.keys_values.push_back(make_tensor(device, {batch, tokens, layer->kv.rows()}, text_dtype()));
  return cache;
}

void UNet::prepare_text(Exec& ex, const Tensor& states, const TextCache& cache) const {
  const DType compute = text_dtype();
  Tensor x = states;
  for (const CrossAttention* layer : cross_attentions()) {
    require(states.rank() == 3 && states.dim(2) == layer->kv.in && takes(states.dtype()),
            "unet: expected text states [B,T,", layer->kv.in, "] ", dtype_, ", got ", states.shape(), " ",
            states.dtype());
    if (x.dtype() != compute) x = cast(ex, states, compute);
    copy_into(ex, linear(ex, x, layer->kv), cache.keys_values[static_cast<size_t>(layer->text_index)]);
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
  return {shifts, &text.keys_values, config_.norm_groups, args.tap, args.perturbed, layers};
}

// The convolutions at either end.
Tensor UNet::edge_conv(Exec& ex, const Tensor& x, const Conv& layer, const Tensor* residual) const {
  return conv2d(
      ex, is_split(layer) ? split_bf16(ex, x, parts_of(layer)) : as_dtype(ex, x, layer.weight.dtype()), layer,
      {.pad = Padding::same((layer.kernel - 1) / 2),
       .epilogue = {.residual = residual, .dtype = input_dtype()}});
}

UNetSkips UNet::encode(Exec& ex, const Tensor& latents, const Tensor& shifts, const TextCache& text,
                       const UNetArgs& args) const {
  require(latents.rank() == 4 && latents.dim(3) == config_.in_channels && takes(latents.dtype()),
          "unet: expected latents [B,h,w,", config_.in_channels, "] ", dtype_, ", got ", latents.shape(), " ",
          latents.dtype());
  require(shifts.shape() == Shape{latents.dim(0), time_channels()}, "unet: expected time shifts [",
          latents.dim(0), ",", time_channels(), "], got ", shifts.shape());
  const UNetContext run = context(shifts, text, args);
  Tensor x = edge_conv(ex, config_.center_input ? affine(ex, latents, 2, -1) : latents, conv_in_,
                       args.conv_in_residual);  // [B,h,w,C0]
  show(args.tap, "conv_in", x);
  UNetSkips out{{x}, {}};
  const auto additions = [&](size_t block) {
    return args.additions && !(*args.additions)[block].empty() ? &(*args.additions)[block] : nullptr;
  };
  require(!args.additions || args.additions->size() == down_.size() + 1, "unet: expected additions for ",
          down_.size(), " down blocks and the middle");
  for (size_t i = 0; i < down_.size(); ++i)
    x = down_[i](ex, std::move(x), out.skips, run, concat("down_blocks.", i), additions(i));
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

Tensor UNet::decode(Exec& ex, UNetSkips skips, const Tensor& shifts, const TextCache& text,
                    const UNetArgs& args) const {
  require<InternalError>(!up_.empty(), "unet: there is no way up");
  const UNetContext run = context(shifts, text, args);
  Tensor x = std::move(skips.middle);
  for (size_t i = 0; i < up_.size(); ++i)
    x = up_[i](ex, std::move(x), skips.skips, run, concat("up_blocks.", i),
               args.freeu && i < args.freeu->levels.size() ? &args.freeu->levels[i] : nullptr);
  x = group_norm(ex, x, norm_out_,
                 {.groups = static_cast<int>(config_.norm_groups),
                  .eps = norm_out_.eps,
                  .act = Activation::kSilu,
                  .dtype = is_split(conv_out_) ? DType::kF32 : dtype_});
  return edge_conv(ex, x, conv_out_);  // [B,h,w,out_channels]
}

Tensor UNet::operator()(Exec& ex, const Tensor& latents, const Tensor& shifts, const TextCache& text,
                        const UNetArgs& args) const {
  return decode(ex, encode(ex, latents, shifts, text, args), shifts, text, args);
}

}  // namespace rocm_sd
