// rocm_sd::scheduler_step: guidance and the linear combination of a sampler's step in one pass.
#include <vector>

#include "kernels/elementwise/elementwise.hpp"
#include "kernels/step/step.hpp"
#include "pytorch_integration/op_scope.hpp"
#include "pytorch_integration/operators.hpp"

namespace rocm_sd::torch_ops {
namespace {

Tensor as_f32(Exec& ex, const Tensor& x) { return x.dtype() == DType::kF32 ? x : cast(ex, x, DType::kF32); }

}  // namespace

AtTensor scheduler_step(AtTensor sample, AtTensor model_output, double sample_scale, double output_scale,
                        double guidance, OptionalAt noise, double noise_scale, OptionalAt previous,
                        double previous_scale) {
  constexpr const char* kOp = "rocm_sd::scheduler_step";
  const Shape sizes = sizes_of(sample);
  check(sizes.rank() >= 1, kOp, ": expected a sample [N,...], got ", shown(sample));
  check_alike(kOp, sample, model_output, "model_output", false);
  Shape both = sizes;
  both[0] *= 2;
  const bool halves = sizes_of(model_output) == both && sizes[0] > 0;
  check(halves || sizes_of(model_output) == sizes, kOp, ": model_output ", shown(model_output),
        " fits neither ", sizes, " nor ", both);
  for (const auto& [x, name] : {std::pair{&noise, "noise"}, std::pair{&previous, "previous"}}) {
    if (!*x) continue;
    check_alike(kOp, sample, **x, name, false);
    check(same_sizes(sample, **x), kOp, ": ", name, " ", shown(**x), ": expected ", sizes);
  }
  if (sizes.numel() == 0) return empty_strided_like(sample, sizes, row_major(sizes));
  const auto plain = [&] {
    return call_plain("rocm_sd::_scheduler_step_plain", sample, model_output, sample_scale, output_scale,
                      guidance, noise, noise_scale, previous, previous_scale);
  };
  const auto ours = [&] {
    for (const AtTensor* x : {&model_output, noise ? &*noise : nullptr, previous ? &*previous : nullptr})
      take_if(!x || dtype_of(*x).has_value(), "an operand is no float of ours");
    OpScope scope(sample);
    Exec& ex = scope.exec();
    const Tensor output = as_f32(ex, row_major_of(model_output));
    std::vector<Term> terms{{sample_scale, as_f32(ex, row_major_of(sample))}};
    if (halves) {
      terms.push_back({output_scale * (1 - guidance), output.narrow(0, 0, sizes[0])});
      terms.push_back({output_scale * guidance, output.narrow(0, sizes[0], sizes[0])});
    } else {
      terms.push_back({output_scale, output});
    }
    if (noise) terms.push_back({noise_scale, as_f32(ex, row_major_of(*noise))});
    if (previous) terms.push_back({previous_scale, as_f32(ex, row_major_of(*previous))});
    const Tensor y = linear_combination(ex, terms);
    const DType dtype = *dtype_of(sample);
    return scope.give(y.dtype() == dtype ? y : cast(ex, y, dtype));
  };
  return ours_or_plain("scheduler_step", [&] { return describe(sample); }, ours, plain);
}

}  // namespace rocm_sd::torch_ops
