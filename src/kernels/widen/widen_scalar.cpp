// widen's portable body on the host's threads.
#include "kernels/scalar_launch.hpp"
#include "kernels/widen/widen_impl.hpp"

namespace rocm_sd {

Refusal supports_widen_scalar(const Exec& ex, const WidenProblem& p) {
  if (const Refusal refusal = supports_host(ex, p)) return refusal;
  return refuse_widen_body(p);
}

void run_widen_scalar(Exec& ex, const WidenProblem& problem) {
  ex.launch(op_info(problem, "scalar"), [problem] {
    with_widen_types(problem.from, problem.dtype, [&](auto from, auto to) {
      const auto params = widen_params<decltype(from), decltype(to)>(problem, 1);
      for_each_block(std::min<int64_t>((problem.rows * problem.depth + kWidenPack - 1) / kWidenPack, 1024),
                     [&](const Block<Scalar>& block) { widen_body<Scalar>(params, block); });
    });
  });
}

}  // namespace rocm_sd
