#include "models/swinir.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/conv/conv2d.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/gemm/linear.hpp"
#include "kernels/norm/norm.hpp"

namespace rocm_sd {
namespace {

constexpr float kSlope = 0.2f, kSlopeBefore = 0.01f;  // of the rectifiers; of the one before enlarging
constexpr float kFar = -100.0f;   // added to scores between pixels that the roll alone made neighbours
constexpr int64_t kGpuHead = 40;  // channels: the least that flash attention's kernels have

Tensor same_conv(Exec& ex, const Tensor& x, const Conv& conv, const Tensor* residual = nullptr) {
  return conv2d(ex, x, conv,
                {.pad = Padding::same((conv.kernel - 1) / 2), .epilogue = {.residual = residual}});
}

// Parameters whose heads have zeros behind their channels.
class WidenedHeads final : public ParameterSource {
 public:
  WidenedHeads(const ParameterSource& base, int64_t head_dim, int64_t room)
      : base_(base), head_dim_(head_dim), room_(room) {}
  std::string title() const override { return base_.title(); }
  bool has(const std::string& name) const override { return base_.has(name); }
  void ignore(const std::string& name) const override { base_.ignore(name); }
  void read(const std::string& name, const Shape& shape, DType dtype, void* dst) const override {
    const bool rows = name.find(".attn.qkv.") != name.npos;
    if (!rows && !name.ends_with(".attn.proj.weight")) return base_.read(name, shape, dtype, dst);
    const int axis = rows ? 0 : 1;
    Shape own = shape;
    own[axis] = shape[axis] / room_ * head_dim_;
    std::vector<char> values(static_cast<size_t>(own.numel()) * dtype_size(dtype));
    base_.read(name, own, dtype, values.data());
    // Runs of a head's channels, each of `inner` elements.
    const int64_t inner = axis == 0 && shape.rank() == 2 ? shape[1] : 1;
    const auto from = static_cast<size_t>(head_dim_ * inner) * dtype_size(dtype),
               to = static_cast<size_t>(room_ * inner) * dtype_size(dtype);
    std::memset(dst, 0, static_cast<size_t>(shape.numel()) * dtype_size(dtype));
    for (size_t head = 0; head * from < values.size(); ++head)
      std::memcpy(static_cast<char*>(dst) + head * to, values.data() + head * from, from);
  }

