#include "models/t2i_adapter.hpp"

#include <nlohmann/json.hpp>

#include "kernels/conv/conv2d.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/resample/resample.hpp"
#include "models/config_fields.hpp"

namespace rocm_sd {
namespace {

constexpr int64_t kMaxChannels = 16384, kMaxBlocks = 64, kMaxDownscale = 64;
constexpr size_t kMaxLevels = 8;

// Of each 2 x 2 pixels the mean; at an odd side's end of those that are there, as torch's
// AvgPool2d(2, ceil_mode=True) has it.
Tensor halve(Exec& ex, const Tensor& map) {
  const int64_t height = (map.dim(1) + 1) / 2, width = (map.dim(2) + 1) / 2;
  if (2 * height == map.dim(1) && 2 * width == map.dim(2))
    return resample(ex, map, height, width, ResampleMode::kArea);
  const Tensor even = ex.alloc({map.dim(0), 2 * height, 2 * width, map.dim(3)}, map.dtype());
  for (int64_t n = 0; n < map.dim(0); ++n) {
    const Tensor from = map.narrow(0, n, 1), to = even.narrow(0, n, 1);
    copy_into(ex, from, to.narrow(1, 0, map.dim(1)).narrow(2, 0, map.dim(2)));
    // The last column and row once more.
    if (2 * width != map.dim(2))
      copy_into(ex, from.narrow(2, map.dim(2) - 1, 1), to.narrow(1, 0, map.dim(1)).narrow(2, map.dim(2), 1));
    if (2 * height != map.dim(1)) copy_into(ex, to.narrow(1, map.dim(1) - 1, 1), to.narrow(1, map.dim(1), 1));
  }
  return resample(ex, even, height, width, ResampleMode::kArea);
}

Tensor run_conv(Exec& ex, const Tensor& x, const Conv& conv, Activation act = Activation::kNone,
                const Tensor* residual = nullptr) {
  const Tensor operand = x.dtype() == conv.weight.dtype() ? x : cast(ex, x, conv.weight.dtype());
  return conv2d(
      ex, operand, conv,
      {.pad = Padding::same((conv.kernel - 1) / 2), .epilogue = {.residual = residual, .act = act}});
}

}  // namespace

int64_t T2iConfig::channels_of(int64_t level) const {
  return channels[static_cast<size_t>(std::min(level, static_cast<int64_t>(channels.size()) - 1))];
}

bool T2iConfig::halves(int64_t level) const { return kind == T2iKind::kFullXl ? level == 2 : level > 0; }

T2iConfig t2i_config(const nlohmann::json& json, std::string_view what) {
  ConfigFields f(json, what);
  f.require_class({"T2IAdapter"});
  T2iConfig config;
  const std::string kind = f.text("adapter_type", "full_adapter");
  if (kind == "full_adapter_xl")
    config.kind = T2iKind::kFullXl;
  else if (kind == "light_adapter")
    config.kind = T2iKind::kLight;
  else if (kind != "full_adapter")
    f.fail("adapter_type", "full_adapter, full_adapter_xl or light_adapter", kind);
  config.in_channels = f.integer("in_channels", 3, 1, 3);
  f.check(config.in_channels != 2, "in_channels", "expected 1 or 3, got 2");
  config.channels = f.integers("channels", config.channels, 1, kMaxChannels);
  f.check(config.channels.size() <= kMaxLevels, "channels", "expected at most ", kMaxLevels, " levels, got ",
          config.channels.size());
  config.blocks = f.integer("num_res_blocks", 2, 0, kMaxBlocks);
  config.downscale = f.integer("downscale_factor", 8, 1, kMaxDownscale);
  f.refuse_others();
  if (config.kind == T2iKind::kFullXl)
    for (size_t i = 1; i < config.channels.size(); ++i)
      f.check(i == 1 || i == 2 || config.channels[i] == config.channels[i - 1], "channels", "expected level ",
              i, " to be as wide as the one before, got ", config.channels[i]);
  if (config.kind == T2iKind::kLight)
    for (const int64_t width : config.channels)
      f.check(width % 4 == 0, "channels", "expected multiples of 4, got ", width);
  return config;
}

std::string t2i_refusal(const T2iConfig& adapter, const UNetConfig& unet, int64_t downscale) {
  int64_t scale = downscale, made = adapter.downscale;  // pixels of one cell
  const auto blocks = static_cast<int64_t>(unet.down.size());
  const bool middle = adapter.levels() == blocks + 1 && unet.mid.has_value();
  if (adapter.levels() > blocks + (middle ? 1 : 0))
    return concat("it has ", adapter.levels(), " levels, the model takes ", blocks);
  for (int64_t level = 0; level < adapter.levels(); ++level) {
    if (adapter.halves(level)) made *= 2;
    const bool in_block = level < blocks;
    const UNetBlockConfig& block = unet.down[static_cast<size_t>(std::min(level, blocks - 1))];
    const bool after = in_block && block.transformer_layers.empty() && block.resamples;
    if (after) scale *= 2;
    if (made != scale || adapter.channels_of(level) != block.channels)
      return concat("its level ", level, " has ", adapter.channels_of(level), " channels at 1/", made,
                    " of the image's size, the model's ", block.channels, " at 1/", scale);
    if (in_block && block.resamples && !after) scale *= 2;
  }
  return {};
}

T2iAdapter::Resnet::Resnet(int64_t channels, int kernel2)
    : block1(channels, channels, 3), block2(channels, channels, kernel2) {}

void T2iAdapter::Resnet::visit(Visitor& v) {
  v("block1", block1);
  v("block2", block2);
}

void T2iAdapter::Level::visit(Visitor& v) {
  v("in_conv", in_conv);
  v("resnets", resnets);
  v("out_conv", out_conv);
}

T2iAdapter::T2iAdapter(const T2iConfig& config) : config_(config) {
  const bool light = config.kind == T2iKind::kLight;
  int64_t width = config.in_channels * config.downscale * config.downscale;
  if (!light) {
    conv_in_ = Conv(width, config.channels.front(), 3);
    width = config.channels.front();
  }
  for (int64_t i = 0; i < config.levels(); ++i) {
    Level level;
    level.halves = config.halves(i);
    const int64_t out = config.channels_of(i), inner = light ? out / 4 : out;
    if (light || width != out) level.in_conv = Conv(width, inner, 1);
    for (int64_t n = 0; n < config.blocks; ++n) level.resnets.emplace_back(inner, light ? 3 : 1);
    if (light) level.out_conv = Conv(inner, out, 1);
    levels_.push_back(std::move(level));
    width = out;
  }
}

T2iAdapter T2iAdapter::load(const LoadTarget& target, const T2iConfig& config, const ParameterSource& source,
                            DType compute) {
  T2iAdapter model(config);
  load_parameters(model, target.memory, source, compute);
  return model;
}

std::vector<PrecisionRow> T2iAdapter::precisions() const {
  return precision_rows(Network::kT2iAdapter, false);
}

void T2iAdapter::visit(Visitor& v) {
  v("adapter.conv_in", conv_in_);
  v("adapter.body", levels_);
}

std::vector<float> T2iAdapter::unshuffled(const std::vector<float>& pixels, int64_t height,
                                          int64_t width) const {
  const int64_t d = config_.downscale, channels = config_.in_channels;
  require<InternalError>(height % d == 0 && width % d == 0, "t2i: ", height, " x ", width,
                         " pixels are no squares of ", d);
  std::vector<float> out;
  out.reserve(static_cast<size_t>(height * width * channels));
  const auto value = [&](int64_t y, int64_t x, int64_t c) {
    const float* rgb = &pixels[static_cast<size_t>(3 * (y * width + x))];
    return channels == 3 ? rgb[c] : 0.299f * rgb[0] + 0.587f * rgb[1] + 0.114f * rgb[2];  // ITU-R BT.601
  };
  for (int64_t y = 0; y < height; y += d)
    for (int64_t x = 0; x < width; x += d)
      for (int64_t c = 0; c < channels; ++c)
        for (int64_t j = 0; j < d; ++j)
          for (int64_t i = 0; i < d; ++i) out.push_back(value(y + j, x + i, c));
  return out;
}

std::vector<Tensor> T2iAdapter::operator()(Exec& ex, const Tensor& squares, DType maps,
                                           const Tap* tap) const {
  const int64_t width = config_.in_channels * config_.downscale * config_.downscale;
  require(squares.rank() == 4 && squares.dim(3) == width && squares.dtype() == DType::kF32,
          "t2i: expected squares [N,h,w,", width, "] f32, got ", squares.shape(), " ", squares.dtype());
  Tensor x = conv_in_ ? run_conv(ex, squares, *conv_in_) : squares;
  std::vector<Tensor> out;
  for (size_t i = 0; i < levels_.size(); ++i) {
    const Level& level = levels_[i];
    if (level.halves) x = halve(ex, x);
    if (level.in_conv) x = run_conv(ex, x, *level.in_conv);
    for (const Resnet& resnet : level.resnets) {
      const Tensor h = run_conv(ex, x, resnet.block1, Activation::kRelu);
      x = run_conv(ex, h, resnet.block2, Activation::kNone, &x);
    }
    if (level.out_conv) x = run_conv(ex, x, *level.out_conv);
    show(tap, concat("adapter.body.", i), x);
    out.push_back(x.dtype() == maps ? x : cast(ex, x, maps));
  }
  return out;
}

}  // namespace rocm_sd
