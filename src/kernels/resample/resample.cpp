#include "kernels/resample/resample.hpp"

#include "kernels/resample/resample_impl.hpp"

namespace rocm_sd {
namespace {

const ImplList<ResampleProblem> kImpls = {"resample",
                                          {
                                              {"gpu", supports_resample_gpu, run_resample_gpu},
                                              {"host", supports_host_f32_or_bf16, run_resample_host},
                                              {"scalar", supports_resample_scalar, run_resample_scalar},
                                              {"ref", supports_host, run_resample_ref},
                                          }};

const char* mode_name(ResampleMode mode) {
  switch (mode) {
    case ResampleMode::kNearest: return "nearest";
    case ResampleMode::kBilinear: return "bilinear";
    case ResampleMode::kBicubic: return "bicubic";
    case ResampleMode::kArea: return "area";
    case ResampleMode::kLanczos3: return "lanczos3";
  }
  return "?";
}

}  // namespace

std::string ResampleProblem::describe() const {
  return concat(mode_name(mode), " ", dtype, " [", images, ",", in_height, "x", in_width, "->", height, "x",
                width, ",", channels, "]");
}
double ResampleProblem::flops() const {
  return mode == ResampleMode::kNearest ? 0.0 : 8.0 * static_cast<double>(images * height * width * channels);
}
double ResampleProblem::bytes() const {
  return static_cast<double>(images * channels * (in_height * in_width + height * width)) *
         static_cast<double>(dtype_size(dtype));
}

Tensor resample(Exec& ex, const Tensor& x, int64_t height, int64_t width, ResampleMode mode) {
  require(x.rank() == 4, "resample: x must be [N,H,W,C], is ", x.shape());
  require_activation_type(x, "resample", "x");
  require_contiguous(x, "resample", "x");
  require<UsageError>(height >= 1 && width >= 1, "resample: the new size must be at least 1x1, is ", height,
                      "x", width);
  require(x.dim(1) >= 1 && x.dim(2) >= 1, "resample: x ", x.shape(), " has no pixels");
  const Tensor y = ex.alloc({x.dim(0), height, width, x.dim(3)}, x.dtype());
  const ResampleProblem problem{.x = x.data(),
                                .y = y.data(),
                                .dtype = x.dtype(),
                                .images = x.dim(0),
                                .in_height = x.dim(1),
                                .in_width = x.dim(2),
                                .height = height,
                                .width = width,
                                .channels = x.dim(3),
                                .mode = mode};
  select(ex, kImpls, problem).run(ex, problem);
  return y;
}

}  // namespace rocm_sd
