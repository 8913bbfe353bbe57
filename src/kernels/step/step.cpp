#include "kernels/step/step.hpp"

#include "kernels/elementwise/map.hpp"
#include "kernels/step/step_impl.hpp"

namespace rocm_sd {
namespace {

const ImplList<LinearCombinationProblem> kLinearCombination = {
    "linear_combination",
    {
        {"gpu", supports_linear_combination_gpu, run_linear_combination_gpu},
        {"host", supports_host, run_linear_combination_host},
        {"scalar", supports_host, run_linear_combination_scalar},
        {"ref", supports_host, run_linear_combination_ref},
    }};
const ImplList<GuidanceProblem> kGuidance = {"apply_guidance",
                                             {
                                                 {"gpu", supports_guidance_gpu, run_guidance_gpu},
                                                 {"host", supports_host_f32_or_bf16, run_guidance_host},
                                                 {"scalar", supports_host, run_guidance_scalar},
                                                 {"ref", supports_host, run_guidance_ref},
                                             }};
const ImplList<CountNonfiniteProblem> kCountNonfinite = {
    "count_nonfinite",
    {
        {"gpu", supports_count_nonfinite_gpu, run_count_nonfinite_gpu},
        {"host", supports_host_f32_or_bf16, run_count_nonfinite_host},
        {"scalar", supports_host, run_count_nonfinite_scalar},
        {"ref", supports_host, run_count_nonfinite_ref},
    }};

}  // namespace

Tensor linear_combination(Exec& ex, std::span<const Term> terms) {
  require<UsageError>(!terms.empty() && terms.size() <= LinearCombinationProblem::kMaxTerms,
                      "linear_combination: takes 1 to ", LinearCombinationProblem::kMaxTerms, " terms, got ",
                      terms.size());
  LinearCombinationProblem problem;
  for (const Term& term : terms) {
    const std::string name = concat("term ", problem.count);
    require_tensor(term.tensor, DType::kF32, terms[0].tensor.shape(), "linear_combination", name);
    problem.terms[problem.count] = term.tensor.as<float>();
    problem.factors[problem.count++] = term.factor;
  }
  const Tensor y = ex.alloc_like(terms[0].tensor);
  problem.y = y.as<float>();
  problem.size = y.numel();
  select(ex, kLinearCombination, problem).run(ex, problem);
  return y;
}
Tensor linear_combination(Exec& ex, std::initializer_list<Term> terms) {
  return linear_combination(ex, std::span<const Term>(terms.begin(), terms.size()));
}

Tensor apply_guidance(Exec& ex, const Tensor& model_output, const GuidanceArgs& args) {
  require(model_output.rank() == 4 && model_output.dim(0) % 2 == 0,
          "apply_guidance: model_output must be [2N,H,W,C], is ", model_output.shape());
  require_activation_type(model_output, "apply_guidance", "model_output");
  require_contiguous(model_output, "apply_guidance", "model_output");
  Shape shape = model_output.shape();
  shape[0] /= 2;
  const Tensor y = ex.alloc(shape, DType::kF32);
  const GuidanceProblem problem{.x = model_output.data(),
                                .y = y.as<float>(),
                                .dtype = model_output.dtype(),
                                .images = shape[0],
                                .size = shape[1] * shape[2] * shape[3],
                                .scale = args.scale,
                                .rescale = args.rescale};
  select(ex, kGuidance, problem).run(ex, problem);
  return y;
}

Tensor scale_model_input(Exec& ex, const Tensor& x, double factor, int times, DType dtype) {
  require(x.rank() >= 1 && x.dtype() == DType::kF32, "scale_model_input: x must be f32 [N,...], is ",
          x.dtype(), " ", x.shape());
  require_contiguous(x, "scale_model_input", "x");
  require<UsageError>(times >= 1, "scale_model_input: times must be at least 1, is ", times);
  require<UsageError>(is_activation_type(dtype),
                      "scale_model_input: the result must be f32, bf16 or f16, not ", dtype);
  Shape shape = x.shape();
  shape[0] *= times;
  const Tensor y = ex.alloc(shape, dtype);
  run_map(ex, {.name = "scale_model_input",
               .map = Map::kAffine,
               .a = x.data(),
               .y = y.data(),
               .y_type = dtype,
               .rows = times,
               .cols = x.numel(),
               .a_stride = 0,  // each repetition reads x again
               .y_stride = x.numel(),
               .p0 = static_cast<float>(factor),
               .p1 = 0});
  return y;
}

Tensor to_rgb8(Exec& ex, const Tensor& x, float scale, float shift) {
  require(x.rank() == 4 && x.dim(3) == 3, "to_rgb8: x must be [N,H,W,3], is ", x.shape());
  require_activation_type(x, "to_rgb8", "x");
  require_contiguous(x, "to_rgb8", "x");
  const Tensor y = ex.alloc(x.shape(), DType::kU8);
  run_map(ex, {.name = "to_rgb8",
               .map = Map::kRgb8,
               .a = x.data(),
               .y = y.data(),
               .a_type = x.dtype(),
               .y_type = DType::kU8,
               .cols = x.numel(),
               .p0 = scale,
               .p1 = shift});
  return y;
}

Tensor count_nonfinite(Exec& ex, const Tensor& x) {
  require_activation_type(x, "count_nonfinite", "x");
  require_contiguous(x, "count_nonfinite", "x");
  const Tensor count = ex.alloc({1}, DType::kI64);
  const CountNonfiniteProblem problem{
      .x = x.data(), .count = count.as<int64_t>(), .dtype = x.dtype(), .size = x.numel()};
  select(ex, kCountNonfinite, problem).run(ex, problem);
  return count;
}

}  // namespace rocm_sd
