#include "models/controlnet.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/elementwise/elementwise.hpp"
#include "kernels/resample/resample.hpp"
#include "models/layer_ops.hpp"

namespace rocm_sd {
namespace {

// Channels of every skip in the order of running.
std::vector<int64_t> skip_channels(const UNetConfig& config) {
  std::vector<int64_t> out = {config.down.front().channels};
  for (const UNetBlockConfig& block : config.down)
    out.insert(out.end(), static_cast<size_t>(block.resnets + (block.resamples ? 1 : 0)), block.channels);
  return out;
}

// How many times the image is halved before each skip.
std::vector<int> skip_levels(const UNetConfig& config) {
  std::vector<int> out = {0};
  int level = 0;
  for (const UNetBlockConfig& block : config.down) {
    out.insert(out.end(), static_cast<size_t>(block.resnets), level);
    if (block.resamples) out.push_back(++level);
  }
  return out;
}

std::string listed(const std::vector<int64_t>& numbers) {
  std::string out;
  for (const int64_t n : numbers) out += concat(out.empty() ? "" : ", ", n);
  return out;
}

std::vector<int64_t> block_channels(const UNetConfig& config) {
  std::vector<int64_t> out;
  for (const UNetBlockConfig& block : config.down) out.push_back(block.channels);
  return out;
}

}  // namespace

std::string controlnet_refusal(const ControlNetConfig& control, const UNetConfig& unet, int64_t downscale) {
  const UNetConfig& trunk = control.trunk;
  if (trunk.in_channels != 4)
    return concat("it reads ", trunk.in_channels, " channels of latents, expected 4");
  if (trunk.context_width() != unet.context_width())
    return concat("it attends to text states of width ", trunk.context_width(), ", the model's are of width ",
                  unet.context_width());
  if (trunk.added_width != unet.added_width)
    return concat("its added conditions (pooled text and sizes) are of width ", trunk.added_width,
                  ", the model's of width ", unet.added_width);
  if (skip_channels(trunk) != skip_channels(unet) || skip_levels(trunk) != skip_levels(unet))
    return concat("its blocks have ", listed(block_channels(trunk)), " channels and give ",
                  skip_channels(trunk).size(), " residuals, the model's have ", listed(block_channels(unet)),
                  " channels and take ", skip_channels(unet).size());
  if (trunk.mid.has_value() != unet.mid.has_value())
    return concat("it has ", trunk.mid ? "a" : "no", " middle block, the model ", unet.mid ? "one" : "none");
  if (control.hint_scale() != downscale)
    return concat("it makes one latent of ", control.hint_scale(), " pixels a side, the model's VAE of ",
                  downscale);
  return {};
}

double control_factor(ControlMode mode, int64_t index, int64_t count) {
  constexpr double kSoft = 0.825, kSkips = 12;  // of SD 1, whatever the model
  switch (mode) {
    case ControlMode::kBalanced: return 1;
    case ControlMode::kPrompt:
    case ControlMode::kControl: return std::pow(kSoft, kSkips - static_cast<double>(index));
    case ControlMode::kGuess:
      return count < 2 ? 1.0
                       : std::pow(10.0, static_cast<double>(index) / static_cast<double>(count - 1) - 1);
  }
  return 1;
}

HintEncoder::HintEncoder(const ControlNetConfig& config, int64_t out)
    : conv_in(config.hint_channels, config.hint_widths.front()), conv_out(config.hint_widths.back(), out) {
  for (size_t i = 0; i + 1 < config.hint_widths.size(); ++i) {
    blocks.emplace_back(config.hint_widths[i], config.hint_widths[i]);
    blocks.emplace_back(config.hint_widths[i], config.hint_widths[i + 1]);
  }
}

void HintEncoder::visit(Visitor& v) {
  v("conv_in", conv_in);
  v("blocks", blocks);
  v("conv_out", conv_out);
}

Tensor HintEncoder::operator()(Exec& ex, const Tensor& image, DType maps) const {
  const auto run = [&ex](const Tensor& x, const Conv& conv, int stride, Activation act, DType dtype) {
    return conv2d(ex, x, conv,
                  {.stride = stride, .pad = Padding::same(1), .epilogue = {.act = act, .dtype = dtype}});
  };
  const DType between = conv_in.weight.dtype();
  Tensor x = run(image, conv_in, 1, Activation::kSilu, between);  // [N,H,W,16]
  for (size_t i = 0; i < blocks.size(); ++i)
    x = run(x, blocks[i], i % 2 == 0 ? 1 : 2, Activation::kSilu, between);
  return run(x, conv_out, 1, Activation::kNone, maps);  // [N,H/s,W/s,out]
}

ControlNet::ControlNet(const ControlNetConfig& config)
    : config_(config), trunk_(config.trunk), hint_(config, config.trunk.down.front().channels) {
  const std::vector<int64_t> channels = skip_channels(config.trunk);
  for (const int64_t width : channels) down_.emplace_back(width, width, 1);
  middle_ = Conv(channels.back(), channels.back(), 1);
  if (config.mixer) mixer_.emplace(*config.mixer);
}

std::vector<PrecisionRow> ControlNet::precisions() const {
  return precision_rows(Network::kControlNet, is_narrow(std::ranges::max(skip_channels(config_.trunk))));
}

ControlNet ControlNet::load(const LoadTarget& target, const ControlNetConfig& config,
                            const ParameterSource& source, DType compute, const WeightFormat& weights) {
  ControlNet model(config);
  model.trunk_.choose_types(target, compute, weights);
  load_parameters(model, target.memory, source, model.trunk_.compute_dtype(),
                  model.trunk_.format_of(weights));
  return model;
}

std::vector<int64_t> ControlNet::residual_levels() const {
  std::vector<int64_t> out;
  for (const int level : skip_levels(config_.trunk)) out.push_back(level);
  out.push_back(out.back());
  return out;
}

void ControlNet::visit(Visitor& v) {
  v("", trunk_);
  v("controlnet_cond_embedding", hint_);
  if (mixer_) mixer_->visit(v);
  v("controlnet_down_blocks", down_);
  v("controlnet_mid_block", middle_);
}

Tensor ControlNet::hint(Exec& ex, const Tensor& image) const {
  require(image.rank() == 4 && image.dim(3) == config_.hint_channels && image.dtype() == DType::kF32,
          "controlnet: expected an image [N,H,W,", config_.hint_channels, "] f32, got ", image.shape(), " ",
          image.dtype());
  return hint_(ex, image, trunk_.input_dtype());
}

// What the last convolution makes of a map; its mean over the image where the model says so, of which a
// mean beforehand is the same.
Tensor ControlNet::residual(Exec& ex, const Tensor& map, const Conv& conv) const {
  const auto run = [&](const Tensor& x) { return conv2d(ex, x, conv, {.epilogue = {.dtype = map.dtype()}}); };
  if (!config_.pools) return run(map);
  const Tensor mean = run(resample(ex, map, 1, 1, ResampleMode::kArea));  // [N,1,1,C]
  return resample(ex, mean, map.dim(1), map.dim(2), ResampleMode::kNearest);
}

// Whether the last convolutions weigh and add by themselves: their maps are neither written nor read again.
bool ControlNet::scales_in_epilogue(const Exec& ex) const {
  return ex.device().kind() != DeviceKind::kHost && !config_.pools;
}

Tensor ControlNet::type_embedding(Exec& ex, const Tensor& types) const {
  require<InternalError>(mixer_.has_value(), "controlnet: it knows no types");
  return mixer_->type_embedding(ex, types, trunk_.compute_dtype());
}

Tensor ControlNet::weigh(Exec& ex, const Tensor& hint, const Tensor& type, const Tensor& scales) const {
  require<InternalError>(mixer_.has_value(), "controlnet: it knows no types");
  return (*mixer_)(ex, hint, type, scales);
}

void ControlNet::operator()(Exec& ex, const Tensor& latents, const Tensor& hint, const Tensor& shifts,
                            const TextCache& text, std::span<const Tensor> factors, UNetSkips& skips,
                            const Tap* tap) const {
  require(skips.skips.size() == down_.size(), "controlnet: has ", down_.size(),
          " residuals for the skips, the UNet ", skips.skips.size(), " skips");
  require(static_cast<int64_t>(factors.size()) == residuals(), "controlnet: expected ", residuals(),
          " factors, got ", factors.size());
  UNetSkips own = trunk_.encode(ex, latents, shifts, text, {.tap = tap, .conv_in_residual = &hint});
  const auto add = [&](Tensor& target, Tensor& map, const Conv& conv, int64_t index,
                       const std::string& name) {
    const Tensor& strengths = factors[static_cast<size_t>(index)];
    if (scales_in_epilogue(ex) && !tap && target.dtype() == map.dtype()) {
      const Tensor scale = strengths.reshape({strengths.numel(), 1});
      target = conv2d(ex, std::exchange(map, {}), conv,
                      {.epilogue = {.residual = &target, .dtype = target.dtype(), .channel_scale = &scale}});
      return;
    }
    const Tensor made = residual(ex, map, conv);
    map = Tensor();
    show(tap, name, made);
    target = add_map(ex, target, {made, strengths});
  };
  add(skips.middle, own.middle, middle_, residuals() - 1, "controlnet_mid_block");
  for (size_t i = 0; i < down_.size(); ++i)
    add(skips.skips[i], own.skips[i], down_[i], static_cast<int64_t>(i),
        concat("controlnet_down_blocks.", i));
}

}  // namespace rocm_sd
