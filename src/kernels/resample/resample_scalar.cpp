// resample's portable body on the host's threads.
#include <memory>

#include "composable_kernels/fused/resample.hpp"
#include "kernels/resample/resample_impl.hpp"
#include "kernels/resample/taps.hpp"
#include "kernels/scalar_launch.hpp"

namespace rocm_sd {
namespace {

struct Axes {
  ResampleTaps rows, cols;
};

ResampleAxis axis_of(const ResampleTaps& taps, int64_t in, int64_t out) {
  return {taps.first.data(), taps.count.data(), taps.weights.data(), taps.width, in, out};
}

void resample_scalar(const ResampleProblem& p, const Axes& axes) {
  with_storage(p.dtype, [&](auto storage) {
    using T = decltype(storage);
    const ResampleParams<T> params{static_cast<const T*>(p.x),
                                   static_cast<T*>(p.y),
                                   axis_of(axes.rows, p.in_height, p.height),
                                   axis_of(axes.cols, p.in_width, p.width),
                                   p.images,
                                   p.channels};
    for_each_block(p.images * p.height * p.width,
                   [&](const Block<Scalar>& block) { resample_body<Scalar, StorageCfg<T>>(params, block); });
  });
}

}  // namespace

void run_resample_scalar(Exec& ex, const ResampleProblem& problem) {
  const auto axes =
      std::make_shared<const Axes>(Axes{make_taps(problem.mode, problem.in_height, problem.height),
                                        make_taps(problem.mode, problem.in_width, problem.width)});
  ex.launch(op_info(problem, "scalar"), [problem, axes] { resample_scalar(problem, *axes); });
}

}  // namespace rocm_sd
