// Upscaling networks on the GPU against the host in f32: as published in width, few blocks.
#include "models/upscaler.hpp"

#include <gtest/gtest.h>

#include "gpu_tests/gpu_test.hpp"
#include "gpu_tests/models/run_forward.hpp"
#include "support/random_source.hpp"

namespace rocm_sd {
namespace {

using testing_support::random_tensor;
using testing_support::RandomSource;
using testing_support::run_on;
using testing_support::signal_to_noise;
using testing_support::Upload;

class UpscalersOnGpu : public testing::TestWithParam<DType> {
 protected:
  // f16 has 11 bits, bf16 8; the residual sums are in the same type.
  double least() const { return GetParam() == DType::kF32 ? 90 : GetParam() == DType::kF16 ? 45 : 28; }
  void check(const UpscalerConfig& config, int64_t height, int64_t width) {
    const RandomSource source;
    const Tensor x = random_tensor({1, height, width, config.in_channels()}, DType::kF32, 1);
    const auto run = [&](Device& device, DType dtype, bool prepared = false) {
      UpscalerNet net(config);
      net.load(device, source, dtype);
      if (prepared) net.prepare(device, height * width);
      return run_on(
          device, [&](Exec& ex, const Upload& upload) { return net(ex, upload(x, dtype)); },
          test_gpu_is_emulated() ? 1 : 3);
    };
    const std::vector<float> want = run(host_device(), DType::kF32);
    for (const bool prepared : {false, true}) {
      if (prepared && config.kind != UpscalerKind::kRrdb) break;
      EXPECT_GE(signal_to_noise(run(test_gpu(), GetParam(), prepared), want), least())
          << config.name() << " " << height << "x" << width << (prepared ? " prepared" : "");
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Types, UpscalersOnGpu, testing::Values(DType::kF16, DType::kBF16, DType::kF32),
                         [](const auto& info) { return concat(info.param); });

TEST_P(UpscalersOnGpu, RrdbNets) {
  check({.blocks = 1}, 6, 9);
  check({.unshuffle = 2, .blocks = 1}, 5, 5);
  check({.features = 20, .growth = 12, .blocks = 2, .doublings = 1}, 7, 3);
  check({.features = 24, .growth = 8, .blocks = 2, .doublings = 0}, 9, 5);
}

TEST_P(UpscalersOnGpu, CompactNets) {
  check({.kind = UpscalerKind::kCompact, .blocks = 3, .doublings = 0, .shuffle = 4}, 11, 8);
  check({.kind = UpscalerKind::kCompact, .features = 24, .blocks = 2, .doublings = 0, .shuffle = 2}, 1, 13);
}

TEST_P(UpscalersOnGpu, SpanNets) {
  check({.kind = UpscalerKind::kSpan,
         .features = 48,
         .blocks = 6,
         .doublings = 0,
         .shuffle = 4,
         .normalised = true},
        9, 14);
  check({.kind = UpscalerKind::kSpan, .features = 20, .blocks = 2, .doublings = 0, .shuffle = 1}, 1, 13);
}

// Heads of 30 channels as published, of 10 as in the light network, and of 44, which no kernel has to widen.
TEST_P(UpscalersOnGpu, SwinIrs) {
  const auto config = [](int64_t width, SwinConfig swin, int64_t doublings, int64_t shuffle = 1) {
    return UpscalerConfig{.kind = UpscalerKind::kSwin,
                          .features = width,
                          .doublings = doublings,
                          .shuffle = shuffle,
                          .swin = std::move(swin)};
  };
  check(config(180, {.depths = {2}, .heads = 6, .hidden = 360, .upsampler = SwinUpsampler::kNearest}, 2), 16,
        8);
  check(config(60, {.depths = {2}, .heads = 6, .hidden = 120, .upsampler = SwinUpsampler::kDirectShuffle}, 0,
               3),
        8, 24);
  check(config(88, {.depths = {1, 2}, .heads = 2, .hidden = 176, .three_convs = true}, 1), 8, 16);
}

}  // namespace
}  // namespace rocm_sd
