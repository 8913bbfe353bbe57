// torch.randn on CUDA and HIP devices: Philox 4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as
// 1, 2, 3", 2011) with one counter per element, then Box-Muller.
#include <array>
#include <cmath>

#include "schedulers/noise_sources.hpp"

namespace rocm_sd {
namespace {

using Counter = std::array<uint32_t, 4>;

Counter philox(Counter c, uint64_t seed) {
  constexpr uint64_t kMultiply0 = 0xD2511F53, kMultiply1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  uint32_t key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = kMultiply0 * c[0], p1 = kMultiply1 * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ key0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ key1, static_cast<uint32_t>(p0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return c;
}

// Element i of call k takes the first normal of counter (k, 0, i, 0), as a CUDA kernel does while it has a
// thread per element (up to some 200,000 elements; a whole latent has 65,536 at 1024 x 1024). The arithmetic
// is that of A1111's implementation, in double from factors rounded to float: its users' seeds are the
// standard.
class PhiloxNoise final : public NoiseSource {
 public:
  explicit PhiloxNoise(uint64_t seed) : seed_(seed) {}

  void fill(std::span<float> out) override {
    constexpr double kScale = 2.3283064e-10f;  // 2^-32
    constexpr double kScaleHalf = 2.3283064e-10f / 2.0f;
    constexpr double kAngle = static_cast<float>(2.3283064e-10 * 6.2831855);  // 2 pi * 2^-32
    constexpr double kAngleHalf = static_cast<float>(2.3283064e-10 * 6.2831855) / 2.0f;
    for (size_t i = 0; i < out.size(); ++i) {
      const Counter bits = philox({call_, 0, static_cast<uint32_t>(i), 0}, seed_);
      const double u = bits[0] * kScale + kScaleHalf;
      const double v = bits[1] * kAngle + kAngleHalf;
      out[i] = static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::sin(v));
    }
    ++call_;
  }

 private:
  uint64_t seed_;
  uint32_t call_ = 0;
};

}  // namespace

std::unique_ptr<NoiseSource> make_philox_noise(uint64_t seed) { return std::make_unique<PhiloxNoise>(seed); }

}  // namespace rocm_sd
