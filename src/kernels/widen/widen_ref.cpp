// widen in double precision, as the formula reads.
#include "kernels/reference.hpp"
#include "kernels/widen/widen_impl.hpp"

namespace rocm_sd {

void run_widen_ref(Exec& ex, const WidenProblem& problem) {
  ex.launch(op_info(problem, "ref"), [p = problem] {
    for (int64_t i = 0; i < p.rows * p.depth; ++i) {
      const double value = p.from == DType::kI8 ? static_cast<const int8_t*>(p.values)[i]
                                                : f8e4m3_to_float(static_cast<const uint8_t*>(p.values)[i]);
      ref::store(p.y, p.dtype, i, value * p.scales[i / p.depth]);
    }
  });
}

}  // namespace rocm_sd
