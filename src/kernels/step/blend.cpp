#include "kernels/step/blend.hpp"

#include "composable_kernels/fused/step.hpp"
#include "kernels/memory_bound.hpp"
#include "kernels/ops.hpp"

namespace rocm_sd {
namespace {

// y = mask * a + (1 - mask) * b.
struct BlendProblem {
  const float *a = nullptr, *b = nullptr, *mask = nullptr;
  float* y = nullptr;
  int64_t size = 0;

  static constexpr const char* kOp = "blend";
  static constexpr const char* kExample = "[1003] f32";
  static void text(auto& p, auto& t) { t.word("[").extent(p.size).word("] f32"); }
  std::string describe() const { return text_of(*this); }
  static void operands(auto& p, auto& v) {
    v.input("a", p.a, {p.size}, DType::kF32);
    v.input("b", p.b, {p.size}, DType::kF32);
    v.input("mask", p.mask, {p.size}, DType::kF32);
    v.output("y", p.y, {p.size}, DType::kF32);
  }
  double flops() const { return 3.0 * static_cast<double>(size); }
  exact::Sum exact(const auto& in, int64_t i) const {
    exact::Sum sum;
    sum.add(in(2, i) * in(0, i));
    sum.add((1 - in(2, i)) * in(1, i));
    return sum;
  }

  using Kernels = Storages<>;
  std::array<DType, 0> types() const { return {}; }
  static constexpr int kWorkgroupsPerUnit = 16;
  int64_t items() const { return (size + 3) / 4; }
  template <class... T>
  BlendParams params(uint32_t workgroups) const {
    using memory_bound::is_aligned;
    return {a,         b, mask, y, size, is_aligned(a) && is_aligned(b) && is_aligned(mask) && is_aligned(y),
            workgroups};
  }
  template <class Arch, class... T>
  static void body(const auto& params, const Block<Arch>& block) {
    blend_body(params, block);
  }
};

}  // namespace

AnyOp blend_op() { return MemoryBound<BlendProblem>::any(); }

Tensor blend(Exec& ex, const Tensor& a, const Tensor& b, const Tensor& mask) {
  require_tensor(a, DType::kF32, a.shape(), "blend", "a");
  require_tensor(b, DType::kF32, a.shape(), "blend", "b");
  require_tensor(mask, DType::kF32, a.shape(), "blend", "mask");
  const Shape flat = {a.numel()};
  return run_op(ex, BlendProblem{.size = a.numel()}, {a.reshape(flat), b.reshape(flat), mask.reshape(flat)})
      .reshape(a.shape());
}

}  // namespace rocm_sd
