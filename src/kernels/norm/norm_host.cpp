// group_norm and layer_norm on the host's vector units.
// group_norm reads x twice: blocks of pixels that fit in L2 give exact two-pass moments per channel, which
// are merged in double over channels and blocks (Chan, Golub, LeVeque, "Updating Formulae", 1979, eq. 2.1) in
// an order that depends on the shape alone, not on the threads; then all is normalised.
#include <omp.h>

#include <algorithm>
#include <cmath>

#include "kernels/host_table.hpp"
#include "kernels/norm/norm_impl.hpp"
#include "kernels/norm/norm_rows.hpp"

namespace rocm_sd {
namespace {

// Mean and sum of squared differences of `count` values.
struct Moments {
  double count = 0, mean = 0, squares = 0;
  void merge(double n, double other_mean, double other_squares) {
    const double all = count + n, step = other_mean - mean;
    mean += step * n / all;
    squares += other_squares + step * step * count * n / all;
    count = all;
  }
};

struct Workspace {
  int64_t block = 1, blocks = 1;  // pixels per block, blocks per image
  int threads = 1;
  float* channel = nullptr;   // [threads, 2, channels]: moments of the block at hand
  double* partial = nullptr;  // [images, blocks, groups, 2]: mean and squares
  float* affine = nullptr;    // [images, 2, channels]: mean and scale
};

struct Block {
  int64_t image, index, pixel, pixels;  // pixel counts from the first image
};
Block block_of(const GroupNormProblem& p, const Workspace& w, int64_t i) {
  const int64_t image = i / w.blocks, index = i % w.blocks, first = index * w.block;
  return {image, index, image * p.pixels + first, std::min(w.block, p.pixels - first)};
}

// The channels of x, or those of the second input.
NormPixels pixels_of(const GroupNormProblem& p, const Block& block, bool second) {
  const int64_t channels = second ? p.second_channels : p.first_channels();
  const auto* data = static_cast<const char*>(second ? p.second : p.x);
  return {data + block.pixel * channels * static_cast<int64_t>(dtype_size(p.dtype)), channels,
          p.dtype == DType::kBF16, block.pixels, channels};
}

void measure_block(const GroupNormProblem& p, const Workspace& w, const Block& block) {
  float* mean = w.channel + omp_get_thread_num() * 2 * p.channels;
  float* squares = mean + p.channels;
  const int64_t first = p.first_channels(), width = p.channels / p.groups;
  host_norm_kernels().channel_moments(pixels_of(p, block, false), mean, squares);
  if (p.second_channels)
    host_norm_kernels().channel_moments(pixels_of(p, block, true), mean + first, squares + first);
  double* out = w.partial + (block.image * w.blocks + block.index) * p.groups * 2;
  for (int64_t g = 0; g < p.groups; ++g) {
    Moments group;
    for (int64_t c = g * width; c < (g + 1) * width; ++c)
      group.merge(static_cast<double>(block.pixels), mean[c], squares[c]);
    out[2 * g] = group.mean;
    out[2 * g + 1] = group.squares;
  }
}

void merge_blocks(const GroupNormProblem& p, const Workspace& w, int64_t image, int64_t g) {
  const int64_t width = p.channels / p.groups;
  Moments all;
  for (int64_t b = 0; b < w.blocks; ++b) {
    const double* partial = w.partial + ((image * w.blocks + b) * p.groups + g) * 2;
    all.merge(static_cast<double>(std::min(w.block, p.pixels - b * w.block) * width), partial[0], partial[1]);
  }
  const double scale = 1 / std::sqrt(all.squares / all.count + static_cast<double>(p.eps));
  float* mean = w.affine + image * 2 * p.channels;
  for (int64_t c = g * width; c < (g + 1) * width; ++c) {
    mean[c] = static_cast<float>(all.mean);
    mean[p.channels + c] = static_cast<float>(scale * static_cast<double>(p.gain[c]));
  }
}

void normalise_block(const GroupNormProblem& p, const Workspace& w, const Block& block) {
  const float* mean = w.affine + block.image * 2 * p.channels;
  const float* scale = mean + p.channels;
  const auto write = [&](bool second, int64_t c) {
    char* y = static_cast<char*>(p.y) +
              (block.pixel * p.channels + c) * static_cast<int64_t>(dtype_size(p.out_dtype()));
    host_norm_kernels().normalise_channels(pixels_of(p, block, second), mean + c, scale + c, p.bias + c,
                                           p.silu, y, p.channels, p.out_dtype() == DType::kBF16);
  };
  write(false, 0);
  if (p.second_channels) write(true, p.first_channels());
}

void group_norm_host(const GroupNormProblem& p, const Workspace& w) {
  const int64_t blocks = p.images * w.blocks;
  if (p.images * p.pixels * p.channels == 0) return;
#pragma omp parallel num_threads(w.threads) if (blocks > 1)
  {
#pragma omp for schedule(static)
    for (int64_t i = 0; i < blocks; ++i) measure_block(p, w, block_of(p, w, i));
#pragma omp for schedule(static)
    for (int64_t i = 0; i < p.images * p.groups; ++i) merge_blocks(p, w, i / p.groups, i % p.groups);
#pragma omp for schedule(static)
    for (int64_t i = 0; i < blocks; ++i) normalise_block(p, w, block_of(p, w, i));
  }
}

void layer_norm_host(const LayerNormProblem& p) {
  constexpr int64_t kPiece = 16384;  // elements per task
  if (p.rows * p.cols == 0) return;
  const int64_t rows_per_task = std::max<int64_t>(kPiece / p.cols, 1);
  const int64_t tasks = (p.rows + rows_per_task - 1) / rows_per_task;
  const auto size = static_cast<int64_t>(dtype_size(p.dtype)),
             y_size = static_cast<int64_t>(dtype_size(p.out_dtype()));
#pragma omp parallel for schedule(static) if (tasks > 1)
  for (int64_t task = 0; task < tasks; ++task) {
    const int64_t row = task * rows_per_task, offset = row * p.cols;
    host_norm_kernels().layer_norm({static_cast<const char*>(p.x) + offset * size, p.cols,
                                    p.dtype == DType::kBF16, std::min(rows_per_task, p.rows - row), p.cols},
                                   p.gain, p.bias, p.eps, static_cast<char*>(p.y) + offset * y_size,
                                   p.out_dtype() == DType::kBF16);
  }
}

}  // namespace

const NormKernels& host_norm_kernels() {
#if defined(__x86_64__)
  if (host_has_bf16()) return isa_v4_bf16::kNormKernels;
#endif
  return ROCM_SD_HOST_TABLE(kNormKernels);
}

void run_group_norm_host(Exec& ex, const GroupNormProblem& problem) {
  const GroupNormProblem& p = problem;
  Workspace w;
  w.block = std::clamp<int64_t>(32768 / std::max<int64_t>(p.channels, 1), 16, 512);
  w.blocks = std::max<int64_t>((p.pixels + w.block - 1) / w.block, 1);
  w.threads = host_threads();
  const Tensor channel = ex.alloc({w.threads, 2, p.channels}, DType::kF32);
  const Tensor partial = ex.alloc({p.images, w.blocks, p.groups, 2}, DType::kF64);
  const Tensor affine = ex.alloc({p.images, 2, p.channels}, DType::kF32);
  w.channel = channel.as<float>();
  w.partial = partial.as<double>();
  w.affine = affine.as<float>();
  ex.launch(op_info(problem, "host"), [problem, w] { group_norm_host(problem, w); });
}
void run_layer_norm_host(Exec& ex, const LayerNormProblem& problem) {
  launch_problem(ex, problem, "host", layer_norm_host);
}

}  // namespace rocm_sd
