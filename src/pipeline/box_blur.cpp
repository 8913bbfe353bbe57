#include "pipeline/box_blur.hpp"

#include <algorithm>
#include <cmath>

namespace rocm_sd {
namespace {

size_t at(int64_t i) { return static_cast<size_t>(i); }

// Lines of `length` values `step` apart, averaged over boxes of 2 * radius + 1 places, the outermost two of
// them in part; what is beyond a line is its last value.
void blur_lines(std::vector<float>& values, int64_t lines, int64_t line_step, int64_t length, int64_t step,
                double radius) {
  const auto whole = static_cast<int64_t>(radius);
  const double part = radius - static_cast<double>(whole), size = 2 * radius + 1;
#pragma omp parallel for schedule(static)
  for (int64_t line = 0; line < lines; ++line) {
    float* first = values.data() + line * line_step;
    std::vector<double> sums(at(length + 1), 0.0);
    for (int64_t i = 0; i < length; ++i) sums[at(i + 1)] = sums[at(i)] + static_cast<double>(first[i * step]);
    const double low = static_cast<double>(first[0]), high = static_cast<double>(first[(length - 1) * step]);
    const auto value = [&](int64_t i) {
      return i < 0 ? low : i >= length ? high : sums[at(i + 1)] - sums[at(i)];
    };
    const auto sum_to = [&](int64_t end) {  // of places below `end`, counted from 0
      if (end <= 0) return static_cast<double>(end) * low;
      return sums[at(std::min(end, length))] + static_cast<double>(std::max<int64_t>(end - length, 0)) * high;
    };
    std::vector<float> out(at(length));
    for (int64_t i = 0; i < length; ++i)
      out[at(i)] = static_cast<float>(
          (sum_to(i + whole + 1) - sum_to(i - whole) + part * (value(i - whole - 1) + value(i + whole + 1))) /
          size);
    for (int64_t i = 0; i < length; ++i) first[i * step] = out[at(i)];
  }
}

constexpr int kPasses = 3;

double box_radius(double sigma) {
  const double square = sigma * sigma / kPasses;
  const double l = std::floor((std::sqrt(12 * square + 1) - 1) / 2);
  return l + (2 * l + 1) * (l * (l + 1) - 3 * square) / (6 * (square - (l + 1) * (l + 1)));
}

}  // namespace

void blur_by_boxes(std::vector<float>& plane, int64_t width, int64_t height, double sigma) {
  if (sigma <= 0) return;
  const double radius = box_radius(sigma);
  for (int pass = 0; pass < kPasses; ++pass) {
    blur_lines(plane, height, width, width, 1, radius);
    blur_lines(plane, width, 1, height, width, radius);
  }
}

}  // namespace rocm_sd
