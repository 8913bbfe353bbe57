// Elementwise maps in double precision.
#include <algorithm>
#include <cmath>

#include "kernels/elementwise/map.hpp"
#include "kernels/reference.hpp"

namespace rocm_sd {
namespace {

double gelu(double x) { return x / 2 * std::erfc(-x * std::sqrt(0.5)); }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double apply(const MapProblem& p, int64_t row, double a, double b) {
  const double p0 = p.p0;
  switch (p.map) {
    case Map::kCopy: return a;
    case Map::kSilu: return a * sigmoid(a);
    case Map::kGelu: return gelu(a);
    case Map::kQuickGelu: return a * sigmoid(1.702 * a);
    case Map::kRelu: return a < 0 ? 0 : a;
    case Map::kAdd: return a + b;
    case Map::kMulGelu: return a * gelu(b);
    case Map::kAddScaled: return a + static_cast<double>(p.factors[row]) * b;
    case Map::kLeakyRelu: return a < 0 ? p0 * a : a;
    case Map::kPRelu: return a < 0 ? b * a : a;
    case Map::kAffine: return a * p0 + static_cast<double>(p.p1);
    case Map::kSoftClamp: return p0 * std::tanh(a / p0);
    case Map::kSplit: return a;
    case Map::kRgb8: {
      // The contract's arithmetic is float: halves must fall where NumPy's float32 puts them.
      const float unit = static_cast<float>(a) * p.p0 + p.p1;
      return std::isnan(unit) ? 0.0 : std::nearbyint(std::clamp(unit, 0.0f, 1.0f) * 255.0f);
    }
  }
  return 0;
}

void map_row(const MapProblem& p, int64_t r) {
  for (int64_t c = 0; c < p.cols; ++c) {
    const double b = p.binary() ? ref::load(p.b, p.b_type, r * p.b_stride + c) : 0.0;
    const double y = apply(p, r, ref::load(p.a, p.a_type, r * p.a_stride + c), b);
    if (p.y_type == DType::kU8)
      static_cast<uint8_t*>(p.y)[r * p.y_stride + c] = static_cast<uint8_t>(y);
    else
      ref::store(p.y, p.y_type, r * p.y_stride + c, y);
    if (p.map != Map::kSplit) continue;
    const int64_t second = r * p.y_stride + c + p.part_stride;
    ref::store(p.y, p.y_type, second, y - ref::load(p.y, p.y_type, second - p.part_stride));
    if (p.parts == 3) ref::store(p.y, p.y_type, second + p.part_stride, y);
  }
}

void map_ref(const MapProblem& p) {
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < p.rows; ++r) map_row(p, r);
}

}  // namespace

void run_map_ref(Exec& ex, const MapProblem& problem) { launch_problem(ex, problem, "ref", map_ref); }

}  // namespace rocm_sd
