// The steps of a banded group norm on the host's vector units.
#include <algorithm>

#include "kernels/norm/group_bands_impl.hpp"
#include "kernels/norm/norm_rows.hpp"

namespace rocm_sd {
namespace {

NormPixels pixels_of(const void* x, DType dtype, int64_t channels, int64_t begin, int64_t end) {
  const auto size = static_cast<int64_t>(dtype_size(dtype));
  return {static_cast<const char*>(x) + begin * channels * size, channels, dtype == DType::kBF16, end - begin,
          channels};
}

void moments_of_row(const GroupMomentsProblem& p, int64_t image, int64_t row) {
  std::vector<float> channel(static_cast<size_t>(2 * p.channels));
  float *mean = channel.data(), *squares = mean + p.channels;
  const int64_t begin = image * p.pixels + p.begin(row), end = image * p.pixels + p.begin(row + 1);
  const int64_t width = p.channels / p.groups;
  host_norm_kernels().channel_moments(pixels_of(p.x, p.dtype, p.channels, begin, end), mean, squares);
  for (int64_t g = 0; g < p.groups; ++g) {
    double sum = 0, all = 0;
    for (int64_t c = g * width; c < (g + 1) * width; ++c) sum += static_cast<double>(mean[c]);
    const double middle = sum / static_cast<double>(width);
    for (int64_t c = g * width; c < (g + 1) * width; ++c) {
      const double step = static_cast<double>(mean[c]) - middle;
      all += static_cast<double>(squares[c]) + step * step * static_cast<double>(end - begin);
    }
    float* out = p.out + image * p.out_step + (row * p.groups + g) * 3;
    out[0] = static_cast<float>((end - begin) * width);
    out[1] = static_cast<float>(middle);
    out[2] = static_cast<float>(all);
  }
}

void group_moments_host(const GroupMomentsProblem& p) {
#pragma omp parallel for schedule(static) if (p.images * p.rows > 1)
  for (int64_t i = 0; i < p.images * p.rows; ++i) moments_of_row(p, i / p.rows, i % p.rows);
}

void normalise_host(const NormaliseProblem& p) {
  const int64_t piece = std::clamp<int64_t>(32768 / p.channels, 1, 512);
  const auto size = static_cast<int64_t>(dtype_size(p.dtype));
  int64_t source_begin = 0;  // in an image of y
  for (const NormaliseProblem::Source& source : p.sources()) {
    const int64_t pieces = (source.pixels + piece - 1) / piece;
#pragma omp parallel for schedule(static) if (p.images * pieces > 1)
    for (int64_t i = 0; i < p.images * pieces; ++i) {
      const int64_t image = i / pieces, first = i % pieces * piece;
      const int64_t begin = image * source.pixels + first;
      const int64_t end = begin + std::min(piece, source.pixels - first);
      const float* const scale = p.scale + image * 2 * p.channels;
      char* y = static_cast<char*>(p.y) + (image * p.all_pixels() + source_begin + first) * p.channels * size;
      host_norm_kernels().normalise_channels(pixels_of(source.x, p.dtype, p.channels, begin, end), scale,
                                             scale + p.channels, p.bias, p.silu, y, p.channels,
                                             p.dtype == DType::kBF16);
    }
    source_begin += source.pixels;
  }
}

}  // namespace

void run_group_moments_host(Exec& ex, const GroupMomentsProblem& p) {
  launch_problem(ex, p, "host", group_moments_host);
}
void run_normalise_host(Exec& ex, const NormaliseProblem& p) {
  launch_problem(ex, p, "host", normalise_host);
}

}  // namespace rocm_sd
