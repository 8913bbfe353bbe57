// PyTorch's CPU generator: mt19937 and torch.randn, bit for bit.
#include <cmath>
#include <numbers>
#include <random>

#include "runtime/device.hpp"
#include "schedulers/noise_sources.hpp"
#include "schedulers/normal_isa.hpp"

namespace rocm_sd {
namespace {

constexpr size_t kBlock = 16;

void box_muller(float* values, int64_t blocks) {
#if defined(__x86_64__)
  switch (host_isa()) {
    case HostIsa::kV4: return isa_v4::box_muller_blocks(values, blocks);
    case HostIsa::kV3: return isa_v3::box_muller_blocks(values, blocks);
    case HostIsa::kBaseline: break;
  }
#endif
  isa_baseline::box_muller_blocks(values, blocks);
}

class TorchCpuNoise final : public NoiseSource {
 public:
  explicit TorchCpuNoise(uint64_t seed) : engine_(static_cast<uint32_t>(seed)) {}

  void fill(std::span<float> out) override {
    if (out.size() < kBlock) {
      for (float& value : out) value = static_cast<float>(next_double());
      return;
    }
    for (float& value : out) value = uniform();
    box_muller(out.data(), static_cast<int64_t>(out.size() / kBlock));
    if (out.size() % kBlock == 0) return;
    // The last sixteen are drawn anew, over values that may be done already.
    const std::span<float> tail = out.last(kBlock);
    for (float& value : tail) value = uniform();
    box_muller(tail.data(), 1);
  }

 private:
  float uniform() { return static_cast<float>(engine_() & 0xffffffu) * 0x1p-24f; }
  double uniform_double() {
    const uint64_t high = engine_();
    const uint64_t low = engine_();
    return static_cast<double>(((high << 32) | low) & ((uint64_t{1} << 53) - 1)) * 0x1p-53;
  }
  // Fewer than sixteen values come one by one, in double, and the second of a pair waits for the next call,
  // even past calls for more values.
  double next_double() {
    if (has_spare_) {
      has_spare_ = false;
      return spare_;
    }
    const double u1 = uniform_double();
    const double u2 = uniform_double();
    const double radius = std::sqrt(-2.0 * std::log1p(-u2));
    const double theta = 2.0 * std::numbers::pi * u1;
    spare_ = radius * std::sin(theta);
    has_spare_ = true;
    return radius * std::cos(theta);
  }

  std::mt19937 engine_;
  double spare_ = 0;
  bool has_spare_ = false;
};

}  // namespace

std::unique_ptr<NoiseSource> make_torch_cpu_noise(uint64_t seed) {
  return std::make_unique<TorchCpuNoise>(seed);
}

}  // namespace rocm_sd
