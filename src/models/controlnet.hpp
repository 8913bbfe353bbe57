// ControlNet: a copy of a UNet's way down that also sees an image (edges, depth, a pose, ...) and adds what
// it makes of it to the UNet's skips (Zhang et al., "Adding Conditional Control to Text-to-Image Diffusion
// Models", 2023).
#pragma once

#include <string>
#include <vector>

#include "models/control_mixer.hpp"
#include "models/unet.hpp"

namespace rocm_sd {

struct ControlNetConfig {
  UNetConfig trunk;  // without a way up
  int64_t hint_channels = 3;
  std::vector<int64_t> hint_widths = {16, 32, 96, 256};  // of the hint encoder, finest first
  bool bgr = false;                                      // the order of the image's channels
  bool pools = false;  // residuals are their means over the image (ControlNets of a style)
  std::optional<ControlMixerConfig> mixer = {};  // of a union ControlNet

  int64_t hint_scale() const { return int64_t{1} << (hint_widths.size() - 1); }  // pixels of a latent
};

// From the JSON of Diffusers' ControlNetModel. Throws as unet_config does.
ControlNetConfig controlnet_config(const nlohmann::json& json, std::string_view what);

// Why a ControlNet cannot steer a UNet whose VAE makes one latent of downscale x downscale pixels: a sentence
// with both numbers; empty where it can.
std::string controlnet_refusal(const ControlNetConfig& control, const UNetConfig& unet, int64_t downscale);

// A side that is halved so many times, upwards.
constexpr int64_t halved(int64_t side, int64_t times) {
  return times == 0 ? side : halved((side + 1) / 2, times - 1);
}

// How strongly each residual acts, and for whom.
enum class ControlMode {
  kBalanced,  // all alike
  kPrompt,    // A1111's "My prompt is more important": residual i times 0.825^(12 - i)
  kControl,   // A1111's "ControlNet is more important": the same, not for the negative prompt
  kGuess,  // Diffusers' guess_mode: residual i of n times 10^(i / (n - 1) - 1), not for the negative prompt
};
// The factor of residual `index` of `count`, of which the middle's is the last.
double control_factor(ControlMode mode, int64_t index, int64_t count);

// The image's way to the latents' size: convolutions with SiLU, of which every other one halves the size.
struct HintEncoder {
  Conv conv_in, conv_out;
  std::vector<Conv> blocks;

  HintEncoder(const ControlNetConfig& config, int64_t out);
  void visit(Visitor& v);
  // image [N,H,W,3] f32 -> [N,H/s,W/s,out] of `maps`, s = hint_scale()
  Tensor operator()(Exec& ex, const Tensor& image, DType maps) const;
};

class ControlNet {
 public:
  explicit ControlNet(const ControlNetConfig& config);
  // As UNet::load.
  static ControlNet load(const LoadTarget& target, const ControlNetConfig& config,
                         const ParameterSource& source, DType compute, const WeightFormat& weights = {});

  const ControlNetConfig& config() const { return config_; }
  // Its own text cache, time shifts and types.
  const UNet& trunk() const { return trunk_; }
  int64_t residuals() const { return static_cast<int64_t>(down_.size()) + 1; }  // skips and the middle
  std::vector<int64_t> residual_levels() const;  // how many times each is halved
  void visit(Visitor& v);
  std::vector<PrecisionRow> precisions() const;

  // image [N,H,W,3] f32 in 0..1, its channels as config().bgr says -> [N,h,w,C0] in the trunk's
  // input_dtype(): once per image.
  Tensor hint(Exec& ex, const Tensor& image) const;

  // Of a union ControlNet: what its time embedding gets added (ControlMixer::type_embedding), and what a
  // image's hint counts for (ControlMixer::operator()); those of several images are added up.
  Tensor type_embedding(Exec& ex, const Tensor& types) const;
  Tensor weigh(Exec& ex, const Tensor& hint, const Tensor& type, const Tensor& scales) const;

  // Adds factors[i] * residual i to what the UNet's way down left: i counts the skips, and the middle comes
  // last. latents [B,h,w,4], hint [B,h,w,C0]; shifts and text are of this model's trunk; factors [B] each, or
  // [B*h*w] of the residual's size, f32 in device memory, read when a launch runs. Reads device memory by
  // pointer only.
  void operator()(Exec& ex, const Tensor& latents, const Tensor& hint, const Tensor& shifts,
                  const TextCache& text, std::span<const Tensor> factors, UNetSkips& skips,
                  const Tap* tap = nullptr) const;

 private:
  Tensor residual(Exec& ex, const Tensor& map, const Conv& conv) const;
  bool scales_in_epilogue(const Exec& ex) const;

  ControlNetConfig config_;
  UNet trunk_;
  HintEncoder hint_;
  std::optional<ControlMixer> mixer_;
  std::vector<Conv> down_;  // 1x1, one for each skip
  Conv middle_;
};

}  // namespace rocm_sd
