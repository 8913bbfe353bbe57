// The step ops on the host's vector units.
#include <algorithm>
#include <cmath>

#include "kernels/host_table.hpp"
#include "kernels/step/step_impl.hpp"
#include "kernels/step/step_loops.hpp"

namespace rocm_sd {
namespace {

constexpr int64_t kPiece = 16384;  // elements per task

const StepKernels& kernels() { return ROCM_SD_HOST_TABLE(kStepKernels); }

// Calls body(first, size) for pieces of 0..size, on all threads.
template <class Body>
void for_pieces(int64_t size, const Body& body) {
  const int64_t pieces = (size + kPiece - 1) / kPiece;
#pragma omp parallel for schedule(static) if (pieces > 1)
  for (int64_t i = 0; i < pieces; ++i) body(i * kPiece, std::min(kPiece, size - i * kPiece));
}

void linear_combination_host(const LinearCombinationProblem& p) {
  for_pieces(p.size, [&](int64_t first, int64_t size) {
    kernels().combine(p.terms, p.factors, p.count, first, size, p.y + first);
  });
}

const char* image_of(const GuidanceProblem& p, int64_t index) {
  return static_cast<const char*>(p.x) + index * p.size * static_cast<int64_t>(dtype_size(p.dtype));
}

// rescale * sigma(conditional) / sigma(guided) + 1 - rescale. Latents are small (64 KB): one thread per
// image.
double rescale_factor(const GuidanceProblem& p, int64_t n) {
  const bool bf16 = p.dtype == DType::kBF16;
  double mean[2] = {0, 0}, first[4] = {}, second[4] = {};
  const char *a = image_of(p, n), *b = image_of(p, p.images + n);
  kernels().guide_moments(a, b, bf16, p.scale, mean, p.size, first);
  mean[0] = first[0] / static_cast<double>(p.size);
  mean[1] = first[2] / static_cast<double>(p.size);
  kernels().guide_moments(a, b, bf16, p.scale, mean, p.size, second);
  return second[1] == 0 ? 1 : p.rescale * std::sqrt(second[3] / second[1]) + 1 - p.rescale;
}

void guidance_host(const GuidanceProblem& p) {
#pragma omp parallel for schedule(static) if (p.images * p.size > kPiece)
  for (int64_t n = 0; n < p.images; ++n)
    kernels().guide(image_of(p, n), image_of(p, p.images + n), p.dtype == DType::kBF16, p.scale,
                    p.rescale > 0 ? rescale_factor(p, n) : 1.0, p.size, p.y + n * p.size);
}

void count_nonfinite_host(const CountNonfiniteProblem& p) {
  const int64_t pieces = (p.size + kPiece - 1) / kPiece;
  int64_t count = 0;
#pragma omp parallel for schedule(static) reduction(+ : count) if (pieces > 1)
  for (int64_t i = 0; i < pieces; ++i) {
    const auto* x = static_cast<const char*>(p.x) + i * kPiece * static_cast<int64_t>(dtype_size(p.dtype));
    count += kernels().count_nonfinite(x, p.dtype == DType::kBF16, std::min(kPiece, p.size - i * kPiece));
  }
  *p.count = count;
}

}  // namespace

void run_linear_combination_host(Exec& ex, const LinearCombinationProblem& problem) {
  launch_problem(ex, problem, "host", linear_combination_host);
}
void run_guidance_host(Exec& ex, const GuidanceProblem& problem) {
  launch_problem(ex, problem, "host", guidance_host);
}
void run_count_nonfinite_host(Exec& ex, const CountNonfiniteProblem& problem) {
  launch_problem(ex, problem, "host", count_nonfinite_host);
}

}  // namespace rocm_sd
