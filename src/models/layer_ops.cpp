#include "models/layer_ops.hpp"

#include <optional>

#include "kernels/elementwise/elementwise.hpp"
#include "models/low_rank.hpp"
#include "models/row_norm_conv.hpp"
#include "models/row_split.hpp"
#include "models/wrapping.hpp"

namespace rocm_sd {
namespace {

// x as what the layer multiplies.
template <class Layer>
Tensor operand(Exec& ex, const Tensor& x, const Layer& layer) {
  if (is_split(layer)) return split_bf16(ex, as_dtype(ex, x, DType::kF32), parts_of(layer));
  return as_dtype(ex, x, layer.weight.dtype());
}

// x as the terms of a layer take it that itself takes split bf16; else empty.
template <class Layer>
Tensor operand_of_down(Exec& ex, const Tensor& x, const Layer& layer) {
  return layer.low_rank && is_split(layer) ? as_dtype(ex, x, layer.weight.dtype()) : Tensor();
}

template <class Layer>
Tensor multiply(Exec& ex, Tensor x, const Layer& layer, const Epilogue& epilogue) {
  const Tensor of_down = operand_of_down(ex, x, layer);
  x = operand(ex, x, layer);
  return linear_with_terms(ex, x, layer, layer.low_rank.get(), epilogue, of_down ? &of_down : nullptr);
}

template <class Layer>
Tensor multiply_as(Exec& ex, Tensor x, const Layer& layer, DType dtype) {
  const bool at_once = dtype == layer.weight.dtype() && !is_split(layer);
  return as_dtype(ex, multiply(ex, std::move(x), layer, {.dtype = at_once ? dtype : DType::kF32}), dtype);
}

}  // namespace

Tensor as_dtype(Exec& ex, const Tensor& x, DType dtype) {
  return x.dtype() == dtype ? x : cast(ex, x, dtype);
}

Tensor linear(Exec& ex, Tensor x, const Linear& layer, const Epilogue& epilogue) {
  return multiply(ex, std::move(x), layer, epilogue);
}

Tensor linear(Exec& ex, Tensor x, const StackedLinear& layer, const Epilogue& epilogue) {
  return multiply(ex, std::move(x), layer, epilogue);
}

Tensor linear_as(Exec& ex, Tensor x, const Linear& layer, DType dtype) {
  return multiply_as(ex, std::move(x), layer, dtype);
}

Tensor linear_as(Exec& ex, Tensor x, const StackedLinear& layer, DType dtype) {
  return multiply_as(ex, std::move(x), layer, dtype);
}

Tensor linear_geglu(Exec& ex, Tensor x, const Linear& layer) {
  const Tensor of_down = operand_of_down(ex, x, layer);
  x = operand(ex, x, layer);
  return linear_geglu_with_terms(ex, x, layer, layer.low_rank.get(), of_down ? &of_down : nullptr);
}

Tensor conv2d(Exec& ex, Tensor x, const Conv& layer, ConvArgs args) {
  return conv2d(ex, std::move(x), Tensor(), layer, std::move(args));
}

// What the terms of the layer and the epilogue's residual come to, in its place.
static Tensor conv_terms(Exec& ex, const Tensor& x, const Tensor& second, const Conv& layer,
                         const ConvArgs& args) {
  if (!layer.low_rank) return {};
  const DType dtype = layer.weight.dtype();
  const Tensor other = second ? as_dtype(ex, second, dtype) : Tensor();
  ConvArgs own = args;
  own.second = other ? &other : nullptr;
  return conv2d_terms(ex, as_dtype(ex, x, dtype), *layer.low_rank, own);
}

static Tensor conv2d_here(Exec& ex, Tensor x, Tensor second, const Conv& layer, ConvArgs args) {
  const auto& weight = static_cast<const ConvWeight&>(layer);
  std::optional<FilterChange> change;
  if (layer.low_rank && !is_split(layer)) change = filter_change(ex, x, weight, *layer.low_rank, args);
  if (change) args.change = &*change;
  const Tensor residual = change ? Tensor() : conv_terms(ex, x, second, layer, args);
  if (residual) args.epilogue.residual = &residual;
  if (!second) {
    x = operand(ex, x, layer);
  } else if (is_split(layer)) {
    second = as_dtype(ex, second, DType::kF32);
    x = split_bf16(ex, as_dtype(ex, x, DType::kF32), parts_of(layer), &second);
    second = Tensor();
  } else {
    second = operand(ex, second, layer);
    x = operand(ex, x, layer);
    args.second = &second;
    return conv2d(ex, x, weight, args);
  }
  return conv2d(ex, x, weight, args);
}

Tensor conv2d(Exec& ex, Tensor x, Tensor second, const Conv& layer, ConvArgs args) {
  const WrapAxes& wraps = wraps_at_work();
  if (wraps.any() && layer.kernel > 1) {
    ConvArgs of_second = args;
    if (second) second = wrapped(ex, second, wraps, of_second);
    x = wrapped(ex, x, wraps, args);
  }
  const RowSplit* rows = rows_at_work();
  if (!rows || layer.kernel == 1)
    return conv2d_here(ex, std::move(x), std::move(second), layer, std::move(args));
  if (second) x = concat_channels(ex, x, second);
  return conv_of_rows(
      ex, *rows, x, layer.kernel, std::move(args),
      [&](const Tensor& source, const ConvArgs& own) { return conv2d_here(ex, source, {}, layer, own); });
}

Tensor group_norm_as(Exec& ex, const Tensor& x, const Norm& norm, int64_t groups, DType dtype) {
  if (const RowSplit* rows = rows_at_work())
    return group_norm_of_all(ex, *rows, x, norm, groups, Activation::kNone, dtype);
  return group_norm(ex, x, norm, {.groups = static_cast<int>(groups), .eps = norm.eps, .dtype = dtype});
}

Tensor group_norm_silu(Exec& ex, Tensor x, Tensor second, const Norm& norm, int64_t groups, DType dtype) {
  if (const RowSplit* rows = rows_at_work())
    return group_norm_of_all(ex, *rows, second ? concat_channels(ex, x, second) : x, norm, groups,
                             Activation::kSilu, dtype);
  const bool in_place = !second && dtype == x.dtype() && x.storage().use_count() == 1;
  return group_norm(ex, x, norm,
                    {.groups = static_cast<int>(groups),
                     .eps = norm.eps,
                     .act = Activation::kSilu,
                     .second = second ? &second : nullptr,
                     .dtype = dtype,
                     .in_place = in_place});
}

Tensor norm_silu_conv2d(Exec& ex, Tensor x, Tensor second, const Norm& norm, int64_t groups, const Conv& conv,
                        ConvArgs args) {
  const RowSplit* rows = rows_at_work();
  if (!rows || conv.kernel == 1) {
    Tensor h = group_norm_silu(ex, std::move(x), std::move(second), norm, groups, operand_type(conv));
    return conv2d(ex, std::move(h), conv, std::move(args));
  }
  if (second) x = concat_channels(ex, x, second);
  return norm_silu_conv_of_rows(
      ex, *rows, std::move(x), norm, groups, operand_type(conv), std::move(args),
      [&](const Tensor& source, const ConvArgs& own) { return conv2d_here(ex, source, {}, conv, own); });
}

}  // namespace rocm_sd
