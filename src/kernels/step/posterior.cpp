#include "kernels/step/posterior.hpp"

#include <algorithm>
#include <cmath>

#include "composable_kernels/fused/step.hpp"
#include "kernels/memory_bound.hpp"
#include "kernels/ops.hpp"

namespace rocm_sd {
namespace {

// y = mean + exp(clamp(log variance) / 2) * noise, or the mean where there is no noise.
struct PosteriorProblem {
  const void* moments = nullptr;
  const float* noise = nullptr;
  float* y = nullptr;
  DType dtype = DType::kF32;
  int64_t pixels = 0, channels = 0;
  int64_t noisy = 0;  // whether there is noise: the text does not say it

  static constexpr const char* kOp = "sample_posterior";
  static constexpr const char* kExample = "bf16 [33,2x4]";
  static void text(auto& p, auto& t) {
    t.type(p.dtype).word(" [").extent(p.pixels).word(",2x").extent(p.channels).word("]");
    t.set(p.noisy, 1);
  }
  std::string describe() const { return text_of(*this); }
  static void operands(auto& p, auto& v) {
    v.input("moments", p.moments, {p.pixels, 2 * p.channels}, p.dtype);
    if (p.noisy) v.input("noise", p.noise, {p.pixels, p.channels}, DType::kF32);
    v.output("y", p.y, {p.pixels, p.channels}, DType::kF32);
  }
  double flops() const { return 4.0 * static_cast<double>(pixels * channels); }
  exact::Sum exact(const auto& in, int64_t i) const {
    const int64_t at = i / channels * 2 * channels + i % channels;
    exact::Sum sum;
    sum.add(in(0, at));
    if (noisy) sum.add(std::exp(0.5 * std::clamp(in(0, at + channels), -30.0, 20.0)) * in(1, i));
    return sum;
  }

  std::string kernel_name() const { return concat("posterior_", dtype); }
  static constexpr int kWorkgroupsPerUnit = 16;
  int64_t items() const { return pixels * channels; }
  template <class T>
  PosteriorParams<T> params(uint32_t workgroups) const {
    return {static_cast<const T*>(moments), noise, y, pixels * channels, channels, workgroups};
  }
  template <class Arch, class T>
  static void body(const auto& params, const Block<Arch>& block) {
    posterior_body<Arch, StorageCfg<T>>(params, block);
  }
};

}  // namespace

AnyOp sample_posterior_op() { return MemoryBound<PosteriorProblem>::any(); }

Tensor sample_posterior(Exec& ex, const Tensor& moments, const Tensor* noise) {
  const DType dtype = moments.dtype();
  require(
      moments.rank() == 4 && moments.dim(3) % 2 == 0 && moments.is_contiguous() && is_activation_type(dtype),
      "sample_posterior: expected moments [N,H,W,2C] of f32, bf16 or f16, got ", moments.shape(), " of ",
      dtype);
  const int64_t channels = moments.dim(3) / 2;
  const Shape shape{moments.dim(0), moments.dim(1), moments.dim(2), channels};
  if (noise)
    require(noise->shape() == shape && noise->dtype() == DType::kF32 && noise->is_contiguous(),
            "sample_posterior: expected noise ", shape, " of f32, got ", noise->shape(), " of ",
            noise->dtype());
  const PosteriorProblem problem{
      .dtype = dtype, .pixels = shape[0] * shape[1] * shape[2], .channels = channels, .noisy = noise ? 1 : 0};
  const Tensor rows = moments.reshape({problem.pixels, 2 * channels});
  if (!noise) return run_op(ex, problem, {rows}).reshape(shape);
  return run_op(ex, problem, {rows, noise->reshape({problem.pixels, channels})}).reshape(shape);
}

}  // namespace rocm_sd
