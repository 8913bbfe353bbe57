// resample in double precision: for each output pixel the kernel is evaluated at every input pixel of the
// axis.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "kernels/reference.hpp"
#include "kernels/resample/resample_impl.hpp"

namespace rocm_sd {
namespace {

double sinc(double x) { return x == 0 ? 1 : std::sin(std::numbers::pi * x) / (std::numbers::pi * x); }

double kernel(ResampleMode mode, double x) {
  x = std::fabs(x);
  switch (mode) {
    case ResampleMode::kBilinear: return std::max(0.0, 1 - x);
    case ResampleMode::kBicubic:  // Keys, "Cubic Convolution Interpolation", 1981, with a = -1/2
      if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
      return x < 2 ? ((-0.5 * x + 2.5) * x - 4) * x + 2 : 0;
    case ResampleMode::kLanczos3: return x < 3 ? sinc(x) * sinc(x / 3) : 0;
    default: return 0;
  }
}

// Weight of each of `in` pixels in output pixel i of `out`.
std::vector<double> weights(ResampleMode mode, int64_t in, int64_t out, int64_t i) {
  std::vector<double> w(static_cast<size_t>(in));
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  if (mode == ResampleMode::kNearest) {
    w[static_cast<size_t>((2 * i + 1) * in / (2 * out))] = 1;
    return w;
  }
  double sum = 0;
  for (int64_t j = 0; j < in; ++j) {
    const double x = static_cast<double>(j), y = static_cast<double>(i);
    double& weight = w[static_cast<size_t>(j)];
    if (mode == ResampleMode::kArea)
      weight = std::max(0.0, std::min(x + 1, (y + 1) * scale) - std::max(x, y * scale));
    else
      weight = kernel(mode, (x + 0.5 - (y + 0.5) * scale) / std::max(scale, 1.0));
    sum += weight;
  }
  for (double& weight : w) weight /= sum;
  return w;
}

void resample_pixel(const ResampleProblem& p, const std::vector<double>& rows,
                    const std::vector<double>& cols, int64_t n, int64_t y, int64_t x) {
  for (int64_t c = 0; c < p.channels; ++c) {
    double sum = 0;
    for (int64_t j = 0; j < p.in_height; ++j)
      for (int64_t i = 0; i < p.in_width; ++i) {
        const double weight = rows[static_cast<size_t>(j)] * cols[static_cast<size_t>(i)];
        if (weight == 0) continue;
        sum += weight * ref::load(p.x, p.dtype, ((n * p.in_height + j) * p.in_width + i) * p.channels + c);
      }
    ref::store(p.y, p.dtype, ((n * p.height + y) * p.width + x) * p.channels + c, sum);
  }
}

void resample_ref(const ResampleProblem& p) {
  std::vector<std::vector<double>> cols;
  for (int64_t x = 0; x < p.width; ++x) cols.push_back(weights(p.mode, p.in_width, p.width, x));
#pragma omp parallel for collapse(2) schedule(static)
  for (int64_t n = 0; n < p.images; ++n)
    for (int64_t y = 0; y < p.height; ++y) {
      const std::vector<double> rows = weights(p.mode, p.in_height, p.height, y);
      for (int64_t x = 0; x < p.width; ++x) resample_pixel(p, rows, cols[static_cast<size_t>(x)], n, y, x);
    }
}

}  // namespace

void run_resample_ref(Exec& ex, const ResampleProblem& problem) {
  launch_problem(ex, problem, "ref", resample_ref);
}

}  // namespace rocm_sd
