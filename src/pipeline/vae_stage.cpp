#include "pipeline/vae_stage.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/step/step.hpp"
#include "runtime/peer_windows.hpp"

namespace rocm_sd {
namespace {

constexpr int64_t kLatentChannels = 4;
constexpr float kLeastLogVariance = -30, kMaxLogVariance = 20;  // Diffusers' DiagonalGaussianDistribution's

}  // namespace

VaeStage::VaeStage(Components& components, Arena& arena, const VaeShape& shape)
    : Stage(Part::kVae, arena),
      components_(components),
      shape_(shape),
      bands_(components.tiny_vae || shape.wrap.any() ? 1
                                                     : std::clamp<int64_t>(shape.bands, 1, shape.height)) {
  const int64_t factor = components_.downscale();
  latents_ = make_tensor(device(), {1, shape.height, shape.width, kLatentChannels}, DType::kF32);
  rgb_ = make_tensor(device(), {1, shape.height * factor, shape.width * factor, 3}, DType::kU8);
  const bool whole = bands_ == 1 || components_.vae->config().half_size_finest;  // the image comes at once
  nonfinite_ = make_tensor(device(), {whole ? 1 : bands_}, DType::kI64);
  decode_ = std::make_unique<Program>("vae decoder", arena, [this](Exec& ex) { decode_forward(ex); });
}

void VaeStage::need_encoder(bool needed) {
  needs_encoder_ = needed;
  if (!needed) return;
  components_.need_encoder();
  if (!pixels_) {
    pixels_ = make_tensor(device(), rgb_.shape(), DType::kF32);
    const int64_t numbers = components_.vae ? 2 : 1;  // means and log variances, or latents
    encoded_ =
        make_tensor(device(), {1, shape_.height, shape_.width, numbers * kLatentChannels}, DType::kF32);
  }
  if (!encode_) make_encode();
}

void VaeStage::make_encode() {
  encode_ = std::make_unique<Program>("vae encoder", arena(), [this](Exec& ex) { encode_forward(ex); });
}

void VaeStage::decode_forward(Exec& ex) {
  int64_t band = 0;
  const auto keep = [&](const Tensor& image, int64_t row) {  // [1,R,W,3]
    copy_into(ex, count_nonfinite(ex, image), nonfinite_.narrow(0, band++, 1));
    copy_into(ex, to_rgb8(ex, image), rgb_.narrow(1, row, image.dim(1)));
  };
  const RowScope scope(shape_.rows);
  const WrapScope wraps(shape_.wrap);
  if (shape_.rows)
    keep((*components_.vae)(ex, latents_), shape_.rows->begin() * components_.downscale());
  else if (components_.tiny_vae)
    keep((*components_.tiny_vae)(ex, latents_), 0);
  else if (bands_ == 1)
    keep((*components_.vae)(ex, latents_), 0);
  else
    components_.vae->decode_in_bands(ex, latents_, bands_, keep);
}

void VaeStage::encode_forward(Exec& ex) {
  const WrapScope wraps(shape_.wrap);
  if (!components_.vae) return copy_into(ex, (*components_.loaded_tiny_encoder)(ex, pixels_), encoded_);
  const VaeEncoder& encoder = *components_.loaded_encoder;
  const Tensor moments =
      bands_ == 1 ? encoder.moments(ex, pixels_) : encoder.moments_in_bands(ex, pixels_, bands_);
  copy_into(ex, moments, encoded_);
}

std::vector<Program*> VaeStage::programs() {
  std::vector<Program*> out = {decode_.get()};
  if (needs_encoder_) out.push_back(encode_.get());
  return out;
}

// The encoder is planned again when an image comes.
void VaeStage::replan() {
  decode_->plan();
  if (encode_) make_encode();
}

uint64_t VaeStage::buffer_bytes() const {
  return bytes_of({&latents_, &rgb_, &nonfinite_, &pixels_, &encoded_});
}

// The decoder divides by scaling_factor; mean and standard deviation of the channels go before it.
void VaeStage::upload_centred(const Tensor& latents) {
  const VaeConfig& config = components_.vae->config();
  std::vector<float> values = to_floats(device(), latents);
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t c = i % kLatentChannels;
    values[i] = static_cast<float>(values[i] * config.latents_std[c] +
                                   config.latents_mean[c] * config.scaling_factor);
  }
  upload(device(), latents_, values.data(), latents_.numel());
}

