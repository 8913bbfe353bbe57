#include "kernels/elementwise/elementwise.hpp"

#include "kernels/elementwise/map.hpp"

namespace rocm_sd {
namespace {

const ImplList<MapProblem> kImpls = {"elementwise",
                                     {
                                         {"gpu", supports_map_gpu, run_map_gpu},
                                         {"host", supports_map_host, run_map_host},
                                         {"scalar", supports_map_scalar, run_map_scalar},
                                         {"ref", supports_host, run_map_ref},
                                     }};

// x as rows of contiguous elements: {rows, cols, row stride}. Throws ShapeError if its strides need more than
// two levels.
struct Rows {
  int64_t rows = 1, cols = 1, stride = 0;
};
Rows as_rows(const Tensor& x, std::string_view op) {
  int axis = x.rank() - 1;
  Rows out;
  for (; axis >= 0 && (x.dim(axis) == 1 || x.stride(axis) == out.cols); --axis) out.cols *= x.dim(axis);
  if (axis >= 0) out.stride = x.stride(axis);
  int64_t step = out.stride;
  for (; axis >= 0; --axis) {
    require(x.dim(axis) == 1 || x.stride(axis) == step, op, ": the strides of ", x.shape(),
            " cannot be read as rows");
    out.rows *= x.dim(axis);
    step *= x.dim(axis);
  }
  return out;
}

// A flat map of a contiguous tensor onto another of its numel.
MapProblem flat(const char* name, Map map, const Tensor& x, const Tensor& y) {
  return {.name = name,
          .map = map,
          .a = x.data(),
          .y = y.data(),
          .a_type = x.dtype(),
          .y_type = y.dtype(),
          .cols = x.numel()};
}

Tensor map_like(Exec& ex, const char* name, Map map, const Tensor& x, float p0 = 1, float p1 = 0) {
  require_activation_type(x, name, "x");
  require_contiguous(x, name, "x");
  const Tensor y = ex.alloc_like(x);
  MapProblem problem = flat(name, map, x, y);
  problem.p0 = p0;
  problem.p1 = p1;
  run_map(ex, problem);
  return y;
}

// x to y of its numel, both rows that may lie apart.
MapProblem by_rows(const char* name, Map map, const Tensor& x, const Tensor& y) {
  const Rows from = as_rows(x, name), to = as_rows(y, name);
  const Rows& shorter = to.cols < from.cols ? to : from;  // rows of the one are parts of the other's
  require(from.cols == to.cols || (&shorter == &to ? from : to).rows == 1, name, ": the rows of ", x.shape(),
          " do not fit those of ", y.shape());
  MapProblem problem = flat(name, map, x, y);
  problem.rows = shorter.rows;
  problem.cols = shorter.cols;
  problem.a_stride = from.cols == shorter.cols ? from.stride : shorter.cols;
  problem.y_stride = to.cols == shorter.cols ? to.stride : shorter.cols;
  return problem;
}

void copy(Exec& ex, const char* name, const Tensor& x, const Tensor& y) {
  require<UsageError>(is_activation_type(x.dtype()) && is_activation_type(y.dtype()), name,
                      ": cannot convert ", x.dtype(), " to ", y.dtype(), "; both must be f32, bf16 or f16");
  if (x.numel() == 0) return;
  run_map(ex, by_rows(name, Map::kCopy, x, y));
}

}  // namespace

std::string MapProblem::describe() const {
  return concat(a_type, a_type == y_type ? std::string() : concat("->", y_type), " [", rows, ",", cols, "]");
}
double MapProblem::bytes() const {
  const size_t element = dtype_size(a_type) + dtype_size(y_type) * static_cast<size_t>(parts) +
                         (binary() ? dtype_size(b_type) : 0);
  return static_cast<double>(rows * cols) * static_cast<double>(element);
}

void run_map(Exec& ex, const MapProblem& problem) { select(ex, kImpls, problem).run(ex, problem); }

Tensor activate(Exec& ex, const Tensor& x, Activation act) {
  switch (act) {
    case Activation::kNone: return map_like(ex, "copy", Map::kCopy, x);
    case Activation::kSilu: return map_like(ex, "silu", Map::kSilu, x);
    case Activation::kGelu: return map_like(ex, "gelu", Map::kGelu, x);
    case Activation::kQuickGelu: return map_like(ex, "quick_gelu", Map::kQuickGelu, x);
    case Activation::kRelu: return map_like(ex, "relu", Map::kRelu, x);
  }
  throw UsageError(concat("activate: unknown activation ", static_cast<int>(act)));
}

Tensor leaky_relu(Exec& ex, const Tensor& x, float slope) {
  return map_like(ex, "leaky_relu", Map::kLeakyRelu, x, slope);
}

void leaky_relu_into(Exec& ex, const Tensor& x, float slope, const Tensor& y) {
  require_activation_type(x, "leaky_relu", "x");
  require(x.numel() == y.numel() && x.dtype() == y.dtype(), "leaky_relu: y ", y.shape(), " of ", y.dtype(),
          " does not fit x ", x.shape(), " of ", x.dtype());
  if (x.numel() == 0) return;
  MapProblem problem = by_rows("leaky_relu", Map::kLeakyRelu, x, y);
  problem.p0 = slope;
  run_map(ex, problem);
}

Tensor prelu(Exec& ex, const Tensor& x, const Tensor& slopes) {
  require_activation_type(x, "prelu", "x");
  require_contiguous(x, "prelu", "x");
  require(x.rank() >= 1 && slopes.numel() == x.dim(-1) && slopes.dtype() == x.dtype(), "prelu: slopes ",
          slopes.shape(), " of ", slopes.dtype(), " do not fit x ", x.shape(), " of ", x.dtype());
  require_contiguous(slopes, "prelu", "slopes");
  const Tensor y = ex.alloc_like(x);
  if (y.numel() == 0) return y;
  MapProblem problem = flat("prelu", Map::kPRelu, x, y);
  problem.b = slopes.data();
  problem.b_type = slopes.dtype();
  problem.cols = problem.a_stride = problem.y_stride = x.dim(-1);
  problem.rows = x.numel() / problem.cols;
  run_map(ex, problem);  // b_stride 0: every row reads the same slopes
  return y;
}

Tensor geglu(Exec& ex, const Tensor& x) {
  require(x.rank() >= 1 && x.dim(-1) % 2 == 0, "geglu: x must be [...,2C], is ", x.shape());
  require_activation_type(x, "geglu", "x");
  require_contiguous(x, "geglu", "x");
  Shape shape = x.shape();
  const int64_t half = shape[-1] /= 2;
  const Tensor y = ex.alloc(shape, x.dtype());
  if (y.numel() == 0) return y;
  const Tensor gate = x.narrow(-1, half, half);
  MapProblem problem = flat("geglu", Map::kMulGelu, x, y);
  problem.b = gate.data();
  problem.b_type = x.dtype();
  problem.rows = y.numel() / half;
  problem.cols = problem.y_stride = half;
  problem.a_stride = problem.b_stride = 2 * half;
  run_map(ex, problem);
  return y;
}

Tensor add(Exec& ex, const Tensor& a, const Tensor& b) {
  require(a.shape() == b.shape(), "add: b ", b.shape(), " does not fit a ", a.shape());
  require_activation_type(a, "add", "a");
  require<UsageError>(a.dtype() == b.dtype(), "add: b is ", b.dtype(), ", a is ", a.dtype());
  require_contiguous(a, "add", "a");
  require_contiguous(b, "add", "b");
  const Tensor y = ex.alloc_like(a);
  MapProblem problem = flat("add", Map::kAdd, a, y);
  problem.b = b.data();
  problem.b_type = b.dtype();
  run_map(ex, problem);
  return y;
}

Tensor add_scaled(Exec& ex, const Tensor& a, const Tensor& b, const Tensor& factors) {
  require(a.rank() >= 1 && a.shape() == b.shape(), "add_scaled: b ", b.shape(), " does not fit a ",
          a.shape());
  require_contiguous(a, "add_scaled", "a");
  require_contiguous(b, "add_scaled", "b");
  const Tensor y = ex.alloc_like(a);
  const Shape rows{a.dim(0), a.dim(0) ? a.numel() / a.dim(0) : 0};
  add_scaled_into(ex, a.reshape(rows), b.reshape(rows), factors, y.reshape(rows));
  return y;
}

void add_scaled_into(Exec& ex, const Tensor& a, const Tensor& b, const Tensor& factors, const Tensor& y) {
  const bool one_row = b.rank() == 1;
  require(a.rank() == 2 && a.shape() == y.shape() && b.dim(-1) == a.dim(1) &&
              (one_row || a.shape() == b.shape()) && a.stride(1) == 1 && b.stride(b.rank() - 1) == 1 &&
              y.stride(1) == 1,
          "add_scaled: expected rows [R,C] of one shape, b also [C], got ", a.shape(), ", ", b.shape(),
          " and ", y.shape());
  require(factors.shape() == Shape{a.dim(0)} && factors.dtype() == DType::kF32 && factors.is_contiguous(),
          "add_scaled: factors: expected [", a.dim(0), "] f32, got ", factors.shape(), " ", factors.dtype());
  require_activation_type(a, "add_scaled", "a");
  require<UsageError>(a.dtype() == b.dtype() && a.dtype() == y.dtype(), "add_scaled: b is ", b.dtype(),
                      ", y ", y.dtype(), ", a is ", a.dtype());
  if (y.numel() == 0) return;
  MapProblem problem = flat("add_scaled", Map::kAddScaled, a, y);
  problem.b = b.data();
  problem.b_type = b.dtype();
  problem.rows = a.dim(0);
  problem.cols = a.dim(1);
  problem.a_stride = a.stride(0);
  problem.b_stride = one_row ? 0 : b.stride(0);
  problem.y_stride = y.stride(0);
  problem.factors = factors.as<float>();
  run_map(ex, problem);
}

Tensor concat_channels(Exec& ex, const Tensor& a, const Tensor& b) {
  const auto outer = [](const Tensor& x) {
    return x.shape().dims().first(static_cast<size_t>(x.rank() - 1));
  };
  require(a.rank() >= 1 && a.rank() == b.rank() && std::ranges::equal(outer(a), outer(b)),
          "concat_channels: b ", b.shape(), " does not fit a ", a.shape());
  require_activation_type(a, "concat_channels", "a");
  require<UsageError>(a.dtype() == b.dtype(), "concat_channels: b is ", b.dtype(), ", a is ", a.dtype());
  Shape shape = a.shape();
  const int64_t width = shape[-1] += b.dim(-1);
  const Tensor y = ex.alloc(shape, a.dtype());
  const auto place = [&](const Tensor& x, std::string_view name, int64_t begin) {
    require_contiguous(x, "concat_channels", name);
    if (x.numel() == 0) return;
    const Tensor part = y.narrow(-1, begin, x.dim(-1));
    MapProblem problem = flat("concat_channels", Map::kCopy, x, part);
    problem.rows = x.numel() / x.dim(-1);
    problem.cols = problem.a_stride = x.dim(-1);
    problem.y_stride = width;
    run_map(ex, problem);
  };
  place(a, "a", 0);
  place(b, "b", a.dim(-1));
  return y;
}

Tensor affine(Exec& ex, const Tensor& x, float scale, float shift) {
  return map_like(ex, "affine", Map::kAffine, x, scale, shift);
}

Tensor soft_clamp(Exec& ex, const Tensor& x, float limit) {
  require<UsageError>(limit > 0, "soft_clamp: the limit must be positive, is ", limit);
  return map_like(ex, "soft_clamp", Map::kSoftClamp, x, limit);
}

Tensor cast(Exec& ex, const Tensor& x, DType dtype) {
  const Tensor y = ex.alloc(x.shape(), dtype);
  copy(ex, "cast", x, y);
  return y;
}

Tensor split_bf16(Exec& ex, const Tensor& x, int64_t parts, const Tensor* second) {
  require<UsageError>(parts == 2 || parts == 3, "split_bf16: expected 2 or 3 parts, got ", parts);
  require(x.rank() >= 1, "split_bf16: x must be [...,C], is ", x.shape());
  Shape shape = x.shape();
  if (second) {
    if (second->rank() == x.rank()) shape[-1] = second->dim(-1);
    require(second->shape() == shape, "split_bf16: second ", second->shape(), " does not fit x ", x.shape());
    shape[-1] += x.dim(-1);
  }
  const int64_t channels = shape[-1];
  shape[-1] *= parts;
  const Tensor y = ex.alloc(shape, DType::kBF16);
  const auto place = [&](const Tensor& input, std::string_view name, int64_t begin) {
    require<UsageError>(input.dtype() == DType::kF32, "split_bf16: ", name, " is ", input.dtype(),
                        ", expected f32");
    require_contiguous(input, "split_bf16", name);
    if (input.numel() == 0) return;
    const int64_t width = input.dim(-1);
    MapProblem problem = flat("split_bf16", Map::kSplit, input, y.narrow(-1, begin, width));
    problem.rows = input.numel() / width;
    problem.cols = problem.a_stride = width;
    problem.y_stride = parts * channels;
    problem.part_stride = channels;
    problem.parts = static_cast<int>(parts);
    run_map(ex, problem);
  };
  place(x, "x", 0);
  if (second) place(*second, "second", x.dim(-1));
  return y;
}

void copy_into(Exec& ex, const Tensor& x, const Tensor& y) {
  require(x.numel() == y.numel(), "copy_into: x ", x.shape(), " does not fit y ", y.shape());
  if (x.dtype() != y.dtype() || !x.is_contiguous() || !y.is_contiguous()) return copy(ex, "copy_into", x, y);
  // The same bits: any type, and the device's own copy.
  const size_t bytes = x.bytes();
  ex.launch({"copy_into", concat("device ", y.dtype(), " ", y.shape()), 0, 2.0 * static_cast<double>(bytes)},
            [&device = ex.device(), to = y.data(), from = x.data(), bytes] {
              device.copy_on_device(to, from, bytes);
            });
}

}  // namespace rocm_sd
