// group_norm and layer_norm in double precision.
#include <cmath>

#include "kernels/norm/norm_impl.hpp"
#include "kernels/reference.hpp"

namespace rocm_sd {
namespace {

double group_norm_input(const GroupNormProblem& p, int64_t pixel, int64_t c) {
  const int64_t first = p.first_channels();
  return c < first ? ref::load(p.x, p.dtype, pixel * first + c)
                   : ref::load(p.second, p.dtype, pixel * p.second_channels + c - first);
}

void normalise_group(const GroupNormProblem& p, int64_t image, int64_t group) {
  const int64_t width = p.channels / p.groups, begin = group * width, count = p.pixels * width;
  const auto for_each = [&](const auto& visit) {
    for (int64_t pixel = image * p.pixels; pixel < (image + 1) * p.pixels; ++pixel)
      for (int64_t c = begin; c < begin + width; ++c) visit(pixel, c, group_norm_input(p, pixel, c));
  };
  double sum = 0, squares = 0;
  for_each([&](int64_t, int64_t, double x) { sum += x; });
  const double mean = sum / static_cast<double>(count);
  for_each([&](int64_t, int64_t, double x) { squares += (x - mean) * (x - mean); });
  const double deviation = std::sqrt(squares / static_cast<double>(count) + static_cast<double>(p.eps));
  for_each([&](int64_t pixel, int64_t c, double x) {
    double value = (x - mean) / deviation * p.gain[c] + p.bias[c];
    if (p.silu) value /= 1 + std::exp(-value);
    ref::store(p.y, p.out_dtype(), pixel * p.channels + c, value);
  });
}

void group_norm_ref(const GroupNormProblem& p) {
#pragma omp parallel for collapse(2) schedule(static)
  for (int64_t image = 0; image < p.images; ++image)
    for (int64_t group = 0; group < p.groups; ++group) normalise_group(p, image, group);
}

void layer_norm_ref(const LayerNormProblem& p) {
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < p.rows; ++row) {
    double sum = 0, squares = 0;
    for (int64_t c = 0; c < p.cols; ++c) sum += ref::load(p.x, p.dtype, row * p.cols + c);
    const double mean = sum / static_cast<double>(p.cols);
    for (int64_t c = 0; c < p.cols; ++c)
      squares += std::pow(ref::load(p.x, p.dtype, row * p.cols + c) - mean, 2);
    const double deviation = std::sqrt(squares / static_cast<double>(p.cols) + static_cast<double>(p.eps));
    for (int64_t c = 0; c < p.cols; ++c)
      ref::store(p.y, p.out_dtype(), row * p.cols + c,
                 (ref::load(p.x, p.dtype, row * p.cols + c) - mean) / deviation * p.gain[c] + p.bias[c]);
  }
}

}  // namespace

void run_group_norm_ref(Exec& ex, const GroupNormProblem& problem) {
  launch_problem(ex, problem, "ref", group_norm_ref);
}
void run_layer_norm_ref(Exec& ex, const LayerNormProblem& problem) {
  launch_problem(ex, problem, "ref", layer_norm_ref);
}

}  // namespace rocm_sd
