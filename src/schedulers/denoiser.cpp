// Denoiser: turns UNet calls into predictions of the clean latents, guidance included.
#include "schedulers/denoiser.hpp"

#include <array>
#include <cmath>
#include <span>
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
  guidance_ = args.instruct                                 ? Guidance::kInstruct
              : parts > 1                                   ? Guidance::kParts
              : args.cfg_scale == 1 && !args.needs_negative ? Guidance::kNone
                                                            : Guidance::kPrompt;
  require<UsageError>(
      args.mimic_scale == 0 || (guidance_ != Guidance::kInstruct && guidance_ != Guidance::kParts),
      "mimic scale is defined for one prompt and its negative prompt");
  require<UsageError>(
      args.pag_scale == 0 ||
          (args.pag_scale > 0 && (guidance_ == Guidance::kNone || guidance_ == Guidance::kPrompt) &&
           args.mimic_scale == 0 && args.guidance_rescale == 0),
      "perturbed-attention guidance is defined for one prompt and its negative prompt, without "
      "rescale and mimic scale");
  const double sag = args.self_attention.scale;
  require<UsageError>(
      sag == 0 || (sag > 0 && (guidance_ == Guidance::kNone || guidance_ == Guidance::kPrompt) &&
                   args.mimic_scale == 0),
      "self-attention guidance is defined for one prompt and its negative prompt, without mimic scale");
  require<UsageError>(args.mimic_percentile > 0 && args.mimic_percentile <= 1,
                      "mimic percentile must be above 0 and at most 1, not ", args.mimic_percentile);
}

int Denoiser::conditions() const {
  const int perturbed = args_.pag_scale > 0 ? 1 : 0;
  switch (guidance_) {
    case Guidance::kNone: return 1 + perturbed;
    case Guidance::kPrompt: return 2 + perturbed;
    case Guidance::kInstruct: return 3;
    case Guidance::kParts: return 1 + static_cast<int>(args_.part_weights.size());
  }
  return 1;
}

Tensor Denoiser::part(Exec& ex, const Tensor& output, int condition) const {
  const int64_t images = output.dim(0) / conditions();
  const Tensor own = output.narrow(0, condition * images, images);
  return own.dtype() == DType::kF32 ? own : cast(ex, own, DType::kF32);
}

Tensor Denoiser::guided(Exec& ex, const Tensor& output, bool with_negative) const {
  const Tensor led = led_by_text(ex, output, with_negative);
  if (args_.pag_scale == 0) return led;
  const int last = conditions() - 1;
  return linear_combination(
      ex,
      {{1, led}, {args_.pag_scale, part(ex, output, last - 1)}, {-args_.pag_scale, part(ex, output, last)}});
}

Tensor Denoiser::led_by_text(Exec& ex, const Tensor& output, bool with_negative) const {
  switch (guidance_) {
    case Guidance::kNone: return part(ex, output, 0);
    case Guidance::kPrompt:
      if (!with_negative) return part(ex, output, 1);
      return apply_guidance(ex, output.narrow(0, 0, output.dim(0) / conditions() * 2),
                            {.scale = args_.cfg_scale, .rescale = args_.guidance_rescale});
    case Guidance::kParts: return joined(ex, output, with_negative);
    case Guidance::kInstruct: break;
  }
  const double text = args_.cfg_scale, image = args_.image_cfg_scale;
  return linear_combination(
      ex,
      {{1 - image, part(ex, output, 0)}, {image - text, part(ex, output, 1)}, {text, part(ex, output, 2)}});
}

// base + scale * sum of weight * (part - base): the base is unconditional, or, where that is left out, the
// first part, at a scale of 1 (as A1111 has it).
Tensor Denoiser::joined(Exec& ex, const Tensor& output, bool with_negative) const {
  const double scale = with_negative ? args_.cfg_scale : 1;
  std::vector<Term> terms = {{1, part(ex, output, with_negative ? 0 : 1)}};
  int condition = 1;
  for (const double weight : args_.part_weights) {
    terms[0].factor -= scale * weight;
    terms.push_back({scale * weight, part(ex, output, condition++)});
  }
  return linear_combination(ex, terms);
}

// What the sampler's x would be with other clean latents and the same noise goes through the UNet once more,
// with the first condition alone.
Tensor Denoiser::away_from_degraded(Exec& ex, const Tensor& x, const Tensor& output, const Tensor& guided,
                                    const NoiseLevel& level, LatentSpace space) const {
  const SelfAttentionGuidance& sag = args_.self_attention;
  const Conversion c = conversion(level, space);
  const double signal = space == LatentSpace::kVarianceExploding ? 1 : std::sqrt(level.alpha_bar);
  const Tensor first = part(ex, output, 0);
  const Tensor clean = c.x == 0 ? linear_combination(ex, {{c.model, first}})
                                : linear_combination(ex, {{c.x, x}, {c.model, first}});
  const Tensor degraded =
      linear_combination(ex, {{1, x}, {signal, sag.degrade(ex, clean)}, {-signal, clean}});
  const Tensor led =
      linear_combination(ex, {{1, guided}, {sag.scale, first}});  // the next call overwrites output
  const Tensor input = scale_model_input(ex, degraded, c.input, 1, args_.input_dtype);  // [N,H,W,C]
  const Tensor again = sag.unet(ex, input, level.timestep);
  require(again.shape() == input.shape(), "denoiser: the UNet returned ", again.shape(), " for an input of ",
          input.shape());
  return linear_combination(
      ex, {{1, led}, {-sag.scale, again.dtype() == DType::kF32 ? again : cast(ex, again, DType::kF32)}});
}

