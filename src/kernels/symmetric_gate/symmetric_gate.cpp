#include "kernels/symmetric_gate/symmetric_gate.hpp"

#include "composable_kernels/fused/symmetric_gate.hpp"
#include "kernels/memory_bound.hpp"
#include "kernels/ops.hpp"

namespace rocm_sd {
namespace {

struct SymmetricGateProblem {
  const void* v = nullptr;
  const void* x = nullptr;
  void* y = nullptr;
  DType dtype = DType::kF32;
  int64_t size = 0;

  static constexpr const char* kOp = "symmetric_gate";
  static constexpr const char* kExample = "f32 [1000]";
  static void text(auto& p, auto& t) { t.type(p.dtype).word(" [").extent(p.size).word("]"); }
  std::string describe() const { return text_of(*this); }
  static void operands(auto& p, auto& v) {
    v.input("v", p.v, {p.size}, p.dtype);
    v.input("x", p.x, {p.size}, p.dtype);
    v.output("y", p.y, {p.size}, p.dtype);
  }
  double flops() const { return 4 * static_cast<double>(size); }
  exact::Sum exact(const auto& in, int64_t i) const {
    const double v = in(0, i), x = in(1, i), weight = std::tanh(v / 2) / 2;
    return {(v + x) * weight, (std::fabs(v) + std::fabs(x)) * std::fabs(weight)};
  }

  int64_t items() const { return size; }
  template <class T>
  SymmetricGateParams<T> params(uint32_t workgroups) const {
    return {static_cast<const T*>(v), static_cast<const T*>(x), static_cast<T*>(y), size, workgroups};
  }
  template <class Arch, class... T>
  static void body(const auto& params, const Block<Arch>& block) {
    symmetric_gate_body(params, block);
  }
};

}  // namespace

AnyOp symmetric_gate_op() { return MemoryBound<SymmetricGateProblem>::any(); }

Tensor symmetric_gate(Exec& ex, const Tensor& v, const Tensor& x) {
  require_activation_type(v, "symmetric_gate", "v");
  require_contiguous(v, "symmetric_gate", "v");
  require_contiguous(x, "symmetric_gate", "x");
  require(x.shape() == v.shape() && x.dtype() == v.dtype(), "symmetric_gate: expected x as v, ", v.shape(),
          " ", v.dtype(), ", got ", x.shape(), " ", x.dtype());
  const SymmetricGateProblem problem{.dtype = v.dtype(), .size = v.numel()};
  const Shape flat{v.numel()};
  return run_op(ex, problem, {v.reshape(flat), x.reshape(flat)}).reshape(v.shape());
}

}  // namespace rocm_sd
