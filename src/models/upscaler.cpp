#include "models/upscaler.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "kernels/conv/conv2d.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/symmetric_gate/symmetric_gate.hpp"
#include "weights/name_extent.hpp"

namespace rocm_sd {
namespace {

constexpr float kSlope = RrdbNet::kSlope;
constexpr int kMaxBlocks = 512;

Tensor same_conv(Exec& ex, const Tensor& x, const Conv& conv, const Tensor* residual = nullptr) {
  return conv2d(ex, x, conv, {.pad = Padding::same(1), .epilogue = {.residual = residual}});
}

Tensor rectified(Exec& ex, const Tensor& x) { return leaky_relu(ex, x, kSlope); }

// grown [N,h,w,C], or empty, with the rectified z [N,h,w,G] behind it.
Tensor grow(Exec& ex, const Tensor& grown, const Tensor& z) {
  if (!grown) return rectified(ex, z);
  const int64_t before = grown.dim(3), added = z.dim(3);
  const Tensor all = ex.alloc({z.dim(0), z.dim(1), z.dim(2), before + added}, z.dtype());
  copy_into(ex, grown, all.narrow(3, 0, before));
  leaky_relu_into(ex, z, kSlope, all.narrow(3, before, added));
  return all;  // [N,h,w,C+G]
}

int64_t square_root(int64_t value) {
  const auto root = static_cast<int64_t>(std::llround(std::sqrt(static_cast<double>(value))));
  return root * root == value ? root : 0;
}

// How many squares of three channels a convolution has, as their side; 0: not such a number.
int64_t side_of(int64_t channels) {
  return channels > 0 && channels % 3 == 0 ? square_root(channels / 3) : 0;
}

UpscalerConfig rrdb_config(const WeightStore& store) {
  const auto dim = [&](const char* name, int axis) { return dim_of(store, {name}, axis, 0); };
  UpscalerConfig config;
  const int64_t in = dim("conv_first.weight", 1);
  config.features = dim("conv_first.weight", 0);
  config.unshuffle = side_of(in);
  config.growth = dim("body.0.rdb1.conv1.weight", 0);
  config.blocks = extent(store, "body.");
  config.doublings = std::max(extent(store, "conv_up") - 1, 0);  // counted from 1
  require<FormatError>(config.unshuffle > 0, store.title(),
                       ": conv_first.weight: expected 3 input channels, or 3 times a square, got ", in);
  require<FormatError>(config.blocks >= 1 && config.blocks <= kMaxBlocks && config.growth > 0 &&
                           config.features > 0 && config.doublings <= 4,
                       store.title(), ": expected an RRDBNet, found ", config.blocks, " blocks, ",
                       config.features, " features, growth ", config.growth, " and ", config.doublings,
                       " upsampling convolutions");
  require<FormatError>((int64_t{1} << config.doublings) % config.unshuffle == 0, store.title(), ": ",
                       config.doublings, " doublings do not go with pixels taken together ", config.unshuffle,
                       " by ", config.unshuffle);
  return config;
}

UpscalerConfig compact_config(const WeightStore& store) {
  UpscalerConfig config{.kind = UpscalerKind::kCompact, .doublings = 0};
  const int64_t layers = extent(store, "body.");
  bool slopes = layers >= 3 && layers % 2 == 1 && layers <= 2 * kMaxBlocks;
  for (int64_t i = 1; slopes && i < layers; i += 2) slopes = store.has(concat("body.", i, ".weight"));
  require<FormatError>(slopes, store.title(),
                       ": expected convolutions with a PReLU after each but the last, found ", layers,
                       " layers without (networks with other rectifiers are not supported)");
  config.blocks = layers / 2 - 1;
  config.features = dim_of(store, {"body.0.weight"}, 0, 0);
  const int64_t out = dim_of(store, {concat("body.", layers - 1, ".weight")}, 0, 0);
  config.shuffle = side_of(out);
  require<FormatError>(config.shuffle > 0, store.title(), ": body.", layers - 1,
                       ".weight: expected 3 times a square of output channels, got ", out);
  return config;
}

UpscalerConfig span_config(const WeightStore& store) {
  UpscalerConfig config{.kind = UpscalerKind::kSpan, .doublings = 0};
  config.blocks = extent(store, "block_") - 1;  // counted from 1
  config.features = dim_of(store, {"conv_1.weight"}, 0, 0);
  config.normalised = store.has("input.weight");
  const int64_t in = dim_of(store, {"conv_1.weight"}, 1, 0),
                out = dim_of(store, {"upsampler.0.weight"}, 0, 0);
  config.shuffle = side_of(out);
  require<FormatError>(in == 3, store.title(), ": conv_1: expected 3 input channels, got ", in);
  require<FormatError>(config.shuffle > 0, store.title(),
                       ": upsampler.0.weight: expected 3 times a square of output channels, got ", out);
  require<FormatError>(config.blocks >= 1 && config.features > 0, store.title(), ": expected a SPAN, found ",
                       config.blocks, " blocks and ", config.features, " features");
  return config;
}

UpscalerConfig swin_upscaler_config(const WeightStore& store) {
  UpscalerConfig config{.kind = UpscalerKind::kSwin, .doublings = 0, .swin = swin_config(store)};
  config.features = dim_of(store, {"conv_first.weight"}, 0, 0);
  config.blocks = std::ssize(config.swin.depths);
  switch (config.swin.upsampler) {
    case SwinUpsampler::kNearest: config.doublings = extent(store, "conv_up") - 1; break;  // counted from 1
    case SwinUpsampler::kShuffle:
      config.doublings = config.swin.tripled == 3 ? 0 : (extent(store, "upsample.") + 1) / 2;
      break;
    case SwinUpsampler::kDirectShuffle:
      config.shuffle = side_of(dim_of(store, {"upsample.0.weight"}, 0, 0));
      break;
    case SwinUpsampler::kNone: break;
  }
  require<FormatError>(config.shuffle > 0 && config.doublings <= 4, store.title(),
                       ": expected a SwinIR that enlarges at most 16 times, found ", config.doublings,
                       " doublings, or upsample.0.weight without 3 times a square of outputs");
  return config;
}

}  // namespace

const char* UpscalerConfig::name() const {
  switch (kind) {
    case UpscalerKind::kRrdb: return "RRDBNet";
    case UpscalerKind::kCompact: return "SRVGGNetCompact";
    case UpscalerKind::kSpan: return "SPAN";
    case UpscalerKind::kSwin: return "SwinIR";
  }
  return "?";
}

int64_t UpscalerConfig::reach() const {
  if (kind == UpscalerKind::kSpan) return 3 * blocks + 3;
  if (kind == UpscalerKind::kSwin) {  // to the other end of a window in each block
    int64_t far = 4;
    for (const int depth : swin.depths) far += depth * (swin.window - 1) + 2;
    return far;
  }
  if (kind == UpscalerKind::kCompact) return blocks + 2;
  // Convolutions behind the body see finer pixels: less than 2 in all.
  return (blocks * 3 * 5 + 2 + 2) * unshuffle;
}

UpscalerConfig upscaler_config(const WeightStore& store) {
  if (has_any(store, "layers.0.")) return swin_upscaler_config(store);
  if (store.has("conv_cat.weight")) return span_config(store);
  return store.has("conv_first.weight") ? rrdb_config(store) : compact_config(store);
}

DenseBlock::DenseBlock(const UpscalerConfig& config) {
  for (size_t i = 0; i < convs.size(); ++i) {
    const int64_t in = config.features + static_cast<int64_t>(i) * config.growth;
    convs[i] = Conv(in, i + 1 < convs.size() ? config.growth : config.features);
  }
}

void DenseBlock::visit(Visitor& v) {
  for (size_t i = 0; i < convs.size(); ++i) v(concat("conv", i + 1), convs[i]);
}

Tensor DenseBlock::operator()(Exec& ex, const Tensor& x) const {
  Tensor grown;
  for (const Conv& conv : convs) {
    const bool last = &conv == &convs.back();
    ConvArgs args{.pad = Padding::same(1)};
    if (grown) args.second = &grown;
    if (last) args.epilogue.residual = &x;
    Tensor z = conv2d(ex, x, conv, args);
    if (last) return z;  // [N,h,w,features]
    grown = grow(ex, grown, z);
  }
  return grown;
}

Tensor DenseBlock::operator()(Exec& ex, const Tensor& map, const Tensor& into, const Tensor& slopes) const {
  int64_t channels = into.dim(3);
  const Tensor x = map.narrow(3, 0, channels);
  for (const Conv& conv : convs) {
    const bool last = &conv == &convs.back();
    const Tensor z = last ? into : map.narrow(3, channels, conv.out);
    conv2d(ex, map.narrow(3, 0, channels), conv,
           {.pad = Padding::same(1),
            .epilogue = {.residual = last ? &x : nullptr, .slopes = last ? nullptr : &slopes},
            .into = &z});
    channels += conv.out;
  }
  return into;
}

void Rrdb::visit(Visitor& v) {
  for (size_t i = 0; i < dense.size(); ++i) v(concat("rdb", i + 1), dense[i]);
}

Tensor Rrdb::operator()(Exec& ex, const Tensor& x, const Tensor& factor) const {
  Tensor h = x;
  for (const DenseBlock& block : dense) h = block(ex, h);
  return add_scaled(ex, x, h, factor);
}

void Rrdb::operator()(Exec& ex, const std::array<Tensor, 3>& maps, int64_t features, const Tensor& factors,
                      const Tensor& slopes) const {
  const auto first = [&](int map) { return maps[static_cast<size_t>(map)].narrow(3, 0, features); };
  const auto rows = [&](const Tensor& map) { return map.reshape({factors.dim(0), map.dim(3)}); };
  dense[0](ex, maps[0], first(1), slopes);
  dense[1](ex, maps[1], first(2), slopes);
  dense[2](ex, maps[2], first(1), slopes);
  const auto part = [&](int map) { return rows(maps[static_cast<size_t>(map)]).narrow(1, 0, features); };
  add_scaled_into(ex, part(0), part(1), factors, part(2));
}

RrdbNet::RrdbNet(const UpscalerConfig& config)
    : first_(config.in_channels(), config.features),
      body_out_(config.features, config.features),
      hr_(config.features, config.features),
      last_(config.features, config.out_channels()) {
  for (int64_t i = 0; i < config.blocks; ++i) body_.emplace_back(config);
  for (int64_t i = 0; i < config.doublings; ++i) up_.emplace_back(config.features, config.features);
}

void RrdbNet::visit(Visitor& v) {
  v("conv_first", first_);
  v("body", body_);
  v("conv_body", body_out_);
  for (size_t i = 0; i < up_.size(); ++i) v(concat("conv_up", i + 1), up_[i]);
  v("conv_hr", hr_);
  v("conv_last", last_);
}

// In three maps of all channels that a dense block has, of which each convolution reads the first ones and
// writes the next: nothing is joined by copies.
Tensor RrdbNet::body(Exec& ex, const Tensor& features, const Tensor& factors) const {
  const DenseBlock& any = body_.front().dense.front();
  const int64_t width = any.convs.back().in, count = features.dim(3);
  const Tensor of_growth = slopes_.narrow(0, 0, any.convs.front().out);
  std::array<Tensor, 3> maps;
  for (Tensor& map : maps)
    map = ex.alloc({features.dim(0), features.dim(1), features.dim(2), width}, features.dtype());
  copy_into(ex, features, maps[0].narrow(3, 0, count));
  for (const Rrdb& block : body_) {
    block(ex, maps, count, factors, of_growth);
    std::rotate(maps.begin(), maps.begin() + 2, maps.end());  // the sum's map is the next block's first
  }
  return conv2d(ex, maps[0].narrow(3, 0, count), body_out_,
                {.pad = Padding::same(1), .epilogue = {.residual = &features}});
}

bool RrdbNet::is_joined_in_place(const Exec& ex, const Tensor& x, const Tensor& factors) const {
  const DenseBlock& any = body_.front().dense.front();
  const auto pieces = [&](int64_t channels) {
    return channels * static_cast<int64_t>(dtype_size(x.dtype())) % 16 == 0;
  };
  return conv2d_takes_parts(ex) && factors.dim(0) == x.dim(0) * x.dim(1) * x.dim(2) &&
         pieces(any.convs.front().in) && pieces(any.convs.front().out);
}

void RrdbNet::prepare(Device& device) {
  const int64_t count = std::max(hr_.out, body_.front().dense.front().convs.front().out);
  const std::vector<float> slopes(static_cast<size_t>(count), kSlope);
  slopes_ = tensor_from(device, {count}, slopes.data());
}

// A convolution and a rectifier, in one launch where there are such.
Tensor RrdbNet::rectified_conv(Exec& ex, const Tensor& x, const Conv& conv, bool upsample2x) const {
  ConvArgs args{.pad = Padding::same(1), .upsample2x = upsample2x};
  if (!conv2d_takes_slopes(ex)) return rectified(ex, conv2d(ex, x, conv, args));
  const Tensor slopes = slopes_.narrow(0, 0, conv.out);
  args.epilogue.slopes = &slopes;
  return conv2d(ex, x, conv, args);
}

Tensor RrdbNet::operator()(Exec& ex, const Tensor& x, const Tensor& factors) const {
  const Tensor features = same_conv(ex, x, first_);  // [N,h,w,F]
  Tensor h = features;
  if (is_joined_in_place(ex, x, factors)) {
    h = body(ex, features, factors);
  } else {
    for (const Rrdb& block : body_) h = block(ex, h, factors.narrow(0, 0, 1));
    h = same_conv(ex, h, body_out_, &features);
  }
  for (const Conv& up : up_) h = rectified_conv(ex, h, up, true);  // [N,2h,2w,F]
  h = rectified_conv(ex, h, hr_);
  return same_conv(ex, h, last_);
}

CompactNet::CompactNet(const UpscalerConfig& config) {
  convs_.emplace_back(3, config.features);
  for (int64_t i = 0; i < config.blocks; ++i) convs_.emplace_back(config.features, config.features);
  for (size_t i = 0; i < convs_.size(); ++i) slopes_.emplace_back(1, config.features);
  convs_.emplace_back(config.features, config.out_channels());
}

void CompactNet::visit(Visitor& v) {
  for (size_t i = 0; i < convs_.size(); ++i) {
    v(concat("body.", 2 * i), convs_[i]);
    if (i < slopes_.size()) v(concat("body.", 2 * i + 1), slopes_[i]);
  }
}

Tensor CompactNet::operator()(Exec& ex, const Tensor& x) const {
  Tensor h = x;
  for (size_t i = 0; i < slopes_.size(); ++i)
    h = conv2d_takes_slopes(ex)
            ? conv2d(ex, h, convs_[i], {.pad = Padding::same(1), .epilogue = {.slopes = &wide_slopes_[i]}})
            : prelu(ex, same_conv(ex, h, convs_[i]), slopes_[i].table);  // [N,h,w,F]
  return same_conv(ex, h, convs_.back());
}

void CompactNet::prepare(Device& device) {
  wide_slopes_.clear();
  for (const Embedding& of : slopes_) {
    const std::vector<float> values = to_floats(device, of.table);
    wide_slopes_.push_back(tensor_from(device, {std::ssize(values)}, values.data()));
  }
}

SpanBlock::SpanBlock(const UpscalerConfig& config) { convs.fill(Conv(config.features, config.features)); }

void SpanBlock::visit(Visitor& v) {
  for (size_t i = 0; i < convs.size(); ++i) v(concat("c", i + 1, "_r"), convs[i]);
}

Tensor SpanBlock::operator()(Exec& ex, const Tensor& x, Tensor* inner) const {
  const Epilogue silu{.act = Activation::kSilu};
  Tensor h = conv2d(ex, x, convs[0], {.pad = Padding::same(1), .epilogue = silu});
  if (inner != nullptr) *inner = h;
  h = conv2d(ex, h, convs[1], {.pad = Padding::same(1), .epilogue = silu});
  return symmetric_gate(ex, same_conv(ex, h, convs[2]), x);  // [N,h,w,features]
}

SpanNet::SpanNet(const UpscalerConfig& config)
    : first_(config.in_channels(), config.features),
      body_out_(config.features, config.features),
      join_(4 * config.features, config.features, 1),
      last_(config.features, config.out_channels()) {
  if (config.normalised) input_ = Conv(3, 3, 1);
  for (int64_t i = 0; i < config.blocks; ++i) blocks_.emplace_back(config);
}

void SpanNet::visit(Visitor& v) {
  v("input", input_);
  v("conv_1", first_);
  for (size_t i = 0; i < blocks_.size(); ++i) v(concat("block_", i + 1), blocks_[i]);
  v("conv_2", body_out_);
  v("conv_cat", join_);
  v("upsampler.0", last_);
}

Tensor SpanNet::operator()(Exec& ex, const Tensor& x) const {
  const Tensor read = input_ ? conv2d(ex, x, *input_) : x;  // [N,h,w,3]
  const Tensor features = same_conv(ex, read, first_);      // [N,h,w,F]
  Tensor first_block, inner;
  Tensor h = features;
  for (const SpanBlock& block : blocks_) {
    h = block(ex, h, &block == &blocks_.back() ? &inner : nullptr);
    if (&block == &blocks_.front()) first_block = h;
  }
  const Tensor ends = concat_channels(ex, features, same_conv(ex, h, body_out_));  // [N,h,w,2F]
  const Tensor inside = concat_channels(ex, first_block, inner);                   // [N,h,w,2F]
  h = conv2d(ex, ends, join_, {.second = &inside});
  return same_conv(ex, h, last_);
}

UpscalerNet::UpscalerNet(const UpscalerConfig& config) : config_(config), net_(CompactNet(config)) {
  if (config.kind == UpscalerKind::kRrdb) net_ = RrdbNet(config);
  if (config.kind == UpscalerKind::kSpan) net_ = SpanNet(config);
  if (config.kind == UpscalerKind::kSwin)
    net_ = SwinNet(config.swin, config.features, config.doublings, config.shuffle);
}

void UpscalerNet::visit(Visitor& v) {
  std::visit([&](auto& net) { net.visit(v); }, net_);
}

void UpscalerNet::load(Device& device, const ParameterSource& source, DType compute) {
  if (auto* net = std::get_if<SwinNet>(&net_))
    net->load(device, source, compute);
  else
    load_parameters(*this, device, source, compute);
  dtype_ = compute;
  if (auto* net = std::get_if<CompactNet>(&net_)) net->prepare(device);
  if (auto* net = std::get_if<RrdbNet>(&net_)) net->prepare(device);
  prepare(device, 1);
}

void UpscalerNet::prepare(Device& device, int64_t pixels) {
  if (config_.kind != UpscalerKind::kRrdb || (factors_ && factors_.dim(0) == pixels)) return;
  const std::vector<float> factors(static_cast<size_t>(pixels), RrdbNet::kFactor);
  factors_ = tensor_from(device, {pixels}, factors.data());
}

Tensor UpscalerNet::operator()(Exec& ex, const Tensor& x) const {
  require(x.rank() == 4 && x.dim(0) == 1 && x.dim(3) == config_.in_channels() && x.dtype() == dtype_,
          "upscaler: expected [1,h,w,", config_.in_channels(), "] of ", dtype_, ", got ", x.shape(), " of ",
          x.dtype());
  if (const auto* net = std::get_if<RrdbNet>(&net_)) return (*net)(ex, x, factors_);
  if (const auto* net = std::get_if<SpanNet>(&net_)) return (*net)(ex, x);
  if (const auto* net = std::get_if<SwinNet>(&net_)) return (*net)(ex, x);
  return std::get<CompactNet>(net_)(ex, x);
}

}  // namespace rocm_sd
