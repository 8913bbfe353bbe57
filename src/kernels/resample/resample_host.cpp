// resample on the host's vector units: rows first into a map of floats, then columns. Sums are in float, in
// order of the pixels.
#include <cstring>
#include <memory>

#include "kernels/host_table.hpp"
#include "kernels/resample/resample_impl.hpp"
#include "kernels/resample/resample_rows.hpp"
#include "kernels/resample/taps.hpp"

namespace rocm_sd {
namespace {

struct Axes {
  ResampleTaps rows, cols;
};

void resample_host(const ResampleProblem& p, const Axes& axes, float* middle) {
  const ResampleKernels& code = ROCM_SD_HOST_TABLE(kResampleKernels);
  const bool bf16 = p.dtype == DType::kBF16;
  const auto size = static_cast<int64_t>(dtype_size(p.dtype));
  const int64_t in_row = p.in_width * p.channels, out_row = p.width * p.channels;
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < p.images * p.height; ++i) {
    const int64_t image = i / p.height, y = i % p.height;
    const int64_t first = image * p.in_height + axes.rows.first[static_cast<size_t>(y)];
    float* row = middle + i * in_row;  // [in_width, channels]
    code.weighted_sum(static_cast<const char*>(p.x) + first * in_row * size, bf16, in_row,
                      axes.rows.weights.data() + y * axes.rows.width, axes.rows.count[static_cast<size_t>(y)],
                      in_row, row, false);
    for (int64_t x = 0; x < p.width; ++x)
      code.weighted_sum(row + axes.cols.first[static_cast<size_t>(x)] * p.channels, false, p.channels,
                        axes.cols.weights.data() + x * axes.cols.width,
                        axes.cols.count[static_cast<size_t>(x)], p.channels,
                        static_cast<char*>(p.y) + (i * out_row + x * p.channels) * size, bf16);
  }
}

void nearest_host(const ResampleProblem& p) {
  const int64_t pixel = p.channels * static_cast<int64_t>(dtype_size(p.dtype));
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < p.images * p.height; ++i) {
    const int64_t from = i / p.height * p.in_height + (2 * (i % p.height) + 1) * p.in_height / (2 * p.height);
    const char* row = static_cast<const char*>(p.x) + from * p.in_width * pixel;
    char* to = static_cast<char*>(p.y) + i * p.width * pixel;
    for (int64_t x = 0; x < p.width; ++x)
      std::memcpy(to + x * pixel, row + (2 * x + 1) * p.in_width / (2 * p.width) * pixel,
                  static_cast<size_t>(pixel));
  }
}

}  // namespace

void run_resample_host(Exec& ex, const ResampleProblem& problem) {
  if (problem.mode == ResampleMode::kNearest) return launch_problem(ex, problem, "host", nearest_host);
  const auto axes =
      std::make_shared<const Axes>(Axes{make_taps(problem.mode, problem.in_height, problem.height),
                                        make_taps(problem.mode, problem.in_width, problem.width)});
  const Tensor middle =
      ex.alloc({problem.images, problem.height, problem.in_width, problem.channels}, DType::kF32);
  float* data = middle.as<float>();
  ex.launch(op_info(problem, "host"), [problem, axes, data] { resample_host(problem, *axes, data); });
}

}  // namespace rocm_sd
