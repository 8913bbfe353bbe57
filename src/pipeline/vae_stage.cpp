#include "pipeline/vae_stage.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/step/step.hpp"

namespace rocm_sd {

VaeStage::VaeStage(Components& components, Arena& arena, int64_t height, int64_t width)
    : components_(components), arena_(arena), height_(height), width_(width) {
  Device& device = *components_.device;
  const VaeConfig& config = components_.vae->config();
  const int64_t factor = config.downscale();
  const Shape latent_shape{1, height, width, config.latent_channels};
  const Shape pixel_shape{1, height * factor, width * factor, 3};
  latents_ = make_tensor(device, latent_shape, DType::kF32);
  rgb_ = make_tensor(device, pixel_shape, DType::kU8);
  nonfinite_ = make_tensor(device, {1}, DType::kI64);
  decode_ = std::make_unique<Program>("vae decoder", arena_, [this](Exec& ex) {
    const Tensor picture = components_.tiny_vae ? (*components_.tiny_vae)(ex, latents_)
                                                : (*components_.vae)(ex, latents_);  // [1,H,W,3]
    copy_into(ex, count_nonfinite(ex, picture), nonfinite_);
    copy_into(ex, to_rgb8(ex, picture), rgb_);
  });
}

size_t VaeStage::plan(bool with_encoder) {
  if (!decode_->planned()) decode_->plan();
  if (!with_encoder) return decode_->arena_bytes();
  if (!pixels_) {
    pixels_ = make_tensor(*components_.device, rgb_.shape(), DType::kF32);
    encoded_ = make_tensor(*components_.device, latents_.shape(), DType::kF32);
  }
  if (!encode_) {
    const VaeEncoder& encoder = components_.encoder();
    encode_ = std::make_unique<Program>(
        "vae encoder", arena_, [this, &encoder](Exec& ex) { copy_into(ex, encoder(ex, pixels_), encoded_); });
  }
  if (!encode_->planned()) encode_->plan();
  return std::max(decode_->arena_bytes(), encode_->arena_bytes());
}

uint64_t VaeStage::buffer_bytes() const {
  uint64_t bytes = 0;
  for (const Tensor* t : {&latents_, &rgb_, &nonfinite_, &pixels_, &encoded_}) bytes += *t ? t->bytes() : 0;
  return bytes;
}

Image VaeStage::decode(const std::vector<float>& latents, Profiler* profiler, const CancelCheck* cancel) {
  Device& device = *components_.device;
  upload(device, latents_, latents.data(), latents_.numel());
  decode_->run(profiler, cancel);
  int64_t bad = 0;
  device.copy_to_host(&bad, nonfinite_.data(), sizeof bad);
  require<GenerationError>(bad == 0, "vae decoder: ", bad, " of ", rgb_.numel(), " values are not finite in ",
                           components_.info.dtype, "; try --dtype f32");
  Image out{static_cast<int>(rgb_.dim(2)),
            static_cast<int>(rgb_.dim(1)),
            std::vector<uint8_t>(static_cast<size_t>(rgb_.numel())),
            {}};
  device.copy_to_host(out.rgb.data(), rgb_.data(), out.rgb.size());
  return out;
}

std::vector<float> VaeStage::encode(const std::vector<float>& pixels, Profiler* profiler,
                                    const CancelCheck* cancel) {
  plan(true);
  upload(*components_.device, pixels_, pixels.data(), pixels_.numel());
  encode_->run(profiler, cancel);
  return to_floats(*components_.device, encoded_);
}

}  // namespace rocm_sd
