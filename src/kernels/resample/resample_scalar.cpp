// resample's portable bodies on the host's threads.
#include <algorithm>

#include "kernels/resample/resample_params.hpp"
#include "kernels/scalar_launch.hpp"

namespace rocm_sd {
namespace {

template <class Storage, int kWidth>
struct Cfg {
  using T = Storage;
  static constexpr int kVec = kWidth;
};

template <class T, int kVec>
void run_body(const ResampleProblem& p, const ResampleTapsAxis (&axes)[2]) {
  const auto params = resample_params<T>(p, axes[0], axes[1], 1);
  const int64_t packs = p.images * p.height * p.width * (p.channels / kVec);
  for_each_block(std::min<int64_t>(packs, 4096),
                 [&](const Block<Scalar>& block) { resample_body<Scalar, Cfg<T, kVec>>(params, block); });
}

void resample_scalar(const ResampleProblem& p, const ResampleTapsParams& taps) {
  for_each_block(p.height + p.width, [&](const Block<Scalar>& block) { resample_taps_body(taps, block); });
  with_storage(p.dtype, [&](auto storage) {
    using T = decltype(storage);
    if (resample_pack(p) == 8) return run_body<T, 8>(p, taps.axes);
    if (resample_pack(p) == 4) return run_body<T, 4>(p, taps.axes);
    run_body<T, 1>(p, taps.axes);
  });
}

}  // namespace

Refusal supports_resample_scalar(const Exec& ex, const ResampleProblem& p) {
  if (const Refusal refusal = supports_host(ex, p)) return refusal;
  return refuse_resample_body(p);
}

void run_resample_scalar(Exec& ex, const ResampleProblem& problem) {
  const ResampleTables tables = resample_tables(ex, problem);
  const ResampleTapsParams taps{{tables.axes[0], tables.axes[1]}, resample_window(problem.mode), 1};
  ex.launch(op_info(problem, "scalar"), [problem, taps] { resample_scalar(problem, taps); });
}

}  // namespace rocm_sd
