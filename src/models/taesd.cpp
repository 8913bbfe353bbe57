#include "models/taesd.hpp"

#include "kernels/conv/conv2d.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "models/wrapping.hpp"

namespace rocm_sd {
namespace {

constexpr float kLatentLimit = 3;  // the decoder's soft clamp of its input

Tensor as_dtype(Exec& ex, const Tensor& x, DType dtype) {
  return x.dtype() == dtype ? x : cast(ex, x, dtype);
}

void visit_layers(Visitor& v, const char* prefix, std::vector<TaesdLayer>& layers) {
  for (TaesdLayer& layer : layers) {
    const std::string name = concat(prefix, ".layers.", layer.number);
    v(name, layer.conv);
    v(name, layer.block);
  }
}

// Collects layers in order, numbering them.
class LayerList {
 public:
  void conv(const Conv& conv, int stride = 1, bool upsample = false, Activation act = Activation::kNone) {
    if (upsample) ++next_;
    layers_.push_back({next_++, conv, std::nullopt, stride, upsample, act});
    if (act != Activation::kNone) ++next_;
  }
  void blocks(int64_t channels, int count) {
    for (int i = 0; i < count; ++i) layers_.push_back({next_++, std::nullopt, TaesdBlock(channels)});
  }
  std::vector<TaesdLayer> take() { return std::move(layers_); }

 private:
  std::vector<TaesdLayer> layers_;
  int next_ = 0;
};

}  // namespace

TaesdBlock::TaesdBlock(int64_t channels)
    : conv1(channels, channels), conv2(channels, channels), conv3(channels, channels) {}

void TaesdBlock::visit(Visitor& v) {
  v("conv.0", conv1);
  v("conv.2", conv2);
  v("conv.4", conv3);
}

namespace {

Tensor conv_of_map(Exec& ex, const Tensor& x, const Conv& conv, ConvArgs args) {
  args.pad = Padding::same(1);
  const Tensor source = wraps_at_work().any() ? wrapped(ex, x, wraps_at_work(), args) : x;
  return conv2d(ex, source, static_cast<const ConvWeight&>(conv), args);
}

}  // namespace

Tensor TaesdBlock::operator()(Exec& ex, const Tensor& x) const {
  Tensor h = conv_of_map(ex, x, conv1, {.epilogue = {.act = Activation::kRelu}});
  h = conv_of_map(ex, h, conv2, {.epilogue = {.act = Activation::kRelu}});
  return conv_of_map(ex, h, conv3, {.epilogue = {.residual = &x, .act = Activation::kRelu}});
}

Tensor TaesdLayer::operator()(Exec& ex, const Tensor& x) const {
  if (block) return (*block)(ex, x);
  return conv_of_map(ex, x, *conv, {.stride = stride, .upsample2x = upsample, .epilogue = {.act = act}});
}

TaesdDecoder::TaesdDecoder(const TaesdConfig& config) : config_(config) {
  LayerList list;
  list.conv(Conv(config.latent_channels, config.decoder_channels.front()), 1, false, Activation::kRelu);
  for (size_t i = 0; i < config.decoder_blocks.size(); ++i) {
    const int64_t width = config.decoder_channels[i];
    list.blocks(width, config.decoder_blocks[i]);
    const bool last = i + 1 == config.decoder_blocks.size();
    list.conv(Conv(width, last ? config.image_channels : width, 3, last), 1, !last);
  }
  layers_ = list.take();
}

TaesdDecoder TaesdDecoder::load(Device& device, const TaesdConfig& config, const ParameterSource& source,
                                DType compute) {
  TaesdDecoder decoder(config);
  load_parameters(decoder, device, source, compute);
  decoder.dtype_ = compute;
  for (const ParameterSlot::Part& part : list_parameters(TaesdEncoder(config))) source.ignore(part.name);
  return decoder;
}

void TaesdDecoder::visit(Visitor& v) { visit_layers(v, "decoder", layers_); }

Tensor TaesdDecoder::operator()(Exec& ex, const Tensor& latents, const Tap* tap) const {
  require(latents.rank() == 4 && latents.dim(3) == config_.latent_channels,
          "taesd decoder: expected latents [N,h,w,", config_.latent_channels, "], got ", latents.shape());
  Tensor x = latents;
  if (config_.scaling_factor != 1 || config_.shift_factor != 0)
    x = affine(ex, x, static_cast<float>(1 / config_.scaling_factor),
               static_cast<float>(config_.shift_factor));
  x = soft_clamp(ex, as_dtype(ex, x, dtype_), kLatentLimit);
  for (const TaesdLayer& layer : layers_) {
    x = layer(ex, x);
    show(tap, concat("decoder.layers.", layer.number), x);
  }
  return affine(ex, x, 2, -1);  // the checkpoint's pictures are in 0..1
}

TaesdEncoder::TaesdEncoder(const TaesdConfig& config) : config_(config) {
  LayerList list;
  for (size_t i = 0; i < config.encoder_blocks.size(); ++i) {
    const int64_t width = config.encoder_channels[i];
    if (i == 0)
      list.conv(Conv(config.image_channels, width));
    else
      list.conv(Conv(width, width, 3, false), 2);
    list.blocks(width, config.encoder_blocks[i]);
  }
  list.conv(Conv(config.encoder_channels.back(), config.latent_channels));
  layers_ = list.take();
}

TaesdEncoder TaesdEncoder::load(Device& device, const TaesdConfig& config, const ParameterSource& source,
                                DType compute) {
  TaesdEncoder encoder(config);
  load_parameters(encoder, device, source, compute);
  encoder.dtype_ = compute;
  for (const ParameterSlot::Part& part : list_parameters(TaesdDecoder(config))) source.ignore(part.name);
  return encoder;
}

void TaesdEncoder::visit(Visitor& v) { visit_layers(v, "encoder", layers_); }

Tensor TaesdEncoder::operator()(Exec& ex, const Tensor& picture, const Tap* tap) const {
  const int64_t step = config_.downscale();
  require(picture.rank() == 4 && picture.dim(3) == config_.image_channels && picture.dim(1) % step == 0 &&
              picture.dim(2) % step == 0,
          "taesd encoder: expected a picture [N,H,W,", config_.image_channels,
          "] with sides that are multiples of ", step, ", got ", picture.shape());
  Tensor x = as_dtype(ex, affine(ex, picture, 0.5f, 0.5f), dtype_);  // 0..1
  for (const TaesdLayer& layer : layers_) {
    x = layer(ex, x);
    show(tap, concat("encoder.layers.", layer.number), x);
  }
  const double scale = config_.scaling_factor;
  x = as_dtype(ex, x, DType::kF32);
  if (scale == 1 && config_.shift_factor == 0) return x;
  return affine(ex, x, static_cast<float>(scale), static_cast<float>(-config_.shift_factor * scale));
}

}  // namespace rocm_sd
