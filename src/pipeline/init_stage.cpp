// What a request brings besides its prompt, as the sampler and the UNet want it: images, masks, depth maps,
// latents; and the noise of the images' generators in the order in which Diffusers' pipelines draw it.
#include "base/error.hpp"
#include "pipeline/pixels.hpp"
#include "pipeline/soft_inpaint.hpp"
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
  std::vector<ImageSeed> seeds = batch_seeds(first, q.batch);
  for (size_t i = 0; i < q.seeds.size(); ++i) seeds[i].seed = static_cast<uint64_t>(q.seeds[i]);
  const int64_t pixels = components.downscale();
  return {r.noise,
          std::move(seeds),
          4,
          r.latent_height,
          r.latent_width,
          NoiseOrigin{q.seed_resize_height / pixels, q.seed_resize_width / pixels}};
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

FirstNoise draw_first_noise(BatchNoise noise, const NoiseDraws& draws) {
  if (draws.init) noise.next_aside();
  std::vector<float> start;
  if (draws.start) start = noise.next();
  if (draws.masked) noise.next_aside();
  return {std::move(noise), std::move(start)};
}

// pixels [H,W,3] in -1..1 -> latents [batch,h,w,4] as the sampler wants them. noise [batch,h,w,4]: a sample
// of the posterior for each image; empty: its mean.
Tensor Pipeline::State::encode_image(const PreparedRequest& r, const std::vector<float>& pixels,
                                     const std::vector<float>& noise, const RunWatch& watch) {
  components.need_encoder();
  return moved_to(*components.device, components.place[Part::kVae], run_with_retry(Part::kVae, r, [&] {
    return vae->encode(pixels, r.request.batch, noise, watch);
  }));
}

// The request's images, one for each of the batch; noise as for encode_image().
Tensor Pipeline::State::encode_each(const PreparedRequest& r, const std::vector<float>& noise,
                                    const RunWatch& watch) {
  const size_t images = r.request.init_images.size();
  std::vector<float> latents;
  components.need_encoder();
  for (size_t i = 0; i < images; ++i) {
    const std::vector<float> pixels =
        image_to_floats(r.request.init_images[i], static_cast<int>(r.width), static_cast<int>(r.height));
    const auto begin = noise.begin() + static_cast<ptrdiff_t>(i * noise.size() / images),
               end = noise.begin() + static_cast<ptrdiff_t>((i + 1) * noise.size() / images);
    const Tensor one =
        run_with_retry(Part::kVae, r, [&] { return vae->encode(pixels, 1, {begin, end}, watch); });
    const std::vector<float> values = to_floats(components.place[Part::kVae], one);
    latents.insert(latents.end(), values.begin(), values.end());
  }
  return tensor_from(*components.device, {static_cast<int64_t>(images), r.latent_height, r.latent_width, 4},
                     latents.data());
}

// Masked latents become the seeds' noise, or zeros, where the request says so.
void Pipeline::State::empty_masked(const PreparedRequest& r, InitImage& init) const {
  if (r.masked_content != MaskedContent::kNoise && r.masked_content != MaskedContent::kNothing) return;
  std::vector<float> values = to_floats(*components.device, init.latents), noise(values.size(), 0.0f);
  if (r.masked_content == MaskedContent::kNoise) {
    std::vector<ImageSeed> seeds = seeded_noise(r).seeds();
    for (ImageSeed& seed : seeds) seed.variation_strength = 0;
    noise = BatchNoise(r.noise, seeds, 4, r.latent_height, r.latent_width).next();
  }
  for (size_t i = 0; i < values.size(); ++i)
    if (const float share = init.latent_mask[i / 4 % init.latent_mask.size()]; share > 0)
      values[i] = share * noise[i] + (1 - share) * values[i];
  init.latents = tensor_from(*components.device, init.latents.shape(), values.data());
}

InitImage Pipeline::State::encode_init(const PreparedRequest& r, const RunWatch& watch) {
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
    init.latents =
        tensor_from(*components.device, noise.shape(), to_nhwc(q.init_latents, noise.shape()).data());
  else if (!q.init_images.empty())
    init.latents = encode_each(r, for_init, watch);
  if (q.mask) {
    init.mask = mask_to_floats(*q.mask, width, height, r.mask_is_ready ? 0 : q.mask_blur, q.mask_invert);
    init.latent_mask = soft_settings(q.mask_blend)
                           ? soft_latent_mask(init.mask, width, height, static_cast<int>(r.latent_width),
                                              static_cast<int>(r.latent_height))
                           : latent_mask(init.mask, width, height, static_cast<int>(components.downscale()),
                                         r.mask_downscale);
  }
  if (q.init_image && !init.latents) {
    const bool fills = q.mask && r.masked_content != MaskedContent::kOriginal;
    init.latents = encode_image(r, fills ? fill_masked(init.pixels, init.mask, width, height) : init.pixels,
                                for_init, watch);
  }
  if (q.mask) empty_masked(r, init);
  init.extra = extra_channels(r, init, for_masked, watch);
  return init;
}

// The UNet's input channels beside the latents: [conditions*batch,h,w,extra]; empty where it has none. noise:
// for the posterior of the masked image, or empty.
Tensor Pipeline::State::extra_channels(const PreparedRequest& r, const InitImage& init,
                                       const std::vector<float>& noise, const RunWatch& watch) {
  if (components.unet->config().in_channels == 4) return {};
  const int64_t batch = r.request.batch, extra = components.unet->config().in_channels - 4;
  const auto pixels = static_cast<size_t>(r.latent_height * r.latent_width);
  Device& device = *components.device;
  std::vector<float> channels;  // of one condition, [batch,h,w,extra]
  if (components.is_instruct()) {
    // The image's latents unscaled (Brooks et al. 2023, section 3.2.1).
    const double scale = components.vae ? components.vae->config().scaling_factor
                                        : components.tiny_vae->config().scaling_factor;
    channels = to_floats(device, init.latents);
    for (float& v : channels) v = static_cast<float>(v / scale);
  } else if (components.is_depth()) {
    const std::vector<float> depth = depth_to_floats(*r.request.depth, static_cast<int>(r.latent_width),
                                                     static_cast<int>(r.latent_height));
    for (int64_t n = 0; n < batch; ++n) channels.insert(channels.end(), depth.begin(), depth.end());
  } else {
    // The mask, then the latents of the image with the masked part grey. Without an image all is masked.
    std::vector<float> masked(static_cast<size_t>(r.width * r.height * 3), 0.0f);
    for (size_t i = 0; i < init.mask.size(); ++i)
      if (init.mask[i] < 0.5f) std::copy_n(&init.pixels[3 * i], 3, &masked[3 * i]);
    const std::vector<float> latents = to_floats(device, encode_image(r, masked, noise, watch));
    for (size_t i = 0; i < static_cast<size_t>(batch) * pixels; ++i) {
      channels.push_back(init.latent_mask.empty() ? 1.0f : init.latent_mask[i % pixels]);
      channels.insert(channels.end(), &latents[4 * i], &latents[4 * i] + 4);
    }
  }
  std::vector<float> all;
  for (int c = 0; c < r.conditions; ++c) all.insert(all.end(), channels.begin(), channels.end());
  // Unconditional images of an instruct-pix2pix model see no image.
  if (components.is_instruct()) std::fill_n(all.begin(), channels.size(), 0.0f);
  return tensor_from(device, {r.conditions * batch, r.latent_height, r.latent_width, extra}, all.data());
}

}  // namespace rocm_sd
