#include "kernels/dequantize/dequantize.hpp"

#include "composable_kernels/fused/dequantize.hpp"
#include "kernels/eight_bit.hpp"
#include "kernels/memory_bound.hpp"
#include "kernels/ops.hpp"

namespace rocm_sd {
namespace {

// y[row, k] = values[row, k] * scales[row].
struct DequantizeProblem {
  const void* values = nullptr;
  const float* scales = nullptr;
  void* y = nullptr;
  DType from = DType::kI8, dtype = DType::kF32;
  int64_t rows = 0, depth = 1;

  static constexpr const char* kOp = "dequantize";
  static constexpr const char* kExample = "i8 to f16 [37,53]";
  static void text(auto& p, auto& t) {
    t.type(p.from, kEightBitTypes).word(" to ").type(p.dtype);
    t.word(" [").extent(p.rows).word(",").extent(p.depth, 1).word("]");
  }
  std::string describe() const { return text_of(*this); }
  static void operands(auto& p, auto& v) {
    v.input("values", p.values, {p.rows, p.depth}, p.from);
    v.input("scales", p.scales, {p.rows}, DType::kF32);
    v.output("y", p.y, {p.rows, p.depth}, p.dtype);
  }
  double flops() const { return static_cast<double>(rows * depth); }
  double exact(const auto& in, int64_t i) const { return in(0, i) * in(1, i / depth); }

  using Kernels = DequantizeKernels;
  std::array<DType, 2> types() const { return {from, dtype}; }
  int64_t items() const { return (rows * depth + kDequantizePack - 1) / kDequantizePack; }
  Refusal refuse() const {
    return rows * depth > int64_t{1} << 30 ? Refusal("more than 2^30 elements") : std::nullopt;
  }
  Refusal refuse_gpu() const {
    return memory_bound::is_aligned(values) ? std::nullopt
                                            : Refusal("takes data at multiples of 16 bytes only");
  }
  template <class From, class To>
  DequantizeParams<From, To> params(uint32_t workgroups) const {
    return {static_cast<const From*>(values),
            scales,
            static_cast<To*>(y),
            fast_divide(static_cast<int32_t>(depth)),
            static_cast<int32_t>(rows * depth),
            workgroups};
  }
  template <class Arch, class... T>
  static void body(const auto& params, const Block<Arch>& block) {
    dequantize_body(params, block);
  }
};

}  // namespace

AnyOp dequantize_op() { return MemoryBound<DequantizeProblem>::any(); }

Tensor dequantize(Exec& ex, const Tensor& values, const Tensor& scales, DType dtype) {
  require<UsageError>(values && is_eight_bit(values.dtype()), "dequantize: the values must be i8 or f8e4m3",
                      values ? concat(", are ", values.dtype()) : "");
  require<UsageError>(is_activation_type(dtype), "dequantize: to f32, bf16 or f16, not ", dtype);
  require(values.rank() >= 1, "dequantize: the values ", values.shape(), " have no rows");
  require_contiguous(values, "dequantize", "the values");
  const int64_t rows = values.dim(0), depth = values.numel() / std::max<int64_t>(rows, 1);
  const DequantizeProblem problem{.from = values.dtype(), .dtype = dtype, .rows = rows, .depth = depth};
  return run_op(ex, problem, {values.reshape({rows, depth}), scales}).reshape(values.shape());
}

}  // namespace rocm_sd
