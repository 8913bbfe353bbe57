// What a request brings besides its prompt, as the sampler and the UNet want it: pictures, masks, depth maps,
// latents; and the noise of the images' generators in the order in which Diffusers' pipelines draw it.
#include "base/error.hpp"
#include "pipeline/pixels.hpp"
#include "pipeline/state.hpp"

namespace rocm_sd {

std::vector<float> to_nhwc(const std::vector<float>& nchw, const Shape& nhwc) {
  std::vector<float> out(nchw.size());
  const int64_t h = nhwc[1], w = nhwc[2], c = nhwc[3];
  for (int64_t n = 0; n < nhwc[0]; ++n)
    for (int64_t k = 0; k < c; ++k)
      for (int64_t p = 0; p < h * w; ++p)
        out[static_cast<size_t>((n * h * w + p) * c + k)] =
            nchw[static_cast<size_t>((n * c + k) * h * w + p)];
  return out;
}

BatchNoise Pipeline::State::seeded_noise(const ResolvedRequest& r) const {
  const GenerateRequest& q = r.request;
  const bool varied = q.variation_strength > 0;
  const ImageSeed first{static_cast<uint64_t>(q.seed), static_cast<uint64_t>(varied ? q.variation_seed : 0),
                        q.variation_strength};
  return {r.noise, batch_seeds(first, q.batch), 4, r.latent_height, r.latent_width};
}

NoiseDraws Pipeline::State::noise_draws(const ResolvedRequest& r) const {
  NoiseDraws draws;
  draws.start = !r.request.denoising_start;
  // An AutoencoderTiny has no posterior, and instruct-pix2pix takes its mode.
  if (!r.samples_posterior || !components.vae || components.is_instruct()) return draws;
  const bool from_noise = components.is_inpainting() && r.strength >= 1;  // the picture is not encoded
  draws.init = r.request.init_image && r.request.init_latents.empty() && !from_noise;
  draws.masked = r.request.mask || components.is_inpainting();
  return draws;
}

// pixels [H,W,3] in -1..1 -> latents [batch,h,w,4] as the sampler wants them. noise [batch,h,w,4]: a sample
// of the posterior for each image; empty: its mean.
std::vector<float> Pipeline::State::encode_picture(const ResolvedRequest& r, const std::vector<float>& pixels,
                                                   const std::vector<float>& noise,
                                                   const CancelCheck* cancel) {
  for (;;) {
    prepare_stages(r, rows);
    components.need_encoder();
    ready(Part::kVae);
    const VaeStage::Encoded encoded = vae->encode(pixels, profiler.get(), cancel);
    std::vector<float> latents;
    for (int64_t n = 0; n < r.request.batch; ++n)
      latents.insert(latents.end(), encoded.mean.begin(), encoded.mean.end());
    for (size_t i = 0; i < noise.size(); ++i)
      latents[i] += encoded.deviation[i % encoded.deviation.size()] * noise[i];
    const int64_t bad = count_nonfinite(latents);
    if (bad == 0) return latents;
    require<GenerationError>(widen(Part::kVae, "the VAE's encoder"), "vae encoder: ", bad, " of ",
                             latents.size(), " values are not finite in ", components.dtype_of(Part::kVae),
                             "; are the weights damaged?");
  }
}

InitImage Pipeline::State::encode_init(const ResolvedRequest& r, const CancelCheck* cancel) {
  const GenerateRequest& q = r.request;
  InitImage init;
  const int width = static_cast<int>(r.width), height = static_cast<int>(r.height);
  const NoiseDraws draws = noise_draws(r);
  BatchNoise noise = seeded_noise(r);
  std::vector<float> for_init, for_masked;
  if (draws.init) for_init = noise.next_aside();
  if (draws.masked) {
    noise.next();
    for_masked = noise.next_aside();
  }
  if (q.init_image) init.pixels = image_to_floats(*q.init_image, width, height);
  if (!q.init_latents.empty())
    init.latents = to_nhwc(q.init_latents, noise.shape());
  else if (q.init_image)
    init.latents = encode_picture(r, init.pixels, for_init, cancel);
  if (q.mask) {
    init.mask = mask_to_floats(*q.mask, width, height, q.mask_blur);
    init.latent_mask =
        latent_mask(init.mask, width, height, static_cast<int>(components.downscale()), r.mask_downscale);
  }
  init.extra = extra_channels(r, init, for_masked, cancel);
  return init;
}

// The UNet's input channels beside the latents, for each condition: [batch,h,w,extra]; empty where it has
// none. noise: for the posterior of the masked picture, or empty.
std::vector<std::vector<float>> Pipeline::State::extra_channels(const ResolvedRequest& r,
                                                                const InitImage& init,
                                                                const std::vector<float>& noise,
                                                                const CancelCheck* cancel) {
  const auto pixels = static_cast<size_t>(r.latent_height * r.latent_width);
  const auto batch = static_cast<size_t>(r.request.batch);
  if (components.is_instruct()) {
    // Unconditional images see no picture; the others see its latents unscaled (Brooks et al. 2023,
    // section 3.2.1).
    const double scale = components.vae ? components.vae->config().scaling_factor
                                        : components.tiny_vae->config().scaling_factor;
    std::vector<float> raw = init.latents;
    for (float& v : raw) v = static_cast<float>(v / scale);
    return {std::vector<float>(raw.size(), 0.0f), raw, raw};
  }
  std::vector<float> channels;
  if (components.is_depth()) {
    const std::vector<float> depth = depth_to_floats(*r.request.depth, static_cast<int>(r.latent_width),
                                                     static_cast<int>(r.latent_height));
    for (size_t n = 0; n < batch; ++n) channels.insert(channels.end(), depth.begin(), depth.end());
  } else if (components.is_inpainting()) {
    // The mask, then the latents of the picture with the masked part grey. Without a picture all is masked.
    std::vector<float> masked(static_cast<size_t>(r.width * r.height * 3), 0.0f);
    for (size_t i = 0; i < init.mask.size(); ++i)
      if (init.mask[i] < 0.5f) std::copy_n(&init.pixels[3 * i], 3, &masked[3 * i]);
    const std::vector<float> latents = encode_picture(r, masked, noise, cancel);
    for (size_t i = 0; i < batch * pixels; ++i) {
      channels.push_back(init.latent_mask.empty() ? 1.0f : init.latent_mask[i % pixels]);
      channels.insert(channels.end(), &latents[4 * i], &latents[4 * i] + 4);
    }
  } else {
    return {};
  }
  return std::vector<std::vector<float>>(static_cast<size_t>(r.conditions), channels);
}

}  // namespace rocm_sd
