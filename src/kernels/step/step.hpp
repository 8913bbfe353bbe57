// What a sampler does to latents: guidance and linear combinations, each one pass over memory.
#pragma once

#include <span>

#include "runtime/exec.hpp"

namespace rocm_sd {

struct Term {
  double factor = 1;
  Tensor tensor;  // f32, all of one shape
};

// sum of factor * tensor, accumulated in double in the order given, rounded once to f32. At most 12 terms.
Tensor linear_combination(Exec& ex, std::span<const Term> terms);
Tensor linear_combination(Exec& ex, std::initializer_list<Term> terms);

struct GuidanceArgs {
  double scale = 1;
  double rescale =
      0;  // Lin et al., "Common Diffusion Noise Schedules", 2024, section 3.4: share of the rescaled result
};
// model_output [2N,H,W,C] f32, bf16 or f16, unconditional images first -> uncond + scale * (cond - uncond),
// [N,H,W,C] f32; then, with rescale > 0, mixed with itself brought to cond's standard deviation per image (a
// constant image stays).
Tensor apply_guidance(Exec& ex, const Tensor& model_output, const GuidanceArgs& args);

// x [N,H,W,C] f32, repeated `times` and scaled: [times*N,H,W,C] of dtype: the UNet's input for guidance as
// one batch.
Tensor scale_model_input(Exec& ex, const Tensor& x, double factor, int times, DType dtype);

// Picture x [N,H,W,3] f32, bf16 or f16, by default in -1..1 as decoders make it -> 8-bit RGB [N,H,W,3] u8:
// round(clamp(x * scale + shift, 0, 1) * 255), half to even as NumPy does. NaN gives 0 (count_nonfinite
// tells). scale: a power of two.
Tensor to_rgb8(Exec& ex, const Tensor& x, float scale = 0.5f, float shift = 0.5f);

// Number of elements of x that are NaN or infinite, as one i64 on the device.
Tensor count_nonfinite(Exec& ex, const Tensor& x);

}  // namespace rocm_sd
