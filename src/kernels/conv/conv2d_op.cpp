#include "kernels/conv/conv2d_op.hpp"

#include "kernels/conv/conv2d.hpp"
#include "kernels/exact.hpp"
#include "kernels/ops.hpp"

namespace rocm_sd {
namespace {

double product(std::initializer_list<int64_t> extents) {
  double out = 1;
  for (const int64_t e : extents) out *= static_cast<double>(e);
  return out;
}
double size_of(DType type) { return static_cast<double>(dtype_size(type)); }

}  // namespace

AnyOp conv2d_op() { return Op<ConvSpec>::any(); }

double ConvSpec::flops() const {
  return 2 * product({batch, out_h(), out_w(), out_channels}) * product({filter_h, filter_w, all_channels()});
}
double ConvSpec::bytes() const {
  return product({batch, height, width, all_channels()}) * size_of(dtype) +
         product({filter_h, filter_w, all_channels(), out_channels}) * size_of(weight.value_or(dtype)) +
         product({batch, out_h(), out_w(), out_channels}) * (residual ? 2 : 1) * size_of(result_type());
}
OutputExtent ConvSpec::extent() const {
  return {1, std::max(1.0, product({batch, out_h(), out_w()})), static_cast<double>(out_channels)};
}

void ConvSpec::check() const {
  for (const auto& [name, value] : {std::pair{"batch", batch},
                                    {"height", height},
                                    {"width", width},
                                    {"second_channels", second_channels}})
    require_extent(kOp, name, value, 0);
  for (const auto& [name, value] : {std::pair{"channels", channels},
                                    {"out_channels", out_channels},
                                    {"filter_h", filter_h},
                                    {"filter_w", filter_w}})
    require_extent(kOp, name, value, 1);
  require_extent(kOp, "scales", scales, 0);
  require(scales || !shared_scale, "conv2d: shared_scale without scales");
  require(!slopes || act == Activation::kNone, "conv2d: slopes and an activation");
  require(stride >= 1 && pad_top >= 0 && pad_left >= 0 && pad_bottom >= 0 && pad_right >= 0,
          "conv2d: a negative stride or padding");
  require(out_h() >= 1 && out_w() >= 1, "conv2d: the filter ", filter_h, "x", filter_w,
          " is larger than the padded input ", scale() * height + pad_top + pad_bottom, "x",
          scale() * width + pad_left + pad_right);
  require(!scales || batch * out_h() * out_w() % scales == 0, "conv2d: the pixels in ", scales,
          " equal parts");
}

std::vector<Operand> ConvSpec::operands() const {
  const Shape y = {batch, out_h(), out_w(), out_channels};
  std::vector<Operand> out = {
      dense(Role::kX, {batch, height, width, channels}, dtype),
      dense(Role::kWeight, {out_channels, all_channels(), filter_h, filter_w}, weight.value_or(dtype)),
      dense(Role::kY, y, result_type(), true)};
  if (second_channels) out.push_back(dense(Role::kSecond, {batch, height, width, second_channels}, dtype));
  if (bias) out.push_back(dense(Role::kBias, {out_channels}, DType::kF32));
  if (shift) out.push_back(dense(Role::kShift, {batch, out_channels}, DType::kF32));
  if (residual) out.push_back(dense(Role::kResidual, y, result_type()));
  if (scales) {
    out.push_back(dense(input_role(0), {scales, shared_scale ? 1 : out_channels}, DType::kF32));
    out.back().name = "channel_scale";
  }
  if (slopes) {
    out.push_back(dense(input_role(1), {out_channels}, DType::kF32));
    out.back().name = "slopes";
  }
  return out;
}

std::vector<Result> ConvSpec::run(Exec& ex, const Operands& in, const Weight& filter) const {
  const ConvWeight w{filter, optional_operand(in, Role::kBias)};
  const auto second = optional_operand(in, Role::kSecond), channel_shift = optional_operand(in, Role::kShift),
             addend = optional_operand(in, Role::kResidual),
             channel_scale = optional_operand(in, input_role(0)), below = optional_operand(in, input_role(1));
  const ConvArgs args{
      .stride = stride,
      .pad = {pad_top, pad_left, pad_bottom, pad_right},
      .upsample2x = upsample2x,
      .second = second ? &*second : nullptr,
      .epilogue = {channel_shift ? &*channel_shift : nullptr, addend ? &*addend : nullptr, act, result,
                   channel_scale ? &*channel_scale : nullptr, nullptr, false, below ? &*below : nullptr}};
  return {{Role::kY, 0, conv2d(ex, in.at(Role::kX), w, args)}};
}

ExactValue ConvSpec::exact(const OperandValues& in, int64_t i) const {
  const int64_t k = i % out_channels, x = i / out_channels % out_w();
  const int64_t y = i / out_channels / out_w() % out_h(), image = i / out_channels / out_w() / out_h();
  exact::Sum sum;
  const auto add_pixel = [&](Role role, int64_t count, int64_t first, int64_t pixel, int64_t tap) {
    for (int64_t c = 0; c < count; ++c)
      sum.add(in.value(role, pixel * count + c) *
              in.value(Role::kWeight, (k * all_channels() + first + c) * filter_h * filter_w + tap));
  };
  for (int64_t r = 0; r < filter_h; ++r)
    for (int64_t s = 0; s < filter_w; ++s) {
      const int64_t iy = y * stride + r - pad_top, ix = x * stride + s - pad_left;
      if (iy < 0 || ix < 0 || iy >= scale() * height || ix >= scale() * width) continue;
      const int64_t pixel = (image * height + iy / scale()) * width + ix / scale(), tap = r * filter_w + s;
      add_pixel(Role::kX, channels, 0, pixel, tap);
      if (second_channels) add_pixel(Role::kSecond, second_channels, channels, pixel, tap);
    }
  const double convolved = std::fabs(sum.value), convolved_magnitude = sum.magnitude;
  if (bias) sum.add(in.value(Role::kBias, k));
  if (shift) sum.add(in.value(Role::kShift, image * out_channels + k));
  if (scales) {
    const int64_t part = i / out_channels / (batch * out_h() * out_w() / scales);
    const double factor = in.value(input_role(0), shared_scale ? part : part * out_channels + k);
    sum = {sum.value * factor, sum.magnitude * std::fabs(factor)};
  }
  if (residual) sum.add(in.value(Role::kResidual, i));
  if (slopes) {
    // An error of the sum may be on either side of zero.
    const double slope = in.value(input_role(1), k);
    sum = {sum.value < 0 ? sum.value * slope : sum.value, sum.magnitude * std::max(1.0, std::fabs(slope))};
  }
  ExactValue out = exact::finished(sum, act, result_type());
  out.stored_sum = 1.2 * exact::unit_of(result_type()) * convolved;
  // A doubled image's filter may be summed to four of 2x2 and stored in its type.
  if (upsample2x)
    out.tolerance += 2 * exact::unit_of(in.type_of(Role::kWeight)) * sum.magnitude /
                     std::sqrt(static_cast<double>(all_channels()));
  // A GPU may multiply transformed pixels and filters (fused/winograd.hpp): three roundings to f16 of values
  // with 25/9 of the sum's variance, an error of 1.2 units of the products' root of squares, 9 deviations
  // wide.
  const bool may_transform = dtype == DType::kF16 && result_type() == dtype &&
                             weight.value_or(dtype) == dtype && filter_h == 3 && filter_w == 3 &&
                             stride == 1 && !upsample2x && !second_channels;
  if (may_transform)
    out.tolerance +=
        6 * exact::unit_of(dtype) * convolved_magnitude / std::sqrt(static_cast<double>(channels));
  return out;
}

}  // namespace rocm_sd
