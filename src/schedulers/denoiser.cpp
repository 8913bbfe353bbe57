// Denoiser: turns UNet calls into predictions of the clean latents, guidance included.
#include "schedulers/denoiser.hpp"

#include <array>
#include <cmath>
#include <string>

#include "base/error.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "schedulers/names.hpp"

namespace rocm_sd {

Prediction parse_prediction(std::string_view name) {
  const std::string wanted = normalized_name(name);
  if (wanted == "epsilon" || wanted == "eps") return Prediction::kEpsilon;
  if (wanted == "vprediction" || wanted == "v") return Prediction::kV;
  if (wanted == "sample" || wanted == "x0") return Prediction::kSample;
  const std::array<std::string, 3> known = {"epsilon", "v_prediction", "sample"};
  throw_unknown_name("prediction type", name, known);
}

Denoiser::Denoiser(UnetCall unet, const DenoiserArgs& args) : unet_(std::move(unet)), args_(args) {
  require<UsageError>(std::isfinite(args.cfg_scale), "cfg scale must be a finite number, not ",
                      args.cfg_scale);
  require<UsageError>(std::isfinite(args.image_cfg_scale), "image cfg scale must be a finite number, not ",
                      args.image_cfg_scale);
  require<UsageError>(args.guidance_rescale >= 0 && args.guidance_rescale <= 1,
                      "guidance rescale must be within 0..1, not ", args.guidance_rescale);
  require<UsageError>(!args.instruct || args.guidance_rescale == 0,
                      "guidance rescale is not defined for instruct-pix2pix guidance");
  require<UsageError>(std::isfinite(args.sigma_data) && args.sigma_data >= 0,
                      "sigma_data must be 0 or more, not ", args.sigma_data);
  require<UsageError>(args.sigma_data == 0 || args.prediction != Prediction::kSample,
                      "an EDM model predicts epsilon or v, not the clean latents");
  const size_t parts = args.part_weights.size();
  require<UsageError>(parts >= 1 && parts <= 11 && (parts == 1 || !args.instruct),
                      "guidance: expected 1 to 11 parts of the prompt, 1 for instruct-pix2pix, got ", parts);
  require<UsageError>(parts == 1 || args.guidance_rescale == 0,
                      "guidance rescale is not defined for several parts of a prompt");
  guidance_ = args.instruct         ? Guidance::kInstruct
              : parts > 1           ? Guidance::kParts
              : args.cfg_scale == 1 ? Guidance::kNone
                                    : Guidance::kPrompt;
}

int Denoiser::conditions() const {
  switch (guidance_) {
    case Guidance::kNone: return 1;
    case Guidance::kPrompt: return 2;
    case Guidance::kInstruct: return 3;
    case Guidance::kParts: return 1 + static_cast<int>(args_.part_weights.size());
  }
  return 1;
}

Tensor Denoiser::guided(Exec& ex, const Tensor& output) const {
  if (guidance_ == Guidance::kPrompt)
    return apply_guidance(ex, output, {.scale = args_.cfg_scale, .rescale = args_.guidance_rescale});
  const Tensor whole = output.dtype() == DType::kF32 ? output : cast(ex, output, DType::kF32);
  if (guidance_ == Guidance::kNone) return whole;
  if (guidance_ == Guidance::kParts) return joined(ex, whole);
  const int64_t images = whole.dim(0) / 3;
  const double text = args_.cfg_scale, image = args_.image_cfg_scale;
  return linear_combination(ex, {{1 - image, whole.narrow(0, 0, images)},
                                 {image - text, whole.narrow(0, images, images)},
                                 {text, whole.narrow(0, 2 * images, images)}});
}

// unconditional + scale * sum of weight * (part - unconditional)
Tensor Denoiser::joined(Exec& ex, const Tensor& whole) const {
  const int64_t images = whole.dim(0) / conditions();
  std::vector<Term> terms = {{1, whole.narrow(0, 0, images)}};
  for (const double weight : args_.part_weights) {
    terms[0].factor -= args_.cfg_scale * weight;
    const auto part = static_cast<int64_t>(terms.size());
    terms.push_back({args_.cfg_scale * weight, whole.narrow(0, part * images, images)});
  }
  return linear_combination(ex, terms);
}

Tensor Denoiser::predict(Exec& ex, const Tensor& x, double scale, double timestep) const {
  const Tensor input = scale_model_input(ex, x, scale, conditions(), args_.input_dtype);  // [K*N,H,W,C]
  const Tensor output = unet_(ex, input, timestep);
  require(output.rank() == 4 && output.shape() == input.shape(), "denoiser: the UNet returned ",
          output.shape(), " for an input of ", input.shape());
  return guided(ex, output);
}

Tensor Denoiser::denoise_edm(Exec& ex, const Tensor& x, const NoiseLevel& level, double exploded) const {
  const double data = args_.sigma_data, square = level.sigma * level.sigma + data * data;
  const Tensor model = predict(ex, x, exploded / std::sqrt(square), level.timestep);  // [N,H,W,C]
  const double sign = args_.prediction == Prediction::kV ? -1 : 1;
  return linear_combination(
      ex, {{exploded * data * data / square, x}, {sign * level.sigma * data / std::sqrt(square), model}});
}

Tensor Denoiser::operator()(Exec& ex, const Tensor& x, const NoiseLevel& level, LatentSpace space) const {
  const bool exploding = space == LatentSpace::kVarianceExploding;
  if (args_.sigma_data > 0) return denoise_edm(ex, x, level, exploding ? 1 : 1 / std::sqrt(level.alpha_bar));
  const double scale = exploding ? 1 / std::sqrt(level.sigma * level.sigma + 1) : 1;
  const Tensor model = predict(ex, x, scale, level.timestep);  // [N,H,W,C]

  // x / norm = signal * x0 + noise * epsilon with signal^2 + noise^2 = 1.
  const double norm = exploding ? std::sqrt(level.sigma * level.sigma + 1) : 1;
  const double signal = exploding ? 1 / norm : std::sqrt(level.alpha_bar);
  const double noise = exploding ? level.sigma / norm : std::sqrt(1 - level.alpha_bar);
  switch (args_.prediction) {
    case Prediction::kEpsilon:
      require<UsageError>(
          signal > 0,
          "a model that predicts epsilon cannot start at zero terminal SNR with this sampler; "
          "the checkpoint needs v prediction");
      return linear_combination(ex, {{1 / (norm * signal), x}, {-noise / signal, model}});
    case Prediction::kV: return linear_combination(ex, {{signal / norm, x}, {-noise, model}});
    case Prediction::kSample: return linear_combination(ex, {{1, model}});
  }
  throw InternalError("denoiser: unknown prediction type");
}

}  // namespace rocm_sd