// The values decide about each other, so that the host does it, as it does with Thresholding.
Tensor Denoiser::mimic(Exec& ex, const Tensor& negative, const Tensor& positive) const {
  const std::vector<float> a = to_floats(ex.device(), negative), b = to_floats(ex.device(), positive);
  const auto channels = static_cast<size_t>(negative.dim(3));
  const size_t per_image = a.size() / static_cast<size_t>(negative.dim(0));
  std::vector<float> all;
  for (size_t begin = 0; begin < a.size(); begin += per_image) {
    const auto image =
        mimicked(std::span(a).subspan(begin, per_image), std::span(b).subspan(begin, per_image), channels,
                 {args_.cfg_scale, args_.mimic_scale, args_.mimic_percentile});
    all.insert(all.end(), image.begin(), image.end());
  }
  return tensor_from(ex.device(), negative.shape(), all.data());
}

Denoiser::Conversion Denoiser::conversion(const NoiseLevel& level, LatentSpace space) const {
  const bool exploding = space == LatentSpace::kVarianceExploding;
  if (args_.sigma_data > 0) {  // EDM; x * exploded is in kVarianceExploding
    const double exploded = exploding ? 1 : 1 / std::sqrt(level.alpha_bar);
    const double data = args_.sigma_data, square = level.sigma * level.sigma + data * data;
    const double sign = args_.prediction == Prediction::kV ? -1 : 1;
    return {exploded / std::sqrt(square), exploded * data * data / square,
            sign * level.sigma * data / std::sqrt(square)};
  }
  // x / norm = signal * x0 + noise * epsilon with signal^2 + noise^2 = 1.
  const double norm = exploding ? std::sqrt(level.sigma * level.sigma + 1) : 1;
  const double signal = exploding ? 1 / norm : std::sqrt(level.alpha_bar);
  const double noise = exploding ? level.sigma / norm : std::sqrt(1 - level.alpha_bar);
  const double input = exploding ? 1 / std::sqrt(level.sigma * level.sigma + 1) : 1;
  switch (args_.prediction) {
    case Prediction::kEpsilon:
      require<UsageError>(
          signal > 0,
          "a model that predicts epsilon cannot start at zero terminal SNR with this sampler; "
          "the checkpoint needs v prediction");
      return {input, 1 / (norm * signal), -noise / signal};
    case Prediction::kV: return {input, signal / norm, -noise};
    case Prediction::kSample: return {input, 0, 1};
  }
  throw InternalError("denoiser: unknown prediction type");
}

Tensor Denoiser::called(Exec& ex, const Tensor& x, double input_scale, double timestep,
                        bool without_first) const {
  const int count = conditions() - (without_first ? 1 : 0);
  const Tensor input = scale_model_input(ex, x, input_scale, count, args_.input_dtype);  // [count*N,H,W,C]
  const Tensor output = unet_(ex, input, timestep);
  require(output.rank() == 4 && output.shape() == input.shape(), "denoiser: the UNet returned ",
          output.shape(), " for an input of ", input.shape());
  if (!without_first) return output;
  const int64_t images = x.dim(0);
  const Tensor all = ex.alloc({images * conditions(), x.dim(1), x.dim(2), x.dim(3)}, output.dtype());
  copy_into(ex, output, all.narrow(0, images, images * count));
  return all;
}

Tensor Denoiser::operator()(Exec& ex, const Tensor& x, const NoiseLevel& level, LatentSpace space,
                            Tensor* negative) const {
  const Conversion c = conversion(level, space);
  const auto clean = [&](const Tensor& model) {
    if (c.x == 0) return linear_combination(ex, {{c.model, model}});
    return linear_combination(ex, {{c.x, x}, {c.model, model}});
  };
  const bool with_negative =
      guidance_ == Guidance::kInstruct || !args_.without_negative || !args_.without_negative(level);
  const bool left_out = !with_negative && guidance_ != Guidance::kNone;
  const Tensor output = called(ex, x, c.input, level.timestep, left_out && args_.smaller_batch);
  if (negative) *negative = clean(part(ex, output, left_out ? 1 : 0));
  if (args_.mimic_scale > 0 && guidance_ == Guidance::kPrompt && with_negative)
    return mimic(ex, clean(part(ex, output, 0)), clean(part(ex, output, 1)));
  const Tensor led = guided(ex, output, with_negative);
  return clean(args_.self_attention.scale > 0 ? away_from_degraded(ex, x, output, led, level, space) : led);
}

}  // namespace rocm_sd
