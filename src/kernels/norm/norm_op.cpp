#include "kernels/norm/norm_op.hpp"

#include "kernels/elementwise/elementwise.hpp"
#include "kernels/exact.hpp"
#include "kernels/norm/norm.hpp"
#include "kernels/ops.hpp"

namespace rocm_sd {
namespace {

struct Affine {
  double gain, bias;
};

// The norm of x, one of `count` values at(j). rounding: what storing them took away from each, relatively.
template <class At>
ExactValue normalised(const At& at, int64_t count, double x, float eps, const Affine& affine, Activation act,
                      DType type, double rounding = 0) {
  double mean = 0, square = 0, most = 0;
  const auto n = static_cast<double>(count);
  for (int64_t j = 0; j < count; ++j) {
    mean += at(j) / n;
    most = std::max(most, std::fabs(at(j)));
  }
  for (int64_t j = 0; j < count; ++j) square += std::pow(at(j) - mean, 2) / n;
  const double factor = affine.gain / std::sqrt(square + eps);
  exact::Sum sum;
  sum.add((x - mean) * factor);
  sum.add(affine.bias);
  ExactValue out = exact::finished(sum, act, type);
  out.tolerance += 4 * rounding * most * std::fabs(factor);  // of x, of the mean and of the deviation
  return out;
}

}  // namespace

AnyOp group_norm_op() { return Op<GroupNormSpec>::any(); }
AnyOp layer_norm_op() { return Op<LayerNormSpec>::any(); }

void GroupNormSpec::check() const {
  require_extent(kOp, "batch", batch, 0);
  require_extent(kOp, "pixels", pixels, 0);
  require_extent(kOp, "channels", channels, 1);
  require_extent(kOp, "second_channels", second_channels, 0);
  require(groups >= 1 && groups <= INT32_MAX, "group_norm: groups is ", groups);
}

std::vector<Operand> GroupNormSpec::operands() const {
  std::vector<Operand> out = {dense(Role::kX, {batch, pixels, 1, channels}, dtype),
                              dense(Role::kWeight, {all_channels()}, DType::kF32),
                              dense(Role::kBias, {all_channels()}, DType::kF32),
                              dense(Role::kY, {batch, pixels, 1, all_channels()}, result_type(), true)};
  if (second_channels) out.push_back(dense(Role::kSecond, {batch, pixels, 1, second_channels}, dtype));
  return out;
}

std::vector<Result> GroupNormSpec::run(Exec& ex, const Operands& in, const Weight&) const {
  const auto second = optional_operand(in, Role::kSecond);
  const GroupNormArgs args{.groups = static_cast<int>(groups),
                           .eps = eps,
                           .act = act,
                           .second = second ? &*second : nullptr,
                           .dtype = result};
  const NormWeight w{in.at(Role::kWeight), in.at(Role::kBias)};
  return {{Role::kY, 0, group_norm(ex, in.at(Role::kX), w, args)}};
}

ExactValue GroupNormSpec::exact(const OperandValues& in, int64_t i) const {
  const int64_t all = all_channels(), width = all / groups;
  const int64_t channel = i % all, pixel = i / all % pixels, image = i / all / pixels;
  const int64_t first = channel / width * width;
  const auto value = [&](int64_t where, int64_t c) {
    const int64_t row = image * pixels + where;
    return c < channels ? in.value(Role::kX, row * channels + c)
                        : in.value(Role::kSecond, row * second_channels + c - channels);
  };
  return normalised([&](int64_t j) { return value(j / width, first + j % width); }, pixels * width,
                    value(pixel, channel), eps,
                    {in.value(Role::kWeight, channel), in.value(Role::kBias, channel)}, act, result_type());
}

void LayerNormSpec::check() const {
  require_extent(kOp, "rows", rows, 0);
  require_extent(kOp, "channels", channels, 1);
}

std::vector<Operand> LayerNormSpec::operands() const {
  const Shape shape = {rows, channels};
  std::vector<Operand> out = {dense(Role::kX, shape, dtype), dense(Role::kWeight, {channels}, DType::kF32),
                              dense(Role::kBias, {channels}, DType::kF32),
                              dense(Role::kY, shape, result_type(), true)};
  if (residual) {
    out.push_back(dense(Role::kResidual, shape, dtype));
    out.push_back(dense(Role::kSum, shape, dtype, true));
  }
  return out;
}

std::vector<Result> LayerNormSpec::run(Exec& ex, const Operands& in, const Weight&) const {
  const NormWeight w{in.at(Role::kWeight), in.at(Role::kBias)};
  const auto addend = optional_operand(in, Role::kResidual);
  if (!addend) return {{Role::kY, 0, layer_norm(ex, in.at(Role::kX), w, eps, result)}};
  const Tensor sum = add(ex, in.at(Role::kX), *addend);
  return {{Role::kSum, 0, sum}, {Role::kY, 0, layer_norm(ex, sum, w, eps, result)}};
}

ExactValue LayerNormSpec::exact(const OperandValues& in, int64_t i) const {
  const int64_t row = i / channels, column = i % channels;
  const auto at = [&](int64_t c) {
    const int64_t place = row * channels + c;
    return in.value(Role::kX, place) + (residual ? in.value(Role::kResidual, place) : 0.0);
  };
  return normalised(at, channels, at(column), eps,
                    {in.value(Role::kWeight, column), in.value(Role::kBias, column)}, Activation::kNone,
                    result_type(), residual ? exact::unit_of(dtype) : 0);
}

}  // namespace rocm_sd
