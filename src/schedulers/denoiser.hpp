// Denoiser: turns UNet calls into predictions of the clean latents, guidance included.
#pragma once

#include <functional>
#include <string_view>
#include <vector>
#include "base/prediction.hpp"

#include "kernels/step/step.hpp"
#include "runtime/exec.hpp"
#include "schedulers/mimic.hpp"
#include "schedulers/schedule.hpp"

namespace rocm_sd {

// "epsilon" or "eps", "v_prediction" or "v", "sample" or "x0". Throws UsageError else.
Prediction parse_prediction(std::string_view name);

// The two ways of writing a noisy latent: x = x0 + sigma * noise, and x = sqrt(a) * x0 + sqrt(1 - a) * noise.
enum class LatentSpace { kVarianceExploding, kVariancePreserving };

// Conditions per image in one UNet batch, in this order.
enum class Guidance {
  kNone,      // [conditional]: cfg_scale 1
  kPrompt,    // [unconditional, conditional]
  kInstruct,  // [unconditional, image only, image and text] (Brooks et al. 2023, equation 3)
  kParts,     // [unconditional, part 1, part 2, ...] (Liu et al., "Compositional Visual Generation", 2022)
};

// Self-attention guidance (Hong et al. 2022, equation 16): away from the prediction, by the first condition,
// for latents that are degraded where its attention looks.
struct SelfAttentionGuidance {
  double scale = 0;  // 0: none
  // The clean latents predicted by the first condition, [N,H,W,C] f32 -> the degraded ones. Asked after the
  // call of the UNet that they come from.
  std::function<Tensor(Exec&, const Tensor& clean)> degrade;
  // The UNet once more in the same step, for the first condition alone: scaled_input [N,H,W,C] -> its output,
  // [N,H,W,C].
  std::function<Tensor(Exec&, const Tensor& scaled_input, double timestep)> unet;
};

struct DenoiserArgs {
  Prediction prediction = Prediction::kEpsilon;
  // More than 0: EDM's preconditioning with this sigma_data (Karras et al. 2022, table 1), v with the
  // output's sign turned.
  double sigma_data = 0;
  double cfg_scale = 7.5;                  // 1 leaves the unconditional half out
  double image_cfg_scale = 1.5;            // kInstruct only
  bool instruct = false;                   // three conditions per image
  std::vector<double> part_weights = {1};  // kParts where there are several
  double guidance_rescale = 0;             // 0..1, Lin et al. 2024, section 3.4
  double pag_scale =
      0;  // more than 0: one condition more, the last, with perturbed attention (Ahn et al. 2024)
  SelfAttentionGuidance self_attention = {};  // not with kInstruct, kParts and mimic_scale
  double mimic_scale = 0;  // more than 0: values as at this scale (mimic.hpp); kPrompt only
  double mimic_percentile = 1;
  bool needs_negative = false;  // the unconditional prediction is asked for, at a scale of 1 too
  // Asked once for each call: true leaves the unconditional prediction out, as a scale of 1 would. Not for
  // kInstruct. Empty: never.
  std::function<bool(const NoiseLevel&)> without_negative;
  bool smaller_batch = false;       // the UNet is then called without it, on [(K-1)*N,H,W,C]; else on all
  DType input_dtype = DType::kF32;  // of the UNet's input
};

class Denoiser {
 public:
  // scaled_input [K*N,H,W,C] of input_dtype, K = conditions(): all images of the first condition, then of the
  // next. Returns the model's output [K*N,H,W,C], f32 or bf16, for this timestep. The result may be a
  // persistent tensor that the next call overwrites.
  using UnetCall = std::function<Tensor(Exec&, const Tensor& scaled_input, double timestep)>;

  // Throws UsageError for scales that are not finite, rescale outside 0..1 or where it is not defined, more
  // than 11 parts, and sigma_data below 0 or with a model that predicts the clean latents.
  Denoiser(UnetCall unet, const DenoiserArgs& args);

  Guidance guidance() const { return guidance_; }
  int conditions() const;  // K: 1, 2, 3, or 1 + parts; and one where pag_scale is set
  const DenoiserArgs& args() const { return args_; }

  // x [N,H,W,C] f32 at `level`, written in `space` -> the clean latents predicted for it, [N,H,W,C] f32.
  // Throws UsageError for epsilon prediction at alpha_bar 0 in kVariancePreserving, where x0 is undefined.
  // negative: receives the same of the first condition alone (the conditional one where that is left out).
  Tensor operator()(Exec& ex, const Tensor& x, const NoiseLevel& level, LatentSpace space,
                    Tensor* negative = nullptr) const;

 private:
  // How the clean latents follow: x times `x` plus the model's output times `model`; the UNet sees x times
  // `input`.
  struct Conversion {
    double input, x, model;
  };
  Conversion conversion(const NoiseLevel& level, LatentSpace space) const;
  // The UNet's output of all conditions. without_first: the first one's may be anything.
  Tensor called(Exec& ex, const Tensor& x, double input_scale, double timestep, bool without_first) const;
  // One condition's part of the output, in f32: [N,H,W,C].
  Tensor part(Exec& ex, const Tensor& output, int condition) const;
  Tensor guided(Exec& ex, const Tensor& output, bool with_negative) const;
  Tensor led_by_text(Exec& ex, const Tensor& output, bool with_negative) const;
  Tensor joined(Exec& ex, const Tensor& output, bool with_negative) const;
  Tensor away_from_degraded(Exec& ex, const Tensor& x, const Tensor& output, const Tensor& guided,
                            const NoiseLevel& level, LatentSpace space) const;
  Tensor mimic(Exec& ex, const Tensor& negative, const Tensor& positive) const;

  UnetCall unet_;
  DenoiserArgs args_;
  Guidance guidance_;
};

}  // namespace rocm_sd