 private:
  const ParameterSource& base_;
  int64_t head_dim_, room_;
};

}  // namespace

SwinConv::SwinConv(int64_t width, bool three) {
  if (three)
    convs = {Conv(width, width / 4), Conv(width / 4, width / 4, 1), Conv(width / 4, width)};
  else
    convs = {Conv(width, width)};
}

void SwinConv::visit(Visitor& v, const char* name) {
  if (convs.size() == 1) return v(name, convs[0]);
  for (size_t i = 0; i < convs.size(); ++i) v(concat(name, ".", 2 * i), convs[i]);  // rectifiers between
}

Tensor SwinConv::operator()(Exec& ex, const Tensor& x, const Tensor& residual) const {
  Tensor h = x;
  for (const Conv& conv : convs) {
    const bool last = &conv == &convs.back();
    h = same_conv(ex, h, conv, last ? &residual : nullptr);
    if (!last) h = leaky_relu(ex, h, kSlope);
  }
  return h;
}

SwinBlock::SwinBlock(int64_t width, const SwinConfig& config, bool shifted)
    : norm1(width),
      norm2(width),
      qkv(width, 3 * width),
      proj(width, width),
      fc1(width, config.hidden),
      fc2(config.hidden, width),
      positions((2 * config.window - 1) * (2 * config.window - 1), config.heads),
      heads(config.heads),
      head_dim(width / config.heads),
      window(config.window),
      shift(shifted ? config.window / 2 : 0),
      room_(head_dim) {}

void SwinBlock::visit(Visitor& v) {
  v("norm1", norm1);
  v("attn.qkv", qkv);
  v("attn.proj", proj);
  v("attn.positions", positions);
  v("norm2", norm2);
  v("mlp.fc1", fc1);
  v("mlp.fc2", fc2);
}

void SwinBlock::widen_heads(int64_t room) {
  room_ = room;
  qkv = Linear(qkv.in, 3 * heads * room);
  proj = Linear(heads * room, proj.out);
}

// Of two pixels of a window (v, u) and (v', u') the table's row is (v - v' + w - 1)(2w - 1) + u - u' + w - 1.
void SwinBlock::make_masks(Device& device, const ParameterSource& source, const std::string& name) {
  const int64_t side = window, pixels = side * side, across = 2 * side - 1, kinds = shift > 0 ? 4 : 1;
  std::vector<float> table(static_cast<size_t>(across * across * heads));
  source.read(name, {across * across, heads}, DType::kF32, table.data());
  std::vector<float> values;
  values.reserve(static_cast<size_t>(kinds * heads * pixels * pixels));
  const int64_t border = side - shift;  // pixels from here on come from the other side of the map
  for (int64_t kind = 0; kind < kinds; ++kind)
    for (int64_t head = 0; head < heads; ++head)
      for (int64_t i = 0; i < pixels; ++i)
        for (int64_t j = 0; j < pixels; ++j) {
          const int64_t v = i / side, u = i % side, v2 = j / side, u2 = j % side;
          const int64_t row = (v - v2 + side - 1) * across + u - u2 + side - 1;
          const bool apart = ((kind & 2) && (v >= border) != (v2 >= border)) ||
                             ((kind & 1) && (u >= border) != (u2 >= border));
          values.push_back(table[static_cast<size_t>(row * heads + head)] + (apart ? kFar : 0.0f));
        }
  masks = tensor_from(device, {kinds, heads, pixels, pixels}, values.data());
}

// packed [windows,w^2,3*heads*room] -> [windows,w^2,heads*room]: a call for each kind of windows, whose masks
// are the same.
Tensor SwinBlock::attended(Exec& ex, const Tensor& packed, const WindowGrid& grid) const {
  const int64_t width = heads * room_;
  Tensor all;
  int64_t first = 0;
  for (int kind = 0; kind < 4; ++kind) {
    const int64_t count = grid.windows_of(kind);
    if (count == 0) continue;
    const Tensor own = packed.narrow(0, first, count), mask = masks.narrow(0, kind, 1);
    const Tensor h =
        attention(ex, own.narrow(2, 0, width), own.narrow(2, width, width), own.narrow(2, 2 * width, width),
                  {.heads = static_cast<int>(heads),
                   .scale = 1.0f / std::sqrt(static_cast<float>(head_dim)),
                   .mask = &mask});
    if (count == grid.windows()) return h;
    if (!all) all = ex.alloc({grid.windows(), packed.dim(1), width}, h.dtype());
    copy_into(ex, h, all.narrow(0, first, count));
    first += count;
  }
  return all;
}

Tensor SwinBlock::operator()(Exec& ex, Tensor x) const {
  const WindowGrid grid{x.dim(1), x.dim(2), window, shift};
  Tensor h = window_partition(ex, layer_norm(ex, x, norm1, norm1.eps), grid);  // [windows,w^2,C]
  h = attended(ex, linear(ex, h, qkv), grid);
  x = window_reverse(ex, linear(ex, h, proj), x, grid);
  h = linear(ex, layer_norm(ex, x, norm2, norm2.eps), fc1, {.act = Activation::kGelu});
  return linear(ex, h, fc2, {.residual = &x});
}

SwinLayer::SwinLayer(int64_t width, const SwinConfig& config, int depth) : conv(width, config.three_convs) {
  for (int i = 0; i < depth; ++i) blocks.emplace_back(width, config, i % 2 == 1);
}

void SwinLayer::visit(Visitor& v) {
  v("blocks", blocks);
  conv.visit(v, "conv");
}

Tensor SwinLayer::operator()(Exec& ex, const Tensor& x) const {
  Tensor h = x;
  for (const SwinBlock& block : blocks) h = block(ex, std::move(h));
  return conv(ex, h, x);
}

SwinNet::SwinNet(const SwinConfig& config, int64_t width, int64_t doublings, int64_t side)
    : config_(config),
      input_(3, 3, 1),
      first_(3, width),
      norm_(width),
      after_body_(width, config.three_convs) {
  if (config.embed_norm) embed_norm_ = Norm(width);
  for (const int depth : config.depths) layers_.emplace_back(width, config, depth);
  const int64_t features = config.features;
  switch (config.upsampler) {
    case SwinUpsampler::kShuffle:
      before_ = Conv(width, features);
      for (int64_t i = 0; i < doublings; ++i) up_.emplace_back(features, 4 * features);
      if (config.tripled == 3) up_.emplace_back(features, 9 * features);
      last_ = Conv(features, 3);
      break;
    case SwinUpsampler::kDirectShuffle: up_.emplace_back(width, 3 * side * side); break;
    case SwinUpsampler::kNearest:
      before_ = Conv(width, features);
      for (int64_t i = 0; i < doublings; ++i) up_.emplace_back(features, features);
      hr_ = Conv(features, features);
      last_ = Conv(features, 3);
      break;
    case SwinUpsampler::kNone: last_ = Conv(width, 3); break;
  }
}

void SwinNet::visit(Visitor& v) {
  v("input", input_);
  v("conv_first", first_);
  v("patch_embed.norm", embed_norm_);
  v("layers", layers_);
  v("norm", norm_);
  after_body_.visit(v, "conv_after_body");
  v("conv_before_upsample.0", before_);
  const bool nearest = config_.upsampler == SwinUpsampler::kNearest;
  for (size_t i = 0; i < up_.size(); ++i)  // in the sequence a shuffle follows each convolution
    v(nearest ? concat("conv_up", i + 1) : concat("upsample.", 2 * i), up_[i]);
  v("conv_hr", hr_);
  v("conv_last", last_);
}

void SwinNet::load(Device& device, const ParameterSource& source, DType compute) {
  const SwinBlock& any = layers_.front().blocks.front();
  const bool widen = device.kind() != DeviceKind::kHost && any.head_dim < kGpuHead;
  if (widen)
    for (SwinLayer& layer : layers_)
      for (SwinBlock& block : layer.blocks) block.widen_heads(kGpuHead);
  const WidenedHeads widened(source, any.head_dim, kGpuHead);
  load_parameters(*this, device, widen ? static_cast<const ParameterSource&>(widened) : source, compute);
  for (size_t i = 0; i < layers_.size(); ++i)
    for (size_t j = 0; j < layers_[i].blocks.size(); ++j)
      layers_[i].blocks[j].make_masks(device, source,
                                      concat("layers.", i, ".blocks.", j, ".attn.positions.weight"));
}

Tensor SwinNet::enlarged(Exec& ex, Tensor x) const {
  if (config_.upsampler == SwinUpsampler::kDirectShuffle) return same_conv(ex, x, up_.front());
  if (before_) x = leaky_relu(ex, same_conv(ex, x, *before_), kSlopeBefore);
  for (const Conv& up : up_) {
    if (config_.upsampler == SwinUpsampler::kNearest) {
      x = conv2d(ex, x, up, {.pad = Padding::same(1), .upsample2x = true});  // [1,2h,2w,F]
      x = leaky_relu(ex, x, kSlope);
    } else {
      x = pixel_shuffle(ex, same_conv(ex, x, up), up.out == 9 * up.in ? 3 : 2);
    }
  }
  if (hr_) x = leaky_relu(ex, same_conv(ex, x, *hr_), kSlope);
  return same_conv(ex, x, *last_);
}

Tensor SwinNet::operator()(Exec& ex, const Tensor& x) const {
  const int64_t side = config_.window;
  require(x.dim(1) % side == 0 && x.dim(2) % side == 0, "upscaler: expected sides of multiples of ", side,
          ", got ", x.shape());
  const Tensor features = same_conv(ex, conv2d(ex, x, input_), first_);  // [1,h,w,C]
  Tensor h = embed_norm_ ? layer_norm(ex, features, *embed_norm_, embed_norm_->eps) : features;
  for (const SwinLayer& layer : layers_) h = layer(ex, h);
  h = layer_norm(ex, h, norm_, norm_.eps);
  return enlarged(ex, after_body_(ex, h, features));
}

}  // namespace rocm_sd
