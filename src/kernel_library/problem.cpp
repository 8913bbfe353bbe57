// The problems of the C interface as ops over tensors.
#include "kernel_library/problem.hpp"

#include <optional>

#include "base/error.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/conv/conv2d.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/gemm/linear.hpp"
#include "kernels/norm/norm.hpp"

namespace rocm_sd::library {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 41;  // of an operand: no GPU has as much

DType dtype_of(rocm_sd_kernels_dtype dtype) {
  switch (dtype) {
    case ROCM_SD_KERNELS_F32: return DType::kF32;
    case ROCM_SD_KERNELS_F16: return DType::kF16;
    case ROCM_SD_KERNELS_BF16: return DType::kBF16;
  }
  throw ShapeError(concat("dtype ", static_cast<int>(dtype), ": expected 0 (f32), 1 (f16) or 2 (bf16)"));
}

Activation activation_of(rocm_sd_kernels_activation act) {
  switch (act) {
    case ROCM_SD_KERNELS_NO_ACTIVATION: return Activation::kNone;
    case ROCM_SD_KERNELS_SILU: return Activation::kSilu;
    case ROCM_SD_KERNELS_GELU: return Activation::kGelu;
    case ROCM_SD_KERNELS_QUICK_GELU: return Activation::kQuickGelu;
    case ROCM_SD_KERNELS_RELU: return Activation::kRelu;
  }
  throw ShapeError(concat("activation ", static_cast<int>(act), ": expected 0 to 4"));
}

int64_t require_extent(const char* op, const char* name, int64_t value, int64_t least) {
  require(value >= least && value < kMaxBytes, op, ": ", name, " is ", value, ", expected ", least,
          " or more");
  return value;
}

// Bytes from the first element to the last; throws ShapeError where they are too many to count.
size_t span_bytes(const Shape& shape, const Shape& strides, DType dtype) {
  int64_t last = 0;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == 0) return 0;
    int64_t step = 0;
    const bool overflow =
        __builtin_mul_overflow(shape[i] - 1, strides[i], &step) || __builtin_add_overflow(last, step, &last);
    require(!overflow && strides[i] >= 0 && last < kMaxBytes, "an operand ", shape, " with strides ", strides,
            " is larger than any memory, or has a negative stride");
  }
  return static_cast<size_t>(last + 1) * dtype_size(dtype);
}

std::optional<Tensor> optional(const Operands& operands, Slot slot) {
  const auto found = operands.find(slot);
  return found == operands.end() ? std::nullopt : std::optional(found->second);
}

// ---- attention ----

// A dense layout of heads, where rows of a head follow each other at `row` elements.
struct Heads {
  int64_t batch, head, row;
};

Heads heads_of(const rocm_sd_kernels_head_strides& s, const rocm_sd_kernels_attention& p, int64_t rows) {
  if (s.batch == 0 && s.head == 0 && s.row == 0)
    return {rows * p.heads * p.head_dim, p.head_dim, p.heads * p.head_dim};
  return {s.batch, s.head, s.row};
}

// Each head beside the others in a row: [batch,rows,heads*head_dim], as the op takes it.
bool heads_in_rows(const Heads& s, const rocm_sd_kernels_attention& p) {
  return p.heads == 1 || s.head == p.head_dim;
}
// Each head a matrix of its own, at even distances over all images: an image each, of one head.
bool heads_as_images(const Heads& s, const rocm_sd_kernels_attention& p) {
  return p.batch <= 1 || p.heads == 1 || s.batch == p.heads * s.head;
}

// Where a row of y ends the next begins, so that the op can write it as one block.
bool is_dense(const Heads& y, const rocm_sd_kernels_attention& p, bool in_rows) {
  const int64_t row = in_rows ? p.heads * p.head_dim : p.head_dim;
  const bool heads_fit = in_rows ? heads_in_rows(y, p) : p.heads == 1 || y.head == p.queries * p.head_dim;
  return (p.queries == 1 || y.row == row) && heads_fit &&
         (p.batch == 1 || y.batch == p.queries * p.heads * p.head_dim);
}

struct HeadLayout {
  bool in_rows = true;
  int64_t images, heads;  // as the op sees them
  Heads q, k, v;
};

