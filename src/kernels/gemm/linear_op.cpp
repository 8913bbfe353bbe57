#include "kernels/gemm/linear_op.hpp"

#include "kernels/eight_bit.hpp"
#include "kernels/exact.hpp"
#include "kernels/gemm/linear.hpp"
#include "kernels/ops.hpp"

namespace rocm_sd {
namespace {

using exact::Sum;

const Role kScale = input_role(0), kStates = input_role(1), kUp = input_role(2);

double size_of(DType type) { return static_cast<double>(dtype_size(type)); }

int64_t stride_of(const LinearSpec& p) { return p.x_stride ? p.x_stride : p.in; }

// What rounding x to 8 bits, a row at a time, may do to a sum of products, at 6 deviations: an integer's
// rounding is evenly spread over a step, of a float with 3 bits of mantissa over at most 2^-3 of it.
double quantised_error(const LinearSpec& p, const OperandValues& in, int64_t row, int64_t column) {
  if (!in.rounded_to()) return 0;
  double most = 0, square = 0, weighted = 0;
  for (int64_t k = 0; k < p.in; ++k) {
    const double x = in.value(Role::kX, row * stride_of(p) + k),
                 w = in.value(Role::kWeight, column * p.in + k);
    most = std::max(most, std::fabs(x));
    square += w * w;
    weighted += w * w * x * x;
  }
  const double variance =
      *in.rounded_to() == DType::kI8 ? square * most * most / (127.0 * 127.0) : weighted * 0x1p-3 * 0x1p-3;
  return 6 * std::sqrt(variance / 12);
}

Sum dot(const LinearSpec& p, const OperandValues& in, int64_t row, int64_t column) {
  Sum sum;
  for (int64_t k = 0; k < p.in; ++k)
    sum.add(in.value(Role::kX, row * stride_of(p) + k) * in.value(Role::kWeight, column * p.in + k));
  for (int64_t r = 0; r < p.rank; ++r)
    sum.add(in.value(kStates, row * p.rank + r) * in.value(kUp, column * p.rank + r));
  if (p.bias) sum.add(in.value(Role::kBias, column));
  return sum;
}

}  // namespace

AnyOp linear_op() { return Op<LinearSpec>::any(); }

std::optional<DType> LinearSpec::eight_bit_weight() const {
  return weight && is_eight_bit(*weight) ? weight : std::nullopt;
}

double LinearSpec::flops() const {
  return 2 * static_cast<double>(rows) * static_cast<double>(columns) * static_cast<double>(in + rank);
}
double LinearSpec::bytes() const {
  return static_cast<double>(rows) * static_cast<double>(in) * size_of(dtype) +
         static_cast<double>((rows + columns) * rank) * size_of(dtype) +
         static_cast<double>(rows) * static_cast<double>(out()) * (residual ? 2 : 1) *
             size_of(result_type()) +
         static_cast<double>(columns) * static_cast<double>(in) * size_of(weight.value_or(dtype));
}

void LinearSpec::check() const {
  require_extent(kOp, "rows", rows, 0);
  require_extent(kOp, "in", in, 1);
  require_extent(kOp, "out", out(), 1);
  require(x_stride == 0 || x_stride >= in, "linear: x_stride is ", x_stride, ", a row has ", in, " elements");
  require(!gated || (act == Activation::kNone && !residual && !scales),
          "linear: gated takes no activation, no residual and no scale");
  require(scales || !shared_scale, "linear: shared_scale without scales");
  require_extent(kOp, "scales", scales, 0);
  require_extent(kOp, "rank", rank, 0);
  require(!scales || rows % scales == 0, "linear: ", rows, " rows in ", scales, " equal parts");
}

std::vector<Operand> LinearSpec::operands() const {
  const DType plain =
      eight_bit_weight() ? dtype : weight.value_or(dtype);  // quantised from the product's type
  std::vector<Operand> all = {{Role::kX, {rows, in}, {stride_of(*this), 1}, dtype},
                              dense(Role::kWeight, {columns, in}, plain),
                              dense(Role::kY, {rows, out()}, result_type(), true)};
  if (bias) all.push_back(dense(Role::kBias, {columns}, DType::kF32));
  if (residual) all.push_back(dense(Role::kResidual, {rows, out()}, result_type()));
  const auto named = [&](Role role, const Shape& shape, DType type, const char* name) {
    all.push_back(dense(role, shape, type));
    all.back().name = name;
  };
  if (scales) named(kScale, {scales, shared_scale ? 1 : columns}, DType::kF32, "channel_scale");
  if (rank) named(kStates, {rows, rank}, dtype, "states");
  if (rank) named(kUp, {columns, rank}, plain, "up");
  return all;
}

std::vector<Result> LinearSpec::run(Exec& ex, const Operands& operands, const Weight& weight) const {
  const LinearWeight w{weight, optional_operand(operands, Role::kBias)};
  const auto addend = optional_operand(operands, Role::kResidual);
  const auto scale = optional_operand(operands, kScale), states = optional_operand(operands, kStates),
             up = optional_operand(operands, kUp);
  const Weight up_weight = up ? Weight(*up) : Weight();
  const LowRankProduct term{states ? &*states : nullptr, &up_weight};
  const Epilogue epilogue{.residual = addend ? &*addend : nullptr,
                          .act = act,
                          .dtype = result,
                          .channel_scale = scale ? &*scale : nullptr,
                          .low_rank = states ? &term : nullptr};
  const Tensor& x = operands.at(Role::kX);
  return {{Role::kY, 0, gated ? linear_geglu(ex, x, w, epilogue.low_rank) : linear(ex, x, w, epilogue)}};
}

ExactValue LinearSpec::exact(const OperandValues& values, int64_t i) const {
  const int64_t row = i / out(), column = i % out();
  Sum sum = dot(*this, values, row, column);
  const double error = quantised_error(*this, values, row, column);
  if (gated) {
    const Sum gate = dot(*this, values, row, out() + column);
    const double g = exact::gelu(gate.value), value = sum.value * g;
    return {value, 2 * exact::unit_of(result_type()) * std::fabs(value) +
                       exact::kSumUnits * exact::kFloatUnit *
                           (std::fabs(g) * sum.magnitude + 1.2 * std::fabs(sum.value) * gate.magnitude) +
                       std::fabs(g) * error +
                       1.2 * std::fabs(sum.value) * quantised_error(*this, values, row, out() + column) +
                       1e-7};
  }
  double scale = 1;
  if (scales) {
    const int64_t part = row / (rows / scales);
    scale = values.value(kScale, shared_scale ? part : part * out() + column);
    sum = {sum.value * scale, sum.magnitude * std::fabs(scale)};
  }
  if (residual) sum.add(values.value(Role::kResidual, i));
  ExactValue finished = exact::finished(sum, act, result_type());
  finished.tolerance += 1.2 * error * std::fabs(scale);
  return finished;
}

}  // namespace rocm_sd
