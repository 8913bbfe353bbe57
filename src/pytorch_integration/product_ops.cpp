// rocm_sd::linear_epilogue, geglu, conv2d_epilogue and upsample2x_conv.
#include "kernels/conv/conv2d.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/gemm/linear.hpp"
#include "pytorch_integration/op_scope.hpp"
#include "pytorch_integration/operators.hpp"
#include "pytorch_integration/packs.hpp"

namespace rocm_sd::torch_ops {
namespace {

Activation activation_named(const char* op, const std::string& name) {
  for (const Activation act :
       {Activation::kNone, Activation::kSilu, Activation::kGelu, Activation::kQuickGelu, Activation::kRelu})
    if (name == activation_name(act)) return act;
  throw UsageError(
      concat(op, ": activation '", printable(name), "': expected none, silu, gelu, quick_gelu or relu"));
}

void check_bias(const char* op, const AtTensor& x, const OptionalAt& bias, int64_t count) {
  if (!bias) return;
  check_alike(op, x, *bias, "bias", false);
  check(bias->dim() == 1 && bias->size(0) == count, op, ": bias ", shown(*bias), ": expected [", count, "]");
}

std::optional<Tensor> bias_of(OpScope& scope, const OptionalAt& bias, int64_t count) {
  if (!bias) return std::nullopt;
  return scope.f32_vector(*bias, count, "bias");
}

// x [...,K] as rows that are evenly spaced, in x's shape where it is dense, else as [1,rows,K].
Tensor rows_of(const AtTensor& x) {
  const Shape sizes = sizes_of(x), strides = strides_of(x);
  const int rank = sizes.rank();
  bool even = sizes[-1] <= 1 || strides[-1] == 1;
  int64_t row = -1, next = -1;  // next: what the next longer dimension's stride must be
  for (int i = rank - 2; i >= 0; --i) {
    if (sizes[i] == 1) continue;
    if (row < 0) row = strides[i];
    even = even && (next < 0 || strides[i] == next);
    next = strides[i] * sizes[i];
  }
  const int64_t columns = sizes[-1], rows = sizes.numel() / columns;
  if (even && row > columns)
    if (auto view = rows_view(x, {1, rows, columns}, rows * row, row)) return *view;
  return row_major_of(x);
}

// Without a pack a filter is laid out for this call alone, which Winograd's transform would dominate.
std::optional<ForcedImpl> cheap_layout(const OpScope& scope, int64_t pack) {
  if (!scope.on_host() || is_live_pack(pack) || !forced_impl("conv2d").empty()) return std::nullopt;
  return std::optional<ForcedImpl>(std::in_place, "conv2d", "tiled");
}

Shape conv_output(const char* op, const Shape& x, int64_t channels, const AtTensor& weight, int64_t stride,
                  const std::vector<int64_t>& padding, int64_t scale) {
  check(weight.dim() == 4 && weight.numel() > 0, op, ": expected a weight [K,C,R,S], got ", shown(weight));
  check(weight.size(1) == channels, op, ": the weight ", shown(weight), " takes ", weight.size(1),
        " channels, the input has ", channels);
  check(stride >= 1, op, ": stride ", stride, " is not positive");
  check(padding.size() == 4, op, ": expected padding [top,left,bottom,right], got ", padding.size(),
        " numbers");
  for (const int64_t p : padding) check(p >= 0 && p < (1 << 20), op, ": padding ", p);
  const int64_t h = scale * x[2] + padding[0] + padding[2], w = scale * x[3] + padding[1] + padding[3];
  check(h >= weight.size(2) && w >= weight.size(3), op, ": the filter ", shown(weight),
        " is larger than the padded input [", h, ",", w, "]");
  return {x[0], weight.size(0), (h - weight.size(2)) / stride + 1, (w - weight.size(3)) / stride + 1};
}

ConvWeight conv_weight(OpScope& scope, int64_t pack, const AtTensor& weight, const OptionalAt& bias) {
  return {packed_weight(pack, weight), bias_of(scope, bias, weight.size(0))};
}

}  // namespace

AtTensor geglu(AtTensor x) {
  check(x.dim() >= 1 && x.size(x.dim() - 1) % 2 == 0, "rocm_sd::geglu: expected [...,2C], got ", shown(x));
  Shape sizes = sizes_of(x);
  sizes[-1] /= 2;
  if (sizes.numel() == 0) return empty_strided_like(x, sizes, row_major(sizes));
  return ours_or_plain(
      "geglu", [&] { return describe(x); },
      [&] {
        OpScope scope(x);
        return scope.give(geglu(scope.exec(), row_major_of(x)));
      },
      [&] { return call_plain("rocm_sd::_geglu_plain", x); });
}

AtTensor linear_epilogue(AtTensor x, AtTensor weight, OptionalAt bias, OptionalAt residual, std::string act,
                         bool gated, int64_t pack) {
  constexpr const char* kOp = "rocm_sd::linear_epilogue";
  const Activation activation = activation_named(kOp, act);
  check(x.dim() >= 1 && weight.dim() == 2 && x.size(x.dim() - 1) == weight.size(1), kOp, ": x ", shown(x),
        " does not fit the weight ", shown(weight));
  check_alike(kOp, x, weight, "weight");
  const int64_t outputs = weight.size(0);
  check_bias(kOp, x, bias, outputs);
  check(!gated || (outputs % 2 == 0 && activation == Activation::kNone && !residual), kOp,
        ": geglu takes an even number of outputs, no activation and no residual");
  Shape sizes = sizes_of(x);
  sizes[-1] = gated ? outputs / 2 : outputs;
  if (residual) {
    check_alike(kOp, x, *residual, "residual");
    check(sizes_of(*residual) == sizes, kOp, ": residual ", shown(*residual), ": expected ", sizes);
  }
  if (sizes.numel() == 0) return empty_strided_like(x, sizes, row_major(sizes));
  return ours_or_plain(
      "linear_epilogue", [&] { return concat(describe(x), " by ", describe(weight)); },
      [&] {
        take_if(weight.size(1) > 0, "no columns");
        OpScope scope(x);
        const LinearWeight w{packed_weight(pack, weight), bias_of(scope, bias, outputs)};
        const Tensor rows = rows_of(x);
        Shape out = rows.shape();
        out[-1] = sizes[-1];
        const Tensor addend = residual ? row_major_of(*residual).reshape(out) : Tensor();
        const Epilogue epilogue{.residual = residual ? &addend : nullptr, .act = activation};
        const Tensor y =
            gated ? linear_geglu(scope.exec(), rows, w) : linear(scope.exec(), rows, w, epilogue);
        return scope.give(y, sizes, row_major(sizes));
      },
      [&] { return call_plain("rocm_sd::_linear_epilogue_plain", x, weight, bias, residual, act, gated); });
}

AtTensor conv2d_epilogue(AtTensor x, AtTensor weight, OptionalAt bias, int64_t stride,
                         std::vector<int64_t> padding, OptionalAt channel_shift, OptionalAt residual,
                         std::string act, OptionalAt x2, int64_t pack) {
  constexpr const char* kOp = "rocm_sd::conv2d_epilogue";
  const Activation activation = activation_named(kOp, act);
  check(x.dim() == 4, kOp, ": expected x [N,C,H,W], got ", shown(x));
  check_alike(kOp, x, weight, "weight");
  int64_t channels = x.size(1);
  if (x2) {
    check_alike(kOp, x, *x2, "x2");
    check(x2->dim() == 4 && x2->size(0) == x.size(0) && x2->size(2) == x.size(2) && x2->size(3) == x.size(3),
          kOp, ": x2 ", shown(*x2), " does not fit x ", shown(x));
    channels += x2->size(1);
  }
  const Shape sizes = conv_output(kOp, sizes_of(x), channels, weight, stride, padding, 1);  // [N,K,P,Q]
  check_bias(kOp, x, bias, sizes[1]);
  if (channel_shift) {
    check_alike(kOp, x, *channel_shift, "channel_shift");
    check(sizes_of(*channel_shift) == Shape({sizes[0], sizes[1]}), kOp, ": channel_shift ",
          shown(*channel_shift), ": expected [", sizes[0], ",", sizes[1], "]");
  }
  if (residual) {
    check_alike(kOp, x, *residual, "residual");
    check(sizes_of(*residual) == sizes, kOp, ": residual ", shown(*residual), ": expected ", sizes);
  }
  if (sizes.numel() == 0) return empty_strided_like(x, sizes, channels_last(sizes));
  return ours_or_plain(
      "conv2d_epilogue", [&] { return concat(describe(x), " by ", describe(weight)); },
      [&] {
        take_if(x.size(1) > 0 && (!x2 || x2->size(1) > 0), "an input without channels");
        OpScope scope(x);
        const auto cheap = cheap_layout(scope, pack);
        const ConvWeight w = conv_weight(scope, pack, weight, bias);
        const Tensor second = x2 ? nhwc_of(*x2) : Tensor(), addend = residual ? nhwc_of(*residual) : Tensor(),
                     shift = channel_shift ? row_major_of(*channel_shift) : Tensor();
        ConvArgs args{.stride = static_cast<int>(stride),
                      .pad = {static_cast<int>(padding[0]), static_cast<int>(padding[1]),
                              static_cast<int>(padding[2]), static_cast<int>(padding[3])},
                      .second = x2 ? &second : nullptr};
        args.epilogue = {.channel_shift = channel_shift ? &shift : nullptr,
                         .residual = residual ? &addend : nullptr,
                         .act = activation};
        return scope.give_nchw(conv2d(scope.exec(), nhwc_of(x), w, args));
      },
      [&] {
        return call_plain("rocm_sd::_conv2d_epilogue_plain", x, weight, bias, stride, padding, channel_shift,
                          residual, act, x2);
      });
}

AtTensor upsample2x_conv(AtTensor x, AtTensor weight, OptionalAt bias, int64_t padding, int64_t pack) {
  constexpr const char* kOp = "rocm_sd::upsample2x_conv";
  check(x.dim() == 4, kOp, ": expected x [N,C,H,W], got ", shown(x));
  check_alike(kOp, x, weight, "weight");
  const std::vector<int64_t> sides(4, padding);
  const Shape sizes = conv_output(kOp, sizes_of(x), x.size(1), weight, 1, sides, 2);
  check_bias(kOp, x, bias, sizes[1]);
  if (sizes.numel() == 0) return empty_strided_like(x, sizes, channels_last(sizes));
  return ours_or_plain(
      "upsample2x_conv", [&] { return concat(describe(x), " by ", describe(weight)); },
      [&] {
        take_if(x.size(1) > 0, "an input without channels");
        OpScope scope(x);
        const auto cheap = cheap_layout(scope, pack);
        const ConvWeight w = conv_weight(scope, pack, weight, bias);
        const ConvArgs args{.pad = Padding::same(static_cast<int>(padding)), .upsample2x = true};
        return scope.give_nchw(conv2d(scope.exec(), nhwc_of(x), w, args));
      },
      [&] { return call_plain("rocm_sd::_upsample2x_conv_plain", x, weight, bias, padding); });
}

}  // namespace rocm_sd::torch_ops
