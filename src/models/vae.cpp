#include "models/vae.hpp"

#include <algorithm>

#include "kernels/attention/attention.hpp"
#include "kernels/conv/conv2d.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/gemm/linear.hpp"
#include "kernels/norm/norm.hpp"
#include "kernels/resample/resample.hpp"
#include "kernels/step/posterior.hpp"
#include "models/row_norm_conv.hpp"
#include "models/row_split.hpp"
#include "models/wrapping.hpp"

namespace rocm_sd {
namespace {

constexpr float kVaeNormEps = 1e-6f;

// conv2d of the rows that are here.
ConvOfRows conv_here(Exec& ex, const Conv& conv) {
  return [&](const Tensor& x, const ConvArgs& args) {
    return conv2d(ex, x, static_cast<const ConvWeight&>(conv), args);
  };
}

Tensor conv_of_map(Exec& ex, const Tensor& map, const Conv& conv, ConvArgs args) {
  const Tensor x = wraps_at_work().any() ? wrapped(ex, map, wraps_at_work(), args) : map;
  const RowSplit* rows = rows_at_work();
  const ConvOfRows run = conv_here(ex, conv);
  return rows ? conv_of_rows(ex, *rows, x, conv.kernel, args, run) : run(x, args);
}

Tensor same_conv(Exec& ex, const Tensor& x, const Conv& conv) {
  return conv_of_map(ex, x, conv, {.pad = Padding::same((conv.kernel - 1) / 2)});
}

Tensor norm_of_map(Exec& ex, const Tensor& x, const Norm& norm, int64_t groups, Activation act) {
  if (const RowSplit* rows = rows_at_work())
    return group_norm_of_all(ex, *rows, x, norm, groups, act, x.dtype());
  return group_norm(ex, x, norm, {.groups = static_cast<int>(groups), .eps = norm.eps, .act = act});
}

// The convolution of the activated norm of x.
Tensor last_conv(Exec& ex, Tensor x, const Norm& norm, int64_t groups, const Conv& conv) {
  const DType dtype = x.dtype();
  if (const RowSplit* rows = rows_at_work())
    return norm_silu_conv_of_rows(ex, *rows, std::move(x), norm, groups, dtype, {.pad = Padding::same(1)},
                                  conv_here(ex, conv));
  x = norm_of_map(ex, x, norm, groups, Activation::kSilu);
  return same_conv(ex, x, conv);
}

// This rank's rows of a map of which it has all; the map itself where it is not divided.
Tensor own_rows(Exec& ex, const Tensor& whole) {
  const RowSplit* rows = rows_at_work();
  if (!rows) return whole;
  const Tensor part = whole.narrow(1, rows->begin(), rows->rows());
  const Tensor own = ex.alloc(part.shape(), whole.dtype());
  copy_into(ex, part, own);
  return own;
}

// How the matrices of a model that was asked for in `compute` and multiplies in `products` are stored. Those
// in 8 bits are dequantized to the type of the products.
WeightFormat stored_in(WeightFormat weights, DType products, DType compute) {
  weights.short_for_f32 = !weights && products != compute;
  return weights;
}

// x as the convolutions' type.
Tensor as_dtype(Exec& ex, const Tensor& x, DType dtype) {
  return x.dtype() == dtype ? x : cast(ex, x, dtype);
}

}  // namespace

VaeAttention::VaeAttention(int64_t channels)
    : norm(channels, kVaeNormEps),
      qkv(channels, {{"to_q", channels}, {"to_k", channels}, {"to_v", channels}}, true, "to_qkv"),
      out(channels, channels) {}

void VaeAttention::visit(Visitor& v) {
  v("group_norm", norm);
  v("", qkv);
  v("to_out.0", out);
}

Tensor VaeAttention::operator()(Exec& ex, const Tensor& x, int64_t groups) const {
  const int64_t width = x.dim(3);
  const Shape sequence{x.dim(0), x.dim(1) * x.dim(2), width};
  const Tensor residual = x.reshape(sequence);  // [N,HW,C]
  Tensor h = norm_of_map(ex, x, norm, groups, Activation::kNone);
  h = linear(ex, h.reshape(sequence), qkv);  // [N,HW,3C]
  h = packed_attention(ex, h, {});
  return linear(ex, h, out, {.residual = &residual}).reshape(x.shape());
}

VaeMidBlock::VaeMidBlock(int64_t channels, bool with_attention)
    : first(channels, channels, kVaeNormEps), second(channels, channels, kVaeNormEps) {
  if (with_attention) attention.emplace(channels);
}

void VaeMidBlock::visit(Visitor& v) {
  v("resnets.0", first);
  v("attentions.0", attention);
  v("resnets.1", second);
}

Tensor VaeMidBlock::operator()(Exec& ex, Tensor x, int64_t groups) const {
  x = first(ex, std::move(x), {}, {}, groups);
  if (attention) x = (*attention)(ex, x, groups);
  return second(ex, std::move(x), {}, {}, groups);
}

void VaeLevel::visit(Visitor& v) {
  v("resnets", resnets);
  v("downsamplers.0.conv", downsampler);
  v("upsamplers.0.conv", upsampler);
}

VaeDecoder::VaeDecoder(const VaeConfig& config)
    : config_(config),
      conv_in_(config.latent_channels, config.channels.back()),
      conv_out_(config.channels.front(), config.image_channels),
      mid_(config.channels.back(), config.mid_attention),
      norm_out_(config.channels.front(), kVaeNormEps) {
  if (config.post_quant_conv) post_quant_.emplace(config.latent_channels, config.latent_channels, 1);
  int64_t width = config.channels.back();
  for (size_t i = config.channels.size(); i-- > 0;) {
    VaeLevel level;
    for (int j = 0; j <= config.resnets; ++j) {
      level.resnets.emplace_back(width, config.channels[i], kVaeNormEps);
      width = config.channels[i];
    }
    if (i > 0) level.upsampler.emplace(width, width);
    levels_.push_back(std::move(level));
  }
}

VaeDecoder VaeDecoder::load(const LoadTarget& target, const VaeConfig& config, const ParameterSource& source,
                            DType compute, const WeightFormat& weights) {
  VaeDecoder decoder(config);
  decoder.loaded_as_ = compute;
  decoder.dtype_ = product_dtype(target.products, compute, std::ranges::max(config.channels));
  load_parameters(decoder, target.memory, source, decoder.dtype_,
                  stored_in(weights, decoder.dtype_, compute));
  for (const ParameterSlot::Part& part : list_parameters(VaeEncoder(config))) source.ignore(part.name);
  return decoder;
}

void VaeDecoder::visit(Visitor& v) {
  v("post_quant_conv", post_quant_);
  v("decoder.conv_in", conv_in_);
  v("decoder.mid_block", mid_);
  v("decoder.up_blocks", levels_);
  v("decoder.conv_norm_out", norm_out_);
  v("decoder.conv_out", conv_out_);
}

Tensor VaeDecoder::first_map(Exec& ex, const Tensor& latents, const Tap* tap) const {
  require(latents.rank() == 4 && latents.dim(3) == config_.latent_channels,
          "vae decoder: expected latents [N,h,w,", config_.latent_channels, "], got ", latents.shape());
  const auto scale = static_cast<float>(1 / config_.scaling_factor);
  Tensor x = affine(ex, latents, scale, static_cast<float>(config_.shift_factor));
  x = as_dtype(ex, x, dtype_);  // [N,h,w,latent_channels]
  if (post_quant_) x = same_conv(ex, x, *post_quant_);
  x = same_conv(ex, x, conv_in_);
  show(tap, "conv_in", x);
  return x;
}

Tensor VaeDecoder::middle(Exec& ex, Tensor x, const Tap* tap) const {
  x = mid_(ex, std::move(x), config_.norm_groups);
  show(tap, "mid_block", x);
  return x;
}

// Under a RowScope every rank gets all latents, and of the first map on works on its rows.
Tensor VaeDecoder::operator()(Exec& ex, const Tensor& latents, const Tap* tap) const {
  Tensor x;
  {
    const RowScope whole(nullptr);
    x = first_map(ex, latents, tap);
  }
  x = middle(ex, own_rows(ex, x), tap);
  for (size_t i = 0; i < levels_.size(); ++i) {
    for (const ResBlock& resnet : levels_[i].resnets)
      x = resnet(ex, std::move(x), {}, {}, config_.norm_groups);
    if (levels_[i].upsampler)
      x = conv_of_map(ex, x, *levels_[i].upsampler,
                      {.pad = Padding::same(1), .upsample2x = doubles(i)});  // [N,2H,2W,C]
    show(tap, concat("up_blocks.", i), x);
  }
  return full_size(ex,
                   last_conv(ex, std::move(x), norm_out_, config_.norm_groups, conv_out_));  // [N,8h,8w,3]
}

Tensor VaeDecoder::full_size(Exec& ex, const Tensor& picture) const {
  if (!config_.half_size_finest) return picture;
  return resample(ex, picture, 2 * picture.dim(1), 2 * picture.dim(2), ResampleMode::kBicubic);
}

VaeEncoder::VaeEncoder(const VaeConfig& config)
    : config_(config),
      conv_in_(config.image_channels, config.channels.front()),
      conv_out_(config.channels.back(), 2 * config.latent_channels),
      mid_(config.channels.back(), config.mid_attention),
      norm_out_(config.channels.back(), kVaeNormEps) {
  if (config.quant_conv) quant_.emplace(2 * config.latent_channels, 2 * config.latent_channels, 1);
  int64_t width = config.channels.front();
  for (size_t i = 0; i < config.channels.size(); ++i) {
    VaeLevel level;
    for (int j = 0; j < config.resnets; ++j) {
      level.resnets.emplace_back(width, config.channels[i], kVaeNormEps);
      width = config.channels[i];
    }
    if (i + 1 < config.channels.size()) level.downsampler.emplace(width, width);
    levels_.push_back(std::move(level));
  }
}

VaeEncoder VaeEncoder::load(const LoadTarget& target, const VaeConfig& config, const ParameterSource& source,
                            DType compute, const WeightFormat& weights) {
  VaeEncoder encoder(config);
  encoder.loaded_as_ = compute;
  encoder.dtype_ = product_dtype(target.products, compute, std::ranges::max(config.channels));
  load_parameters(encoder, target.memory, source, encoder.dtype_,
                  stored_in(weights, encoder.dtype_, compute));
  for (const ParameterSlot::Part& part : list_parameters(VaeDecoder(config))) source.ignore(part.name);
  return encoder;
}

void VaeEncoder::visit(Visitor& v) {
  v("encoder.conv_in", conv_in_);
  v("encoder.down_blocks", levels_);
  v("encoder.mid_block", mid_);
  v("encoder.conv_norm_out", norm_out_);
  v("encoder.conv_out", conv_out_);
  v("quant_conv", quant_);
}

void VaeEncoder::check_picture(const Tensor& picture) const {
  const int64_t step = config_.downscale();
  require(picture.rank() == 4 && picture.dim(3) == config_.image_channels && picture.dim(1) % step == 0 &&
              picture.dim(2) % step == 0,
          "vae encoder: expected a picture [N,H,W,", config_.image_channels,
          "] with sides that are multiples of ", step, ", got ", picture.shape());
}

Tensor VaeEncoder::tail(Exec& ex, Tensor x, const Tap* tap) const {
  x = mid_(ex, std::move(x), config_.norm_groups);
  show(tap, "mid_block", x);
  x = last_conv(ex, std::move(x), norm_out_, config_.norm_groups, conv_out_);
  return quant_ ? same_conv(ex, x, *quant_) : x;  // [N,h,w,2*latent_channels]
}

Tensor VaeEncoder::moments(Exec& ex, const Tensor& picture, const Tap* tap) const {
  check_picture(picture);
  Tensor x = same_conv(ex, as_dtype(ex, picture, dtype_), conv_in_);
  show(tap, "conv_in", x);
  for (size_t i = 0; i < levels_.size(); ++i) {
    for (const ResBlock& resnet : levels_[i].resnets)
      x = resnet(ex, std::move(x), {}, {}, config_.norm_groups);
    if (levels_[i].downsampler)  // padded below and to the right only
      x = conv2d(ex, x, *levels_[i].downsampler,
                 {.stride = 2, .pad = {.bottom = 1, .right = 1}});  // [N,H/2,W/2,C]
    show(tap, concat("down_blocks.", i), x);
  }
  return tail(ex, std::move(x), tap);
}

Tensor VaeEncoder::scaled(Exec& ex, const Tensor& z) const {
  const double scale = config_.scaling_factor;
  return affine(ex, z, static_cast<float>(scale), static_cast<float>(-config_.shift_factor * scale));
}

Tensor VaeEncoder::operator()(Exec& ex, const Tensor& picture, const Tensor* noise, const Tap* tap) const {
  return scaled(ex, sample_posterior(ex, moments(ex, picture, tap), noise));  // [N,h,w,latent_channels]
}

Tensor VaeEncoder::moments_in_bands(Exec& ex, const Tensor& picture, int64_t count) const {
  check_picture(picture);
  return tail(ex, levels_in_bands(ex, as_dtype(ex, picture, dtype_), count), nullptr);
}

Tensor VaeEncoder::encode_in_bands(Exec& ex, const Tensor& picture, int64_t count) const {
  return scaled(ex, sample_posterior(ex, moments_in_bands(ex, picture, count), nullptr));
}

}  // namespace rocm_sd
