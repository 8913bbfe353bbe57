#include "pipeline/vae_stage.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/step/step.hpp"

namespace rocm_sd {
namespace {

constexpr int64_t kLatentChannels = 4;
constexpr float kLeastLogVariance = -30, kMaxLogVariance = 20;  // Diffusers' DiagonalGaussianDistribution's

}  // namespace

VaeStage::VaeStage(Components& components, Arena& arena, int64_t height, int64_t width, int64_t bands)
    : components_(components),
      arena_(arena),
      height_(height),
      width_(width),
      bands_(components.tiny_vae ? 1 : std::clamp<int64_t>(bands, 1, height)) {
  Device& device = *components_.device;
  const int64_t factor = components_.downscale();
  const Shape latent_shape{1, height, width, kLatentChannels};
  const Shape pixel_shape{1, height * factor, width * factor, 3};
  latents_ = make_tensor(device, latent_shape, DType::kF32);
  rgb_ = make_tensor(device, pixel_shape, DType::kU8);
  const bool whole = bands_ == 1 || components_.vae->config().half_size_finest;  // the picture comes at once
  nonfinite_ = make_tensor(device, {whole ? 1 : bands_}, DType::kI64);
  decode_ = std::make_unique<Program>("vae decoder", arena_, [this](Exec& ex) { decode_forward(ex); });
}

void VaeStage::decode_forward(Exec& ex) {
  int64_t band = 0;
  const auto keep = [&](const Tensor& picture, int64_t row) {  // [1,R,W,3]
    copy_into(ex, count_nonfinite(ex, picture), nonfinite_.narrow(0, band++, 1));
    copy_into(ex, to_rgb8(ex, picture), rgb_.narrow(1, row, picture.dim(1)));
  };
  if (components_.tiny_vae)
    keep((*components_.tiny_vae)(ex, latents_), 0);
  else if (bands_ == 1)
    keep((*components_.vae)(ex, latents_), 0);
  else
    components_.vae->decode_in_bands(ex, latents_, bands_, keep);
}

size_t VaeStage::plan(bool with_encoder) {
  if (!decode_->planned()) decode_->plan();
  if (!with_encoder) return decode_->arena_bytes();
  if (!pixels_) {
    pixels_ = make_tensor(*components_.device, rgb_.shape(), DType::kF32);
    const int64_t numbers = components_.vae ? 2 : 1;  // means and log variances, or latents
    encoded_ = make_tensor(*components_.device,
                           {1, latents_.dim(1), latents_.dim(2), numbers * kLatentChannels}, DType::kF32);
  }
  if (!encode_) {
    components_.need_encoder();
    encode_ = std::make_unique<Program>("vae encoder", arena_, [this](Exec& ex) {
      if (!components_.vae) return copy_into(ex, (*components_.loaded_tiny_encoder)(ex, pixels_), encoded_);
      const VaeEncoder& encoder = *components_.loaded_encoder;
      copy_into(ex,
                bands_ == 1 ? encoder.moments(ex, pixels_) : encoder.moments_in_bands(ex, pixels_, bands_),
                encoded_);
    });
  }
  if (!encode_->planned()) encode_->plan();
  return std::max(decode_->arena_bytes(), encode_->arena_bytes());
}

void VaeStage::replan() {
  decode_->plan();
  encode_.reset();
}

bool VaeStage::planned(bool with_encoder) const {
  return decode_->planned() && (!with_encoder || (encode_ && encode_->planned()));
}

uint64_t VaeStage::buffer_bytes() const {
  uint64_t bytes = 0;
  for (const Tensor* t : {&latents_, &rgb_, &nonfinite_, &pixels_, &encoded_}) bytes += *t ? t->bytes() : 0;
  return bytes;
}

VaeStage::Decoded VaeStage::decode(const std::vector<float>& latents, Profiler* profiler,
                                   const CancelCheck* cancel) {
  Device& device = *components_.device;
  std::vector<float> values = latents;
  if (components_.vae && !components_.vae->config().latents_std.empty()) {
    // The decoder divides by scaling_factor; mean and standard deviation of the channels go before it.
    const VaeConfig& config = components_.vae->config();
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t c = i % kLatentChannels;
      values[i] = static_cast<float>(values[i] * config.latents_std[c] +
                                     config.latents_mean[c] * config.scaling_factor);
    }
  }
  upload(device, latents_, values.data(), latents_.numel());
  decode_->run(profiler, cancel);
  std::vector<int64_t> bad(static_cast<size_t>(nonfinite_.numel()));
  device.copy_to_host(bad.data(), nonfinite_.data(), nonfinite_.bytes());
  Decoded out;
  for (const int64_t count : bad) out.nonfinite += count;
  out.image = {static_cast<int>(rgb_.dim(2)),
               static_cast<int>(rgb_.dim(1)),
               std::vector<uint8_t>(static_cast<size_t>(rgb_.numel())),
               {}};
  device.copy_to_host(out.image.rgb.data(), rgb_.data(), out.image.rgb.size());
  return out;
}

VaeStage::Encoded VaeStage::encode(const std::vector<float>& pixels, Profiler* profiler,
                                   const CancelCheck* cancel) {
  plan(true);
  upload(*components_.device, pixels_, pixels.data(), pixels_.numel());
  encode_->run(profiler, cancel);
  const std::vector<float> values = to_floats(*components_.device, encoded_);
  if (!components_.vae) return {values, {}};
  const VaeConfig& config = components_.vae->config();
  Encoded out;
  for (size_t begin = 0; begin < values.size(); begin += 2 * kLatentChannels)
    for (size_t c = 0; c < kLatentChannels; ++c) {
      const bool centred = !config.latents_std.empty();
      const auto shift = static_cast<float>(centred ? config.latents_mean[c] : 0);
      const auto scale = static_cast<float>(config.scaling_factor / (centred ? config.latents_std[c] : 1.0));
      const float log_variance =
          std::clamp(values[begin + kLatentChannels + c], kLeastLogVariance, kMaxLogVariance);
      out.mean.push_back((values[begin + c] - shift) * scale);
      out.deviation.push_back(std::exp(0.5f * log_variance) * scale);
    }
  return out;
}

}  // namespace rocm_sd