HeadLayout head_layout(const rocm_sd_kernels_attention& p) {
  HeadLayout out;
  out.q = heads_of(p.q, p, p.queries);
  out.k = heads_of(p.k, p, p.keys);
  out.v = heads_of(p.v, p, p.keys);
  const Heads y = heads_of(p.y, p, p.queries);
  const auto all = [&](auto&& fits) { return fits(out.q, p) && fits(out.k, p) && fits(out.v, p); };
  out.in_rows = is_dense(y, p, true) && all(heads_in_rows);
  const bool masks_fit =
      !p.masked || p.batch <= 1 || p.heads == 1 || p.mask_strides[0] == p.heads * p.mask_strides[1];
  if (!out.in_rows) {
    require<UsageError>(
        is_dense(y, p, false) && all(heads_as_images),
        "attention: the heads of q, k, v and y must all lie in rows of heads * head_dim elements, "
        "or all as matrices [rows,head_dim] at even distances, with a dense y");
    require<UsageError>(masks_fit,
                        "attention: heads as matrices take a mask that is one for all, or one for each "
                        "head at even distances");
  }
  out.images = out.in_rows ? p.batch : p.batch * p.heads;
  out.heads = out.in_rows ? p.heads : 1;
  return out;
}

Operand rows_operand(Slot slot, const Heads& s, const HeadLayout& layout, int64_t rows, int64_t head_dim,
                     DType dtype) {
  const int64_t image = layout.in_rows ? s.batch : s.head;
  return {slot, {layout.images, rows, layout.heads * head_dim}, {image, s.row, 1}, dtype};
}

// The mask as [images,heads,queries,keys] of the op, 1 where it is broadcast.
Operand mask_operand(const rocm_sd_kernels_attention& p, const HeadLayout& layout) {
  int64_t image = p.mask_strides[0], head = p.mask_strides[1];
  if (!layout.in_rows) {
    image = p.heads > 1 ? head : image;
    head = 0;
  }
  const Shape shape = {image ? layout.images : 1, head ? layout.heads : 1, p.mask_strides[2] ? p.queries : 1,
                       p.keys};
  return {Slot::kMask, shape, {image, head, p.mask_strides[2], 1}, DType::kF32};
}

}  // namespace

size_t Operand::bytes() const { return span_bytes(shape, strides, dtype); }

Operand dense(Slot slot, const Shape& shape, DType dtype, bool output) {
  Operand operand{slot, shape, shape, dtype, output};
  int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    operand.strides[i] = step;
    require(!__builtin_mul_overflow(step, std::max<int64_t>(shape[i], 1), &step), "an operand ", shape,
            " is larger than any memory");
  }
  return operand;
}

const char* slot_name(Slot slot) {
  static constexpr const char* kNames[kSlots] = {"q",      "k",      "v",        "mask",          "x",
                                                 "second", "weight", "bias",     "channel_shift", "residual",
                                                 "sum",    "y",      "prepared", "workspace"};
  return kNames[static_cast<int>(slot)];
}

Problem attention_problem(const rocm_sd_kernels_attention& p) {
  const DType dtype = dtype_of(p.dtype);
  require_extent("attention", "batch", p.batch, 0);
  require_extent("attention", "heads", p.heads, 1);
  require_extent("attention", "queries", p.queries, 0);
  require_extent("attention", "keys", p.keys, 0);
  require_extent("attention", "head_dim", p.head_dim, 1);
  const HeadLayout layout = head_layout(p);
  Problem out;
  out.text = concat("attention ", dtype, " [", p.batch, ",", p.heads, ",", p.queries, "x", p.keys, ",",
                    p.head_dim, "]", p.masked ? " masked" : "", p.causal ? " causal" : "");
  out.operands = {rows_operand(Slot::kQ, layout.q, layout, p.queries, p.head_dim, dtype),
                  rows_operand(Slot::kK, layout.k, layout, p.keys, p.head_dim, dtype),
                  rows_operand(Slot::kV, layout.v, layout, p.keys, p.head_dim, dtype),
                  dense(Slot::kY, {p.batch, p.queries, p.heads, p.head_dim}, dtype, true)};
  if (p.masked) out.operands.push_back(mask_operand(p, layout));
  out.run = [heads = layout.heads, scale = p.scale, causal = p.causal != 0](Exec& ex, const Operands& in,
                                                                            const Weight&) {
    const auto mask = optional(in, Slot::kMask);
    const AttentionArgs args{
        .heads = static_cast<int>(heads), .scale = scale, .causal = causal, .mask = mask ? &*mask : nullptr};
    return std::vector<Result>{
        {Slot::kY, 0, attention(ex, in.at(Slot::kQ), in.at(Slot::kK), in.at(Slot::kV), args)}};
  };
  return out;
}