Image VaeStage::decode(const Tensor& latents, const RunWatch& watch) {
  if (components_.vae && !components_.vae->config().latents_std.empty())
    upload_centred(latents);
  else
    device().copy_on_device(latents_.data(), latents.data(), latents_.bytes());
  PeerWindows* windows = shape_.rows ? shape_.rows->ranks().windows() : nullptr;
  if (windows) windows->meet();
  decode_->run(watch.profiler, windows && windows->by_library() ? nullptr : watch.cancel);
  // The image's memory is made while the device decodes.
  Image image{static_cast<int>(rgb_.dim(2)),
              static_cast<int>(rgb_.dim(1)),
              std::vector<uint8_t>(static_cast<size_t>(rgb_.numel())),
              {}};
  std::vector<int64_t> bad(static_cast<size_t>(nonfinite_.numel()));
  device().copy_to_host(bad.data(), nonfinite_.data(), nonfinite_.bytes());
  const size_t row_bytes = image.rgb.size() / static_cast<size_t>(shape_.height);  // of a row of latents
  const size_t begin = shape_.rows ? static_cast<size_t>(shape_.rows->begin()) * row_bytes : 0;
  const size_t bytes = shape_.rows ? static_cast<size_t>(shape_.rows->rows()) * row_bytes : image.rgb.size();
  device().copy_to_host(image.rgb.data() + begin, static_cast<const char*>(rgb_.data()) + begin, bytes);
  if (windows) windows->check();
  if (shape_.rows) gather_rows(image, bad);
  const NotFinite found{"VAE decoder", std::reduce(bad.begin(), bad.end()), rgb_.numel()};
  if (found.count > 0) throw found;
  return image;
}

void VaeStage::gather_rows(Image& image, std::vector<int64_t>& bad) const {
  Ranks& ranks = shape_.rows->ranks();
  const size_t row_bytes = image.rgb.size() / static_cast<size_t>(shape_.height);  // of a row of latents
  std::vector<size_t> ends, counts;
  for (const int64_t end : shape_.rows->ends()) {
    ends.push_back(static_cast<size_t>(end) * row_bytes);
    counts.push_back((counts.size() + 1) * sizeof(int64_t));
  }
  all_gather(ranks, image.rgb.data(), ends);
  const int64_t own = std::reduce(bad.begin(), bad.end());
  bad.assign(counts.size(), 0);
  bad[static_cast<size_t>(ranks.rank())] = own;
  all_gather(ranks, bad.data(), counts);
}

VaeStage::Posterior VaeStage::posterior(const std::vector<float>& encoded) const {
  if (!components_.vae) return {encoded, {}};
  const VaeConfig& config = components_.vae->config();
  Posterior out;
  for (size_t begin = 0; begin < encoded.size(); begin += 2 * kLatentChannels)
    for (size_t c = 0; c < kLatentChannels; ++c) {
      const bool centred = !config.latents_std.empty();
      const auto shift = static_cast<float>(centred ? config.latents_mean[c] : 0);
      const auto scale = static_cast<float>(config.scaling_factor / (centred ? config.latents_std[c] : 1.0));
      const float log_variance =
          std::clamp(encoded[begin + kLatentChannels + c], kLeastLogVariance, kMaxLogVariance);
      out.mean.push_back((encoded[begin + c] - shift) * scale);
      out.deviation.push_back(std::exp(0.5f * log_variance) * scale);
    }
  return out;
}

Tensor VaeStage::encode(const std::vector<float>& pixels, int64_t images, const std::vector<float>& noise,
                        const RunWatch& watch) {
  need_encoder(true);
  upload(device(), pixels_, pixels.data(), pixels_.numel());
  encode_->run(watch.profiler, watch.cancel);
  const Posterior gaussian = posterior(to_floats(device(), encoded_));
  std::vector<float> latents;
  for (int64_t n = 0; n < images; ++n)
    latents.insert(latents.end(), gaussian.mean.begin(), gaussian.mean.end());
  for (size_t i = 0; i < noise.size(); ++i)
    latents[i] += gaussian.deviation[i % gaussian.deviation.size()] * noise[i];
  const Tensor out =
      tensor_from(device(), {images, shape_.height, shape_.width, kLatentChannels}, latents.data());
  Exec ex = eager(watch);
  require_finite(ex, "VAE encoder", {&out});
  return out;
}

}  // namespace rocm_sd
