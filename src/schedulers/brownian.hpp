// Brownian motion over sigma for the SDE samplers: the same path whatever the step count.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/shape.hpp"
#include "schedulers/noise.hpp"

namespace rocm_sd {

// W over [sigma_min, sigma_max] per image, refined lazily by Brownian bridges on a binary tree whose nodes
// draw from a seed of their own: an increment depends on (seed, interval) alone, not on what was asked
// before. The construction is that of k-diffusion's BrownianTreeNoiseSampler over torchsde's BrownianTree.
class BrownianNoise {
 public:
  // shape [N,H,W,C] with N = seeds.size(). Throws UsageError unless 0 <= sigma_min < sigma_max.
  BrownianNoise(NoiseKind kind, std::vector<uint64_t> seeds, const Shape& shape, double sigma_min,
                double sigma_max);
  ~BrownianNoise();
  BrownianNoise(BrownianNoise&&) noexcept;

  // (W(b) - W(a)) / sqrt|b - a| with the sign of going from a to b: standard normal, [N,H,W,C] row-major.
  // a != b; both are clamped to the range.
  std::vector<float> between(double a, double b);

 private:
  class Tree;
  Shape shape_;
  double sigma_min_, sigma_max_;
  std::vector<std::unique_ptr<Tree>> trees_;
};

}  // namespace rocm_sd
