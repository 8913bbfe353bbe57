// conv2d in double precision, as the formula reads: the truth that every other implementation is checked
// against.
#include <vector>

#include "kernels/conv/conv2d_impl.hpp"
#include "kernels/reference.hpp"

namespace rocm_sd {
namespace {

// Raw pointers and sizes of one problem.
struct RefConv {
  const void *x, *second, *shift, *residual;
  const float *bias, *scale, *slopes;
  int64_t pixels_per_scale, factors;  // scale [pixels / pixels_per_scale,factors]
  void* y;
  DType dtype, out_dtype, shift_dtype;
  int64_t batch, height, width, c1, c2, filter_h, filter_w, out_h, out_w, out_channels, shift_stride;
  int stride;
  Padding pad;
  bool upsample2x;
  Activation act;

  // Channel c of the concat at row iy, column ix of the (doubled) image, which is zero outside.
  double input(int64_t n, int64_t iy, int64_t ix, int64_t c) const {
    const int64_t scale = upsample2x ? 2 : 1;
    if (iy < 0 || ix < 0 || iy >= scale * height || ix >= scale * width) return 0.0;
    const int64_t pixel = (n * height + iy / scale) * width + ix / scale;
    return c < c1 ? ref::load(x, dtype, pixel * c1 + c) : ref::load(second, dtype, pixel * c2 + c - c1);
  }

  // All output channels of one output pixel; w is [R,S,C,K].
  void pixel(int64_t n, int64_t p, int64_t q, const std::vector<double>& w, std::vector<double>& sums) const {
    for (int64_t k = 0; k < out_channels; ++k) sums[k] = bias ? bias[k] : 0.0;
    const double* filter = w.data();
    for (int64_t r = 0; r < filter_h; ++r)
      for (int64_t s = 0; s < filter_w; ++s)
        for (int64_t c = 0; c < c1 + c2; ++c, filter += out_channels) {
          const double v = input(n, p * stride + r - pad.top, q * stride + s - pad.left, c);
          for (int64_t k = 0; k < out_channels; ++k) sums[k] += v * filter[k];
        }
    const int64_t base = ((n * out_h + p) * out_w + q) * out_channels;
    for (int64_t k = 0; k < out_channels; ++k) {
      double v = sums[k];
      if (shift) v += ref::load(shift, shift_dtype, n * shift_stride + k);
      if (scale) v *= scale[base / out_channels / pixels_per_scale * factors + k % factors];
      if (residual) v += ref::load(residual, out_dtype, base + k);
      if (slopes && v < 0) v *= slopes[k];
      ref::store(y, out_dtype, base + k, ref::activated(v, act));
    }
  }
};

std::vector<double> filter_last_to_front(const Tensor& plain) {  // [K,C,R,S] -> [R,S,C,K]
  const int64_t k_count = plain.dim(0), c_count = plain.dim(1), taps = plain.dim(2) * plain.dim(3);
  std::vector<double> out(static_cast<size_t>(plain.numel()));
  for (int64_t k = 0; k < k_count; ++k)
    for (int64_t c = 0; c < c_count; ++c)
      for (int64_t t = 0; t < taps; ++t)
        out[(t * c_count + c) * k_count + k] =
            ref::load(plain.data(), plain.dtype(), (k * c_count + c) * taps + t);
  return out;
}

}  // namespace

void conv2d_ref(Exec& ex, const ConvProblem& p) {
  const Epilogue& e = p.args.epilogue;
  const RefConv conv{p.x.data(),
                     p.args.second ? p.args.second->data() : nullptr,
                     e.channel_shift ? e.channel_shift->data() : nullptr,
                     e.residual ? e.residual->data() : nullptr,
                     p.w.bias ? p.w.bias->as<float>() : nullptr,
                     e.channel_scale ? e.channel_scale->as<float>() : nullptr,
                     e.slopes ? e.slopes->as<float>() : nullptr,
                     e.channel_scale ? p.y.numel() / p.out_channels() / e.channel_scale->dim(0) : 1,
                     e.channel_scale ? e.channel_scale->dim(1) : 1,
                     p.y.data(),
                     p.dtype(),
                     p.out_dtype(),
                     e.channel_shift ? e.channel_shift->dtype() : DType::kF32,
                     p.batch(),
                     p.height(),
                     p.width(),
                     p.channels(),
                     p.second_channels(),
                     p.filter_h(),
                     p.filter_w(),
                     p.out_h(),
                     p.out_w(),
                     p.out_channels(),
                     e.channel_shift ? e.channel_shift->stride(0) : 0,
                     p.args.stride,
                     p.args.pad,
                     p.args.upsample2x,
                     e.act};
  // The weight is taken plain inside the launch: nothing is kept between runs.
  ex.launch(p.info("ref"), [conv, weight = p.w.weight] {
    const std::vector<double> w = filter_last_to_front(weight.plain());
#pragma omp parallel
    {
      std::vector<double> sums(static_cast<size_t>(conv.out_channels));
#pragma omp for collapse(3) schedule(static)
      for (int64_t n = 0; n < conv.batch; ++n)
        for (int64_t row = 0; row < conv.out_h; ++row)
          for (int64_t column = 0; column < conv.out_w; ++column) conv.pixel(n, row, column, w, sums);
    }
  });
}

}  // namespace rocm_sd
