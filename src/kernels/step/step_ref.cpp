// The step ops in double precision.
#include <cmath>

#include "kernels/reference.hpp"
#include "kernels/step/step_impl.hpp"

namespace rocm_sd {
namespace {

void linear_combination_ref(const LinearCombinationProblem& p) {
  for (int64_t i = 0; i < p.size; ++i) {
    double sum = 0;
    for (int t = 0; t < p.count; ++t) sum += p.factors[t] * static_cast<double>(p.terms[t][i]);
    p.y[i] = static_cast<float>(sum);
  }
}

double deviation(int64_t size, const auto& value) {
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < size; ++i) sum += value(i);
  const double mean = sum / static_cast<double>(size);
  for (int64_t i = 0; i < size; ++i) squares += (value(i) - mean) * (value(i) - mean);
  return std::sqrt(squares / static_cast<double>(size));
}

void guidance_ref(const GuidanceProblem& p) {
  for (int64_t n = 0; n < p.images; ++n) {
    const auto conditional = [&](int64_t i) { return ref::load(p.x, p.dtype, (p.images + n) * p.size + i); };
    const auto guided = [&](int64_t i) {
      const double unconditional = ref::load(p.x, p.dtype, n * p.size + i);
      return unconditional + p.scale * (conditional(i) - unconditional);
    };
    double factor = 1;
    if (p.rescale > 0) {
      const double own = deviation(p.size, guided);
      if (own != 0) factor = p.rescale * deviation(p.size, conditional) / own + 1 - p.rescale;
    }
    for (int64_t i = 0; i < p.size; ++i) p.y[n * p.size + i] = static_cast<float>(factor * guided(i));
  }
}

void count_nonfinite_ref(const CountNonfiniteProblem& p) {
  int64_t count = 0;
  for (int64_t i = 0; i < p.size; ++i) count += !std::isfinite(ref::load(p.x, p.dtype, i));
  *p.count = count;
}

}  // namespace

void run_linear_combination_ref(Exec& ex, const LinearCombinationProblem& problem) {
  launch_problem(ex, problem, "ref", linear_combination_ref);
}
void run_guidance_ref(Exec& ex, const GuidanceProblem& problem) {
  launch_problem(ex, problem, "ref", guidance_ref);
}
void run_count_nonfinite_ref(Exec& ex, const CountNonfiniteProblem& problem) {
  launch_problem(ex, problem, "ref", count_nonfinite_ref);
}

}  // namespace rocm_sd
