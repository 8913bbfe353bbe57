// The steps of a banded group norm in double precision.
#include <cmath>

#include "kernels/norm/group_bands_impl.hpp"
#include "kernels/reference.hpp"

namespace rocm_sd {
namespace {

void group_moments_ref(const GroupMomentsProblem& p) {
  const int64_t width = p.channels / p.groups;
  for (int64_t i = 0; i < p.images * p.rows; ++i)
    for (int64_t g = 0; g < p.groups; ++g) {
      const int64_t image = i / p.rows, row = i % p.rows;
      const auto for_each = [&](const auto& visit) {
        for (int64_t pixel = p.begin(row); pixel < p.begin(row + 1); ++pixel)
          for (int64_t c = g * width; c < (g + 1) * width; ++c)
            visit(ref::load(p.x, p.dtype, (image * p.pixels + pixel) * p.channels + c));
      };
      double count = 0, sum = 0, squares = 0;
      for_each([&](double x) { sum += x, count += 1; });
      for_each([&](double x) { squares += (x - sum / count) * (x - sum / count); });
      float* out = p.out + image * p.out_step + (row * p.groups + g) * 3;
      out[0] = static_cast<float>(count);
      out[1] = static_cast<float>(sum / count);
      out[2] = static_cast<float>(squares);
    }
}

void group_scale_ref(const GroupScaleProblem& p) {
  const int64_t width = p.channels / p.groups;
  for (int64_t i = 0; i < p.images * p.groups; ++i) {
    const int64_t image = i / p.groups, g = i % p.groups;
    const auto moment = [&](int64_t row, int j) -> double {
      return p.moments[((image * p.rows + row) * p.groups + g) * 3 + j];
    };
    float* const out = p.out + image * 2 * p.channels;
    double count = 0, sum = 0, squares = 0;
    for (int64_t r = 0; r < p.rows; ++r) count += moment(r, 0), sum += moment(r, 0) * moment(r, 1);
    const double mean = sum / count;
    for (int64_t r = 0; r < p.rows; ++r)
      squares += moment(r, 2) + moment(r, 0) * (moment(r, 1) - mean) * (moment(r, 1) - mean);
    const double deviation = std::sqrt(squares / count + static_cast<double>(p.eps));
    for (int64_t c = g * width; c < (g + 1) * width; ++c) {
      out[c] = static_cast<float>(mean);
      out[p.channels + c] = static_cast<float>(static_cast<double>(p.gain[c]) / deviation);
    }
  }
}

void normalise_ref(const NormaliseProblem& p) {
  for (int64_t image = 0; image < p.images; ++image) {
    const float* const scale = p.scale + image * 2 * p.channels;
    int64_t out = image * p.all_pixels() * p.channels;
    for (const NormaliseProblem::Source& source : p.sources())
      for (int64_t i = 0; i < source.pixels * p.channels; ++i, ++out) {
        const int64_t c = i % p.channels;
        const double x = ref::load(source.x, p.dtype, image * source.pixels * p.channels + i);
        double y = (x - scale[c]) * scale[p.channels + c] + p.bias[c];
        if (p.silu) y /= 1 + std::exp(-y);
        ref::store(p.y, p.dtype, out, y);
      }
  }
}

}  // namespace

void run_group_moments_ref(Exec& ex, const GroupMomentsProblem& p) {
  launch_problem(ex, p, "ref", group_moments_ref);
}
void run_group_scale_ref(Exec& ex, const GroupScaleProblem& p) {
  launch_problem(ex, p, "ref", group_scale_ref);
}
void run_normalise_ref(Exec& ex, const NormaliseProblem& p) { launch_problem(ex, p, "ref", normalise_ref); }

}  // namespace rocm_sd