Problem linear_problem(const rocm_sd_kernels_linear& p, const OtherTypes& types) {
  const DType dtype = dtype_of(p.dtype), result = types.result.value_or(dtype);
  const Activation act = activation_of(p.activation);
  require_extent("linear", "rows", p.rows, 0);
  require_extent("linear", "in", p.in, 1);
  require_extent("linear", "out", p.out, 1);
  require(p.x_stride == 0 || p.x_stride >= p.in, "linear: x_stride is ", p.x_stride, ", a row has ", p.in,
          " elements");
  require(!p.gated || (act == Activation::kNone && !p.has_residual),
          "linear: gated takes no activation and no residual");
  const int64_t columns = p.gated ? 2 * p.out : p.out;
  Problem out;
  out.text = concat("linear ", dtype, " ", p.rows, "x", columns, "x", p.in, p.gated ? " geglu" : "",
                    p.has_bias ? " bias" : "", p.has_residual ? " residual" : "",
                    act == Activation::kNone ? std::string() : concat(" ", activation_name(act)));
  out.operands = {{Slot::kX, {p.rows, p.in}, {p.x_stride ? p.x_stride : p.in, 1}, dtype},
                  dense(Slot::kWeight, {columns, p.in}, types.weight.value_or(dtype)),
                  dense(Slot::kY, {p.rows, p.out}, result, true)};
  if (p.has_bias) out.operands.push_back(dense(Slot::kBias, {columns}, DType::kF32));
  if (p.has_residual) out.operands.push_back(dense(Slot::kResidual, {p.rows, p.out}, result));
  out.run = [act, gated = p.gated != 0, to = types.result](Exec& ex, const Operands& in,
                                                           const Weight& weight) {
    const LinearWeight w{weight, optional(in, Slot::kBias)};
    const auto residual = optional(in, Slot::kResidual);
    const Epilogue epilogue{.residual = residual ? &*residual : nullptr, .act = act, .dtype = to};
    const Tensor& x = in.at(Slot::kX);
    return std::vector<Result>{{Slot::kY, 0, gated ? linear_geglu(ex, x, w) : linear(ex, x, w, epilogue)}};
  };
  return out;
}

Problem conv2d_problem(const rocm_sd_kernels_conv2d& p, const OtherTypes& types) {
  const DType dtype = dtype_of(p.dtype), result = types.result.value_or(dtype);
  const Activation act = activation_of(p.activation);
  for (const auto& [name, value] : {std::pair{"batch", p.batch},
                                    {"height", p.height},
                                    {"width", p.width},
                                    {"second_channels", p.second_channels}})
    require_extent("conv2d", name, value, 0);
  for (const auto& [name, value] : {std::pair{"channels", p.channels},
                                    {"out_channels", p.out_channels},
                                    {"filter_h", p.filter_h},
                                    {"filter_w", p.filter_w}})
    require_extent("conv2d", name, value, 1);
  const int stride = p.stride ? p.stride : 1;
  require(stride >= 1 && p.pad_top >= 0 && p.pad_left >= 0 && p.pad_bottom >= 0 && p.pad_right >= 0,
          "conv2d: a negative stride or padding");
  const int64_t scale = p.upsample2x ? 2 : 1;
  const int64_t h = scale * p.height + p.pad_top + p.pad_bottom,
                w = scale * p.width + p.pad_left + p.pad_right;
  require(h >= p.filter_h && w >= p.filter_w, "conv2d: the filter ", p.filter_h, "x", p.filter_w,
          " is larger than the padded input ", h, "x", w);
  const Shape y = {p.batch, (h - p.filter_h) / stride + 1, (w - p.filter_w) / stride + 1, p.out_channels};
  Problem out;
  out.text = concat("conv2d ", dtype, " [", p.batch, ",", p.height, ",", p.width, ",", p.channels,
                    p.second_channels ? concat("+", p.second_channels) : std::string(), "] -> ", y, " ",
                    p.filter_h, "x", p.filter_w);
  out.operands = {
      dense(Slot::kX, {p.batch, p.height, p.width, p.channels}, dtype),
      dense(Slot::kWeight, {p.out_channels, p.channels + p.second_channels, p.filter_h, p.filter_w},
            types.weight.value_or(dtype)),
      dense(Slot::kY, y, result, true)};
  if (p.second_channels)
    out.operands.push_back(dense(Slot::kSecond, {p.batch, p.height, p.width, p.second_channels}, dtype));
  if (p.has_bias) out.operands.push_back(dense(Slot::kBias, {p.out_channels}, DType::kF32));
  if (p.has_channel_shift)
    out.operands.push_back(dense(Slot::kShift, {p.batch, p.out_channels}, DType::kF32));
  if (p.has_residual) out.operands.push_back(dense(Slot::kResidual, y, result));
  const ConvArgs args{.stride = stride,
                      .pad = {p.pad_top, p.pad_left, p.pad_bottom, p.pad_right},
                      .upsample2x = p.upsample2x != 0};
  out.run = [args, act, to = types.result](Exec& ex, const Operands& in, const Weight& weight) {
    const ConvWeight w{weight, optional(in, Slot::kBias)};
    const auto second = optional(in, Slot::kSecond), shift = optional(in, Slot::kShift),
               residual = optional(in, Slot::kResidual);
    ConvArgs all = args;
    all.second = second ? &*second : nullptr;
    all.epilogue = {shift ? &*shift : nullptr, residual ? &*residual : nullptr, act, to};
    return std::vector<Result>{{Slot::kY, 0, conv2d(ex, in.at(Slot::kX), w, all)}};
  };
  return out;
}

