// rocm_sd::group_norm_silu, layer_norm and layer_norm_residual.
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/norm/norm.hpp"
#include "pytorch_integration/op_scope.hpp"
#include "pytorch_integration/operators.hpp"

namespace rocm_sd::torch_ops {
namespace {

void check_parameters(const char* op, const AtTensor& x, const OptionalAt& weight, const OptionalAt& bias,
                      int64_t channels) {
  for (const auto& [parameter, name] : {std::pair{&weight, "weight"}, std::pair{&bias, "bias"}}) {
    if (!*parameter) continue;
    check_alike(op, x, **parameter, name, false);
    check((*parameter)->dim() == 1 && (*parameter)->size(0) == channels, op, ": ", name, " ",
          shown(**parameter), " does not fit ", channels, " channels");
  }
}

NormWeight parameters_of(OpScope& scope, const OptionalAt& weight, const OptionalAt& bias, int64_t channels) {
  take_if(weight.has_value() && bias.has_value(), "without weight or bias");
  return {scope.f32_vector(*weight, channels, "weight"), scope.f32_vector(*bias, channels, "bias")};
}

void check_layer_norm(const char* op, const AtTensor& x, const OptionalAt& weight, const OptionalAt& bias) {
  check(x.dim() >= 1, op, ": expected [...,C], got ", shown(x));
  check_parameters(op, x, weight, bias, x.size(x.dim() - 1));
}

}  // namespace

AtTensor group_norm_silu(AtTensor x, int64_t groups, OptionalAt weight, OptionalAt bias, double eps,
                         bool silu, OptionalAt x2) {
  constexpr const char* kOp = "rocm_sd::group_norm_silu";
  check(x.dim() == 4, kOp, ": expected x [N,C,H,W], got ", shown(x));
  Shape sizes = sizes_of(x);
  if (x2) {
    check_alike(kOp, x, *x2, "x2");
    check(x2->dim() == 4 && x2->size(0) == sizes[0] && x2->size(2) == sizes[2] && x2->size(3) == sizes[3],
          kOp, ": x2 ", shown(*x2), " does not fit x ", shown(x));
    sizes[1] += x2->size(1);
  }
  check(groups > 0 && sizes[1] % groups == 0, kOp, ": cannot split ", sizes[1], " channels into ", groups,
        " groups");
  check_parameters(kOp, x, weight, bias, sizes[1]);
  if (sizes.numel() == 0) return empty_strided_like(x, sizes, channels_last(sizes));
  return ours_or_plain(
      "group_norm_silu", [&] { return concat(describe(x), " in ", groups, " groups"); },
      [&] {
        take_if(!x2 || (x.size(1) > 0 && x2->size(1) > 0), "an input without channels");
        OpScope scope(x);
        const NormWeight w = parameters_of(scope, weight, bias, sizes[1]);
        const Tensor second = x2 ? nhwc_of(*x2) : Tensor();
        const GroupNormArgs args{.groups = static_cast<int>(groups),
                                 .eps = static_cast<float>(eps),
                                 .act = silu ? Activation::kSilu : Activation::kNone,
                                 .second = x2 ? &second : nullptr};
        return scope.give_nchw(group_norm(scope.exec(), nhwc_of(x), w, args));
      },
      [&] { return call_plain("rocm_sd::_group_norm_silu_plain", x, groups, weight, bias, eps, silu, x2); });
}

AtTensor layer_norm(AtTensor x, OptionalAt weight, OptionalAt bias, double eps) {
  check_layer_norm("rocm_sd::layer_norm", x, weight, bias);
  if (x.numel() == 0) return empty_strided_like(x, sizes_of(x), row_major(sizes_of(x)));
  return ours_or_plain(
      "layer_norm", [&] { return describe(x); },
      [&] {
        OpScope scope(x);
        const NormWeight w = parameters_of(scope, weight, bias, x.size(x.dim() - 1));
        return scope.give(layer_norm(scope.exec(), row_major_of(x), w, static_cast<float>(eps)));
      },
      [&] { return call_plain("rocm_sd::_layer_norm_plain", x, weight, bias, eps); });
}

std::tuple<AtTensor, AtTensor> layer_norm_residual(AtTensor x, AtTensor residual, OptionalAt weight,
                                                   OptionalAt bias, double eps) {
  constexpr const char* kOp = "rocm_sd::layer_norm_residual";
  check_layer_norm(kOp, x, weight, bias);
  check_alike(kOp, x, residual, "residual");
  check(same_sizes(x, residual), kOp, ": residual ", shown(residual), " does not fit x ", shown(x));
  if (x.numel() == 0) {
    const Shape sizes = sizes_of(x);
    return {empty_strided_like(x, sizes, row_major(sizes)), empty_strided_like(x, sizes, row_major(sizes))};
  }
  return ours_or_plain(
      "layer_norm_residual", [&] { return describe(x); },
      [&] {
        OpScope scope(x);
        const NormWeight w = parameters_of(scope, weight, bias, x.size(x.dim() - 1));
        const Tensor sum = add(scope.exec(), row_major_of(x), row_major_of(residual));
        const Tensor y = layer_norm(scope.exec(), sum, w, static_cast<float>(eps));
        return std::tuple{scope.give(y), scope.give(sum)};
      },
      [&] { return call_plain_pair("rocm_sd::_layer_norm_residual_plain", x, residual, weight, bias, eps); });
}

}  // namespace rocm_sd::torch_ops
