#include "measurement/workload.hpp"

#include <array>
#include <charconv>

#include "base/error.hpp"
#include "kernels/eight_bit.hpp"
#include "kernels/epilogue.hpp"

namespace rocm_sd::measurement {
namespace {

constexpr int64_t kMaxExtent = int64_t{1} << 31;

// Reads a text from left to right.
class Scanner {
 public:
  Scanner(std::string_view op, std::string_view text) : op_(op), text_(text), rest_(text) {}

  bool take(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  void expect(std::string_view word) {
    if (!take(word)) fail(concat("expected \"", word, "\""));
  }
  int64_t number(int64_t least = 0) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc() || value < least || value > kMaxExtent)
      fail(concat("expected a number from ", least));
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return value;
  }
  DType dtype() {
    for (const DType type : {DType::kF32, DType::kF16, DType::kBF16})
      if (take(dtype_name(type))) return type;
    fail("expected f32, f16 or bf16");
  }
  // " by f16", if a weight's type is next.
  std::optional<DType> weight() {
    if (!take(" by ")) return std::nullopt;
    for (const DType type : {DType::kI8, DType::kF8E4M3, DType::kF16, DType::kBF16})
      if (take(dtype_name(type))) return type;
    fail("expected i8, f8e4m3, f16 or bf16");
  }
  // "->f32", if a result's type is next.
  std::optional<DType> result(DType only) {
    if (!take("->")) return std::nullopt;
    expect(dtype_name(only));
    return only;
  }
  // " silu", if an activation's name is next.
  rocm_sd_kernels_activation activation() {
    constexpr std::array kActivations = {Activation::kSilu, Activation::kGelu, Activation::kQuickGelu,
                                         Activation::kRelu};
    for (const Activation act : kActivations)
      if (take(concat(" ", activation_name(act)))) return static_cast<rocm_sd_kernels_activation>(act);
    return ROCM_SD_KERNELS_NO_ACTIVATION;
  }
  void end() {
    if (!rest_.empty()) fail("expected the end");
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw UsageError(concat("problem of ", printable(op_), " \"", printable(text_), "\": ", what, " at \"",
                            printable(rest_, 40), "\""));
  }

