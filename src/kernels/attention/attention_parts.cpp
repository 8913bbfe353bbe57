#include "kernels/attention/attention_impl.hpp"
#include "kernels/attention/flash_plan.hpp"
#include "kernels/gpu_launch.hpp"

namespace rocm_sd {

bool takes_attention_over_parts(const Exec& ex, const Tensor& q, const KeysValues& part,
                                const AttentionArgs& args) {
  return !supports_partial_flash(ex, attention_problem(q, part.k, part.v, q, args));
}

Tensor attention_over_parts(Exec& ex, const Tensor& q, const KeysValues& first, const KeysValues& second,
                            const AttentionArgs& args, const std::function<void()>& between) {
  const Tensor y = ex.alloc(q.shape(), q.dtype());
  const AttentionProblem of_first = attention_problem(q, first.k, first.v, y, args),
                         of_second = attention_problem(q, second.k, second.v, y, args);
  for (const AttentionProblem& problem : {of_first, of_second})
    if (const Refusal refusal = supports_partial_flash(ex, problem))
      throw UsageError(concat("attention over parts: flash attention ", *refusal));
  const GpuTraits& traits = gpu_device(ex)->traits();
  const FlashPlan plan = partial_plan(of_first, traits).value(),
                  then = partial_plan(of_second, traits).value();
  const FlashPartials partials(ex, of_first, plan.splits + then.splits);
  run_flash_splits(ex, of_first, plan, partials, 0);
  between();
  run_flash_splits(ex, of_second, then, partials, plan.splits);
  merge_flash(ex, of_first, partials);
  return y;
}

}  // namespace rocm_sd
