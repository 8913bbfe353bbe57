#include "kernels/step/blend.hpp"

#include "kernels/step/step_impl.hpp"

namespace rocm_sd {
namespace {

void blend_ref(const BlendProblem& p) {
  for (int64_t i = 0; i < p.size; ++i) {
    const double m = p.mask[i];
    p.y[i] = static_cast<float>(m * p.a[i] + (1 - m) * p.b[i]);
  }
}

void run_blend_ref(Exec& ex, const BlendProblem& p) { launch_problem(ex, p, "ref", blend_ref); }

const ImplList<BlendProblem> kBlend = {"blend",
                                       {
                                           {"gpu", supports_blend_gpu, run_blend_gpu},
                                           {"scalar", supports_host, run_blend_scalar},
                                           {"ref", supports_host, run_blend_ref},
                                       }};

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