 private:
  std::string_view op_, text_, rest_;
};

rocm_sd_kernels_dtype c_dtype(DType type) {
  return type == DType::kF32   ? ROCM_SD_KERNELS_F32
         : type == DType::kF16 ? ROCM_SD_KERNELS_F16
                               : ROCM_SD_KERNELS_BF16;
}

double product(std::initializer_list<int64_t> extents) {
  double out = 1;
  for (const int64_t e : extents) out *= static_cast<double>(e);
  return out;
}

// bf16 [2,8,4096x77,40] masked causal
void parse_attention(Scanner& in, Workload& out) {
  rocm_sd_kernels_attention p{.size = sizeof(p)};
  out.dtype = in.dtype();
  p.dtype = c_dtype(out.dtype);
  in.expect(" [");
  p.batch = in.number();
  in.expect(",");
  p.heads = in.number(1);
  in.expect(",");
  p.queries = in.number();
  in.expect("x");
  p.keys = in.number();
  in.expect(",");
  p.head_dim = in.number(1);
  in.expect("]");
  if (in.take(" masked")) {  // one mask for all heads and images
    p.masked = 1;
    p.mask_strides[2] = p.keys;
  }
  if (in.take(" causal")) p.causal = 1;
  out.flops = 4 * product({p.batch, p.heads, p.queries, p.keys, p.head_dim}) * (p.causal ? 0.5 : 1);
  out.bytes = 2 * product({p.batch, p.heads, p.head_dim, p.queries + p.keys}) *
              static_cast<double>(dtype_size(out.dtype));
  out.args = p;
}

// " by i8 products", " by f16", "->f32": of a product's weight and of its result.
void parse_types(Scanner& in, Workload& out) {
  if (const auto weight = in.weight(); weight && is_eight_bit(*weight)) {
    out.held = weight;
    out.products = in.take(" products");
  } else {
    out.types.weight = weight;
  }
  out.types.result = in.result(DType::kF32);
}
double size_of(DType type) { return static_cast<double>(dtype_size(type)); }

// 8192x2560x320 f16 by i8 products->f32 bias residual geglu silu
void parse_linear(Scanner& in, Workload& out) {
  rocm_sd_kernels_linear p{.size = sizeof(p)};
  p.rows = in.number();
  in.expect("x");
  const int64_t columns = in.number(1);
  in.expect("x");
  p.in = in.number(1);
  in.expect(" ");
  out.dtype = in.dtype();
  p.dtype = c_dtype(out.dtype);
  parse_types(in, out);
  p.has_bias = in.take(" bias");
  p.has_residual = in.take(" residual");
  p.gated = in.take(" geglu");
  p.activation = in.activation();
  if (p.gated && (columns % 2 != 0 || p.has_residual || p.activation != ROCM_SD_KERNELS_NO_ACTIVATION))
    in.fail("geglu takes an even number of columns, no residual and no activation");
  p.out = p.gated ? columns / 2 : columns;
  out.flops = 2 * product({p.rows, columns, p.in});
  out.bytes = product({p.rows, p.in}) * size_of(out.dtype) +
              product({p.rows, p.out}) * (p.has_residual ? 2 : 1) * size_of(out.result()) +
              product({columns, p.in}) * size_of(out.held.value_or(out.types.weight.value_or(out.dtype)));
  out.args = p;
}

// 2x64x64x320+320->640 3x3 s1 p1,1,1,1 f16->f32 upsample2x bias shift residual silu
void parse_conv2d(Scanner& in, Workload& out) {
  rocm_sd_kernels_conv2d p{.size = sizeof(p)};
  p.batch = in.number();
  in.expect("x");
  p.height = in.number(1);
  in.expect("x");
  p.width = in.number(1);
  in.expect("x");
  p.channels = in.number(1);
  if (in.take("+")) p.second_channels = in.number(1);
  in.expect("->");
  p.out_channels = in.number(1);
  in.expect(" ");
  p.filter_h = in.number(1);
  in.expect("x");
  p.filter_w = in.number(1);
  in.expect(" s");
  p.stride = static_cast<int>(in.number(1));
  in.expect(" p");
  int* pads[] = {&p.pad_top, &p.pad_left, &p.pad_bottom, &p.pad_right};
  for (int** pad = std::begin(pads); pad != std::end(pads); ++pad) {
    if (pad != std::begin(pads)) in.expect(",");
    **pad = static_cast<int>(in.number());
  }
  in.expect(" ");
  out.dtype = in.dtype();
  p.dtype = c_dtype(out.dtype);
  out.types.weight = in.weight();
  const DType filter = out.types.weight.value_or(out.dtype);
  if (filter != out.dtype && filter != DType::kBF16 && (filter != DType::kF16 || out.dtype != DType::kF32))
    in.fail("a filter of another type than bf16, or f16 under f32, is not measured alone");
  out.types.result = in.result(DType::kF32);
  p.upsample2x = in.take(" upsample2x");
  p.has_bias = in.take(" bias");
  p.has_channel_shift = in.take(" shift");
  p.has_residual = in.take(" residual");
  p.activation = in.activation();
  const int64_t scale = p.upsample2x ? 2 : 1;
  const int64_t high = scale * p.height + p.pad_top + p.pad_bottom - p.filter_h;
  const int64_t wide = scale * p.width + p.pad_left + p.pad_right - p.filter_w;
  if (high < 0 || wide < 0) in.fail("the filter is larger than the padded image");
  const double outputs = product({p.batch, high / p.stride + 1, wide / p.stride + 1, p.out_channels});
  const double taps = product({p.filter_h, p.filter_w, p.channels + p.second_channels});
  out.flops = 2 * outputs * taps;
  out.bytes = product({p.batch, p.height, p.width, p.channels + p.second_channels}) * size_of(out.dtype) +
              taps * static_cast<double>(p.out_channels) * size_of(out.types.weight.value_or(out.dtype)) +
              outputs * (p.has_residual ? 2 : 1) * size_of(out.result());
  out.args = p;
}

// f32->bf16 [2,4096,320+320] groups 32 silu
void parse_group_norm(Scanner& in, Workload& out) {
  rocm_sd_kernels_group_norm p{.size = sizeof(p), .eps = 1e-5f};
  out.dtype = in.dtype();
  p.dtype = c_dtype(out.dtype);
  out.types.result = in.result(DType::kBF16);
  in.expect(" [");
  p.batch = in.number();
  in.expect(",");
  p.pixels = in.number();
  in.expect(",");
  p.channels = in.number(1);
  if (in.take("+")) p.second_channels = in.number(1);
  in.expect("] groups ");
  p.groups = in.number(1);
  p.activation = in.activation();
  if ((p.channels + p.second_channels) % p.groups != 0) in.fail("the channels are no multiple of the groups");
  const double elements = product({p.batch, p.pixels, p.channels + p.second_channels});
  out.flops = 8 * elements;
  out.bytes = elements * (size_of(out.dtype) + size_of(out.result()));
  out.args = p;
}

// f32->bf16 [8192,320]
void parse_layer_norm(Scanner& in, Workload& out) {
  rocm_sd_kernels_layer_norm p{.size = sizeof(p), .eps = 1e-5f};
  out.dtype = in.dtype();
  p.dtype = c_dtype(out.dtype);
  out.types.result = in.result(DType::kBF16);
  in.expect(" [");
  p.rows = in.number();
  in.expect(",");
  p.channels = in.number(1);
  in.expect("]");
  out.flops = 8 * product({p.rows, p.channels});
  out.bytes = product({p.rows, p.channels}) * (size_of(out.dtype) + size_of(out.result()));
  out.args = p;
}

struct OpParser {
  std::string_view op;
  void (*parse)(Scanner&, Workload&);
};
constexpr OpParser kParsers[] = {{"attention", parse_attention},
                                 {"linear", parse_linear},
                                 {"conv2d", parse_conv2d},
                                 {"group_norm", parse_group_norm},
                                 {"layer_norm", parse_layer_norm}};

using library::OtherTypes;
library::Problem to_problem(const rocm_sd_kernels_attention& p, const OtherTypes&) {
  return library::attention_problem(p);
}
library::Problem to_problem(const rocm_sd_kernels_linear& p, const OtherTypes& types) {
  return library::linear_problem(p, types);
}
library::Problem to_problem(const rocm_sd_kernels_conv2d& p, const OtherTypes& types) {
  return library::conv2d_problem(p, types);
}
library::Problem to_problem(const rocm_sd_kernels_group_norm& p, const OtherTypes& types) {
  return library::group_norm_problem(p, types);
}
library::Problem to_problem(const rocm_sd_kernels_layer_norm& p, const OtherTypes& types) {
  return library::layer_norm_problem(p, types);
}

}  // namespace

library::Problem Workload::problem() const {
  return std::visit([&](const auto& p) { return to_problem(p, types); }, args);
}

bool is_workload_op(std::string_view op) {
  for (const OpParser& parser : kParsers)
    if (parser.op == op) return true;
  return false;
}

Workload parse_workload(std::string_view op, std::string_view text) {
  for (const OpParser& parser : kParsers) {
    if (parser.op != op) continue;
    Workload out{.op = std::string(op), .text = std::string(text)};
    Scanner in(op, text);
    parser.parse(in, out);
    in.end();
    return out;
  }
  throw UsageError(
      concat("op \"", printable(op), "\": expected attention, linear, conv2d, group_norm or layer_norm"));
}

}  // namespace rocm_sd::measurement