Problem group_norm_problem(const rocm_sd_kernels_group_norm& p, const OtherTypes& types) {
  const DType dtype = dtype_of(p.dtype);
  require_extent("group_norm", "batch", p.batch, 0);
  require_extent("group_norm", "pixels", p.pixels, 0);
  require_extent("group_norm", "channels", p.channels, 1);
  require_extent("group_norm", "second_channels", p.second_channels, 0);
  require(p.groups >= 1 && p.groups <= INT32_MAX, "group_norm: groups is ", p.groups);
  const int64_t channels = p.channels + p.second_channels;
  const GroupNormArgs args{.groups = static_cast<int>(p.groups),
                           .eps = p.eps,
                           .act = activation_of(p.activation),
                           .dtype = types.result};
  Problem out;
  out.text =
      concat("group_norm ", dtype, " [", p.batch, ",", p.pixels, ",", p.channels,
             p.second_channels ? concat("+", p.second_channels) : std::string(), "] groups ", p.groups);
  out.operands = {dense(Slot::kX, {p.batch, p.pixels, 1, p.channels}, dtype),
                  dense(Slot::kWeight, {channels}, DType::kF32), dense(Slot::kBias, {channels}, DType::kF32),
                  dense(Slot::kY, {p.batch, p.pixels, 1, channels}, types.result.value_or(dtype), true)};
  if (p.second_channels)
    out.operands.push_back(dense(Slot::kSecond, {p.batch, p.pixels, 1, p.second_channels}, dtype));
  out.run = [args](Exec& ex, const Operands& in, const Weight&) {
    const auto second = optional(in, Slot::kSecond);
    GroupNormArgs all = args;
    all.second = second ? &*second : nullptr;
    const NormWeight w{in.at(Slot::kWeight), in.at(Slot::kBias)};
    return std::vector<Result>{{Slot::kY, 0, group_norm(ex, in.at(Slot::kX), w, all)}};
  };
  return out;
}

Problem layer_norm_problem(const rocm_sd_kernels_layer_norm& p, const OtherTypes& types) {
  const DType dtype = dtype_of(p.dtype);
  const Shape rows = {require_extent("layer_norm", "rows", p.rows, 0),
                      require_extent("layer_norm", "channels", p.channels, 1)};
  Problem out;
  out.text = concat("layer_norm ", dtype, " ", rows, p.has_residual ? " residual" : "");
  out.operands = {dense(Slot::kX, rows, dtype), dense(Slot::kWeight, {p.channels}, DType::kF32),
                  dense(Slot::kBias, {p.channels}, DType::kF32),
                  dense(Slot::kY, rows, types.result.value_or(dtype), true)};
  if (p.has_residual) {
    out.operands.push_back(dense(Slot::kResidual, rows, dtype));
    out.operands.push_back(dense(Slot::kSum, rows, dtype, true));
  }
  out.run = [eps = p.eps, to = types.result](Exec& ex, const Operands& in, const Weight&) {
    const NormWeight w{in.at(Slot::kWeight), in.at(Slot::kBias)};
    const auto residual = optional(in, Slot::kResidual);
    if (!residual) return std::vector<Result>{{Slot::kY, 0, layer_norm(ex, in.at(Slot::kX), w, eps, to)}};
    const Tensor sum = add(ex, in.at(Slot::kX), *residual);
    return std::vector<Result>{{Slot::kSum, 0, sum}, {Slot::kY, 0, layer_norm(ex, sum, w, eps, to)}};
  };
  return out;
}

Problem geglu_problem(const rocm_sd_kernels_geglu& p) {
  const DType dtype = dtype_of(p.dtype);
  require_extent("geglu", "rows", p.rows, 0);
  require_extent("geglu", "channels", p.channels, 1);
  Problem out;
  out.text = concat("geglu ", dtype, " [", p.rows, ",", 2 * p.channels, "]");
  out.operands = {dense(Slot::kX, {p.rows, 2 * p.channels}, dtype),
                  dense(Slot::kY, {p.rows, p.channels}, dtype, true)};
  out.run = [](Exec& ex, const Operands& in, const Weight&) {
    return std::vector<Result>{{Slot::kY, 0, geglu(ex, in.at(Slot::kX))}};
  };
  return out;
}

}  // namespace rocm_sd::library
