// Reproducible normal noise: the generators behind the seeds that users share, bit for bit.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/shape.hpp"

namespace rocm_sd {

enum class NoiseKind {
  kPhilox,    // torch.randn on a CUDA or HIP device, as A1111's "GPU" and "NV" sources
  kTorchCpu,  // torch.randn on the CPU: Diffusers with a CPU generator, ComfyUI, A1111's "CPU" source
};

// "gpu", "nv", "cuda", "philox" and "cpu", "torch", "torch_cpu", in any case. Throws UsageError else.
NoiseKind parse_noise_kind(std::string_view name);
std::string_view to_string(NoiseKind kind);

// A stream of standard normal values. Each fill is one torch.randn call of that many values: where a call
// begins matters, so filling 8 and 8 is not filling 16.
class NoiseSource {
 public:
  virtual ~NoiseSource() = default;
  virtual void fill(std::span<float> out) = 0;
};

// seed: all 64 bits count for kPhilox, the low 32 for kTorchCpu (as in PyTorch).
std::unique_ptr<NoiseSource> make_noise_source(NoiseKind kind, uint64_t seed);

struct ImageSeed {
  uint64_t seed = 0;
  uint64_t variation_seed = 0;
  double variation_strength = 0;  // 0: seed alone, 1: variation_seed alone; between them on a great circle
};

// seed, seed + 1, ... for `images` images; a variation keeps `first.seed` and counts up variation_seed, as
// A1111 does.
std::vector<ImageSeed> batch_seeds(const ImageSeed& first, int64_t images);

// The size of latents whose noise is put into others'; 0: none.
struct NoiseOrigin {
  int64_t height = 0, width = 0;
};

// Noise for a batch of latents, one generator per image, so that an image does not depend on its batch.
class BatchNoise {
 public:
  // origin: of another size, the first noise is that of an image of the origin's size, its middle in the
  // middle of this one's, beside this one's own (A1111's "resize seed from"). Throws UsageError where a
  // variation strength is not within 0..1 or seeds is empty.
  BatchNoise(NoiseKind kind, std::vector<ImageSeed> seeds, int64_t channels, int64_t height, int64_t width,
             NoiseOrigin origin = {});

  Shape shape() const { return shape_; }  // [N,H,W,C]
  NoiseKind kind() const { return kind_; }
  const std::vector<ImageSeed>& seeds() const { return seeds_; }

  // The next noise of every image, [N,H,W,C] row-major. Values are drawn in the order [C,H,W] that PyTorch's
  // layout gives. The first call has the variation mixed in; later ones (ancestral noise) come from `seed`
  // alone.
  std::vector<float> next();
  // The same values of the generators without a variation: what is drawn beside the latents' noise (a VAE's
  // posterior). Does not count as the first call.
  std::vector<float> next_aside() { return draw(false); }

 private:
  std::vector<float> draw(bool first);
  std::vector<float> first_of(size_t image);  // [C,H,W]

  NoiseKind kind_;
  std::vector<ImageSeed> seeds_;
  Shape shape_;
  NoiseOrigin origin_;  // shape_'s where none was given
  std::vector<std::unique_ptr<NoiseSource>> sources_;
  bool first_ = true;
};

// A1111's slerp of noises a and b, both [C,H,W]: the angle is taken along H for each channel and column.
// strength 0 gives a. Nearly parallel noises are mixed linearly.
std::vector<float> slerp_noise(double strength, std::span<const float> a, std::span<const float> b,
                               int64_t channels, int64_t height, int64_t width);

}  // namespace rocm_sd
