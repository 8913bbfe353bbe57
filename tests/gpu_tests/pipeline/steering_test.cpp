// What steers pictures beside ControlNets' files, on the GPU against the CPU: self-attention guidance,
// regions with prompts of their own, savings, seamless tiling, and ControlNet-LoRAs. FreeU's versions:
// gpu_tests/models/steering_test.cpp.
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

GenerateRequest small_request() {
  GenerateRequest request;
  request.prompt = "a red apple";
  request.negative_prompt = "a car";
  request.width = request.height = 64;
  request.steps = test_gpu_is_emulated() ? 1 : 3;
  request.seed = 3;
  request.sampler = "Euler";
  return request;
}

// Draws `request` on both, twice on the GPU: the second picture is a replay. f32 goes by rounding alone; in
// f16 single pixels of an attention map may fall on the other side of the mean.
void compare(const GenerateRequest& request, const char* what) {
  Pipeline cpu = load_pipeline({.model = kModel, .dtype = "f32"}, host_device());
  const Image want = cpu.generate(request).pictures[0].image;
  GenerateRequest plain = small_request();
  EXPECT_LT(psnr(cpu.generate(plain).pictures[0].image, want), 45) << what << " changes too little";
  for (const auto& [dtype, floor] : {std::pair{"f32", 50.0}, {"f16", 28.0}}) {
    if (test_gpu_is_emulated() && dtype != std::string("f16")) continue;
    Pipeline gpu = load_pipeline({.model = kModel, .dtype = dtype}, test_gpu());
    for (int replay = 0; replay < (test_gpu_is_emulated() ? 1 : 2); ++replay)
      EXPECT_GE(psnr(gpu.generate(request).pictures[0].image, want), floor) << what << " " << dtype;
  }
}

TEST(GpuSteering, SelfAttentionGuidance) {
  GenerateRequest request = small_request();
  request.sag_scale = test_gpu_is_emulated() ? 12 : 3;  // one step alone moves the picture by little
  compare(request, "self-attention guidance");
}

TEST(GpuSteering, Regions) {
  GenerateRequest request = small_request();
  request.regions = {{.prompt = "a green tree", .box = {0, 0, 0.4, 1}},
                     {.prompt = "a blue house", .box = {0.3, 0.2, 0.7, 0.5}}};
  request.region_base = 0.2;
  compare(request, "regions");
}

TEST(GpuSteering, SavingsOfLaterCalls) {
  GenerateRequest request = small_request();
  request.steps = test_gpu_is_emulated() ? 3 : 6;
  request.savings = {.deep_cache = 2, .deep_cache_branch = 1};
  compare(request, "DeepCache");
  request.savings = {.t_gate = 1};
  compare(request, "T-GATE");
  request.savings = {.deep_cache = 2, .t_gate = 1};
  request.batch = 2;
  compare(request, "both");
}

TEST(GpuSteering, TokenMerging) {
  GenerateRequest request = small_request();
  request.savings = {.token_merge = 0.5};
  compare(request, "token merging");
}

TEST(GpuSteering, StepsThatAreForetold) {
  if (test_gpu_is_emulated()) GTEST_SKIP() << "a dozen steps; what is foretold are linear combinations";
  GenerateRequest request = small_request();
  request.steps = 16;
  request.savings = {.sada = true};
  Pipeline cpu = load_pipeline({.model = kModel, .dtype = "f32"}, host_device()),
           gpu = load_pipeline({.model = kModel, .dtype = "f32"}, test_gpu());
  const GenerateResult want = cpu.generate(request), got = gpu.generate(request);
  EXPECT_EQ(got.savings, want.savings);  // the same steps
  EXPECT_GE(psnr(got.pictures[0].image, want.pictures[0].image), 50);
}

TEST(GpuSteering, Tiling) {
  GenerateRequest request = small_request();
  request.tiling_x = true;
  compare(request, "tiling along x");
  request.tiling_y = true;
  compare(request, "tiling");
}

TEST(GpuSteering, ControlNetLora) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() /
      ("rocm_sd_gpu_control_lora_" + std::to_string(::getpid()) + ".safetensors");
  GenerateRequest request = small_request();
  Image picture{64, 64, std::vector<uint8_t>(3 * 64 * 64), {}};
  for (size_t i = 0; i < picture.rgb.size(); ++i) picture.rgb[i] = static_cast<uint8_t>((i * 31) % 251);
  request.controls = {
      {.model = testing_support::write_random_control_lora(path, kModel, 0.2f), .image = picture}};
  compare(request, "ControlNet-LoRA");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace rocm_sd
