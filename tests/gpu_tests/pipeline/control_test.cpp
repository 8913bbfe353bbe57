// ControlNets on the GPU against the CPU: one and two at once, guess mode, strengths that change between
// pictures without a new capture, steps in which none acts.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "gpu_tests/gpu_test.hpp"
#include "pipeline/load.hpp"
#include "support/random_control.hpp"

namespace rocm_sd {
namespace {

const std::string kModel = std::string(ROCM_SD_SOURCE_DIR) + "/models/demo";

double psnr(const Image& a, const Image& b) {
  EXPECT_EQ(a.rgb.size(), b.rgb.size());
  double squares = 0;
  for (size_t i = 0; i < a.rgb.size(); ++i) squares += std::pow(double{1} * a.rgb[i] - b.rgb[i], 2);
  return squares == 0 ? 100 : 10 * std::log10(255.0 * 255.0 * static_cast<double>(a.rgb.size()) / squares);
}

TEST(GpuControls, DrawWhatTheCpuDraws) {
  const std::filesystem::path path = std::filesystem::temp_directory_path() /
                                     ("rocm_sd_gpu_control_" + std::to_string(::getpid()) + ".safetensors");
  const std::string net = testing_support::write_random_control(path, kModel, 0.2f);
  Image picture{64, 64, std::vector<uint8_t>(3 * 64 * 64), {}};
  for (size_t i = 0; i < picture.rgb.size(); ++i) picture.rgb[i] = static_cast<uint8_t>((i * 31) % 251);
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
    for (const double strength : {0.8, 0.2}) {
      request.controls = {{.model = net, .image = picture, .strength = strength},
                          {.model = net, .image = picture, .strength = 0.5, .end = 0.5, .mode = "guess"}};
      const Image want = cpu.generate(request).pictures[0].image,
                  got = gpu.generate(request).pictures[0].image;
      EXPECT_GE(psnr(got, want), floor) << dtype << " strength " << strength;
      EXPECT_LT(psnr(want, plain), 30) << "the ControlNets change too little to prove anything";
    }
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace rocm_sd
