// IP-Adapters on the GPU against the CPU: a plain and a Plus one at once, masks, several images, weights that
// change between requests without a new capture, steps in which one alone acts.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "gpu_tests/gpu_test.hpp"
#include "pipeline/load.hpp"
#include "support/random_ip_adapter.hpp"

namespace rocm_sd {
namespace {

const std::string kModel = std::string(ROCM_SD_SOURCE_DIR) + "/models/demo";

double psnr(const Image& a, const Image& b) {
  EXPECT_EQ(a.rgb.size(), b.rgb.size());
  double squares = 0;
  for (size_t i = 0; i < a.rgb.size(); ++i) squares += std::pow(double{1} * a.rgb[i] - b.rgb[i], 2);
  return squares == 0 ? 100 : 10 * std::log10(255.0 * 255.0 * static_cast<double>(a.rgb.size()) / squares);
}

Image pattern(int width, int height, size_t step) {
  Image out{width, height, std::vector<uint8_t>(static_cast<size_t>(3 * width * height)), {}};
  for (size_t i = 0; i < out.rgb.size(); ++i) out.rgb[i] = static_cast<uint8_t>((i * step) % 251);
  return out;
}

Image half_mask(bool left) {
  Image out{64, 64, std::vector<uint8_t>(3 * 64 * 64), {}};
  for (size_t i = 0; i < out.rgb.size(); ++i) out.rgb[i] = (i / 3 % 64 < 32) == left ? 255 : 0;
  return out;
}

TEST(GpuIpAdapters, DrawWhatTheCpuDraws) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("rocm_sd_gpu_ip_" + std::to_string(::getpid()));
  const std::string plain_file = testing_support::write_random_ip_adapter(folder / "plain", kModel,
                                                                          ImageProjectionKind::kLinear),
                    plus_file = testing_support::write_random_ip_adapter(folder / "plus", kModel,
                                                                         ImageProjectionKind::kResampler);
  GenerateRequest request;
  request.prompt = "a red apple";
  request.negative_prompt = "a car";
  request.width = request.height = 64;
  request.steps = 2;
  request.seed = 3;
  request.sampler = "Euler";
  Pipeline cpu = load_pipeline({.model = kModel, .dtype = "f32"}, host_device());
  const Image plain = cpu.generate(request).pictures[0].image;
  for (const auto& [dtype, floor] : {std::pair{"f32", 50.0}, {"f16", 35.0}, {"bf16", 25.0}}) {
    if (test_gpu_is_emulated() && dtype != std::string("f16")) continue;  // a minute each
    Pipeline gpu = load_pipeline({.model = kModel, .dtype = dtype}, test_gpu());
    for (const double weight : {0.8, 0.3}) {
      request.ip_adapters = {{.model = plain_file, .images = {pattern(50, 33, 31)}, .weight = weight},
                             {.model = plus_file,
                              .images = {pattern(40, 40, 7), pattern(33, 61, 13)},
                              .masks = {half_mask(true), half_mask(false)},
                              .weight = 0.5,
                              .end = 0.5}};
      const Image want = cpu.generate(request).pictures[0].image,
                  got = gpu.generate(request).pictures[0].image;
      EXPECT_GE(psnr(got, want), floor) << dtype << " weight " << weight;
      EXPECT_LT(psnr(want, plain), 30) << "the adapters change too little to prove anything";
    }
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace rocm_sd
