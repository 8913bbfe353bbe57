#include "kernels/step/blend.hpp"

#include "kernels/problem.hpp"

namespace rocm_sd {
namespace {

struct BlendProblem {
  const float *a = nullptr, *b = nullptr, *mask = nullptr;
  float* y = nullptr;
  int64_t size = 0;
  const char* op() const { return "blend"; }
  std::string describe() const { return concat("[", size, "] f32"); }
  double flops() const { return 3.0 * static_cast<double>(size); }
  double bytes() const { return 16.0 * static_cast<double>(size); }
};

void blend_ref(const BlendProblem& p) {
  for (int64_t i = 0; i < p.size; ++i) {
    const double m = p.mask[i];
    p.y[i] = static_cast<float>(m * p.a[i] + (1 - m) * p.b[i]);
  }
}

void run_blend_ref(Exec& ex, const BlendProblem& p) { launch_problem(ex, p, "ref", blend_ref); }

const ImplList<BlendProblem> kBlend = {"blend", {{"ref", supports_everything, run_blend_ref}}};

}  // namespace

Tensor blend(Exec& ex, const Tensor& a, const Tensor& b, const Tensor& mask) {
  require_tensor(a, DType::kF32, a.shape(), "blend", "a");
  require_tensor(b, DType::kF32, a.shape(), "blend", "b");
  require_tensor(mask, DType::kF32, a.shape(), "blend", "mask");
  const Tensor y = ex.alloc_like(a);
  const BlendProblem problem{a.as<float>(), b.as<float>(), mask.as<float>(), y.as<float>(), a.numel()};
  select(ex, kBlend, problem).run(ex, problem);
  return y;
}

}  // namespace rocm_sd
