// The whole pipeline on a device whose memory the host cannot reach but in launches and copies: the demo
// model draws the same picture as on the plain host.
#include <gtest/gtest.h>

#include <functional>

#include "pipeline/load.hpp"
#include "runtime/tensor.hpp"
#include "support/guarded_device.hpp"

namespace rocm_sd {
namespace {

using testing_support::GuardedDevice;

const LoadOptions kDemo = {.model = std::string(ROCM_SD_SOURCE_DIR) + "/models/demo", .dtype = "f32"};

GenerateRequest small_request() {
  GenerateRequest request;
  request.prompt = "a red apple";
  request.negative_prompt = "a car";
  request.width = request.height = 64;
  request.steps = 2;
  request.seed = 3;
  return request;
}

TEST(GuardedPipeline, DrawsTheSamePicture) {
  GuardedDevice device;
  {
    Pipeline guarded = load_pipeline(kDemo, device);
    Pipeline plain = load_pipeline(kDemo, host_device());
    for (const char* sampler : {"DPM++ 2M", "Euler a", "DPM++ SDE"}) {
      GenerateRequest request = small_request();
      request.sampler = sampler;
      const GenerateResult got = guarded.generate(request), want = plain.generate(request);
      EXPECT_EQ(got.pictures[0].image.rgb, want.pictures[0].image.rgb) << sampler;
      EXPECT_EQ(got.pictures[0].parameters.substr(0, 60), want.pictures[0].parameters.substr(0, 60));
      EXPECT_GT(got.device_peak, 0u);
    }
  }
  EXPECT_EQ(device.allocated(), 0u) << "memory is given back";
}

TEST(GuardedPipeline, ImagesMasksAndBatches) {
  GuardedDevice device;
  Pipeline guarded = load_pipeline(kDemo, device);
  Pipeline plain = load_pipeline(kDemo, host_device());
  GenerateRequest request = small_request();
  request.batch = 2;
  request.guidance_rescale = 0.5;
  Image init{64, 64, std::vector<uint8_t>(64 * 64 * 3), {}}, mask = init;
  for (size_t i = 0; i < init.rgb.size(); ++i) {
    init.rgb[i] = static_cast<uint8_t>(i * 7);
    mask.rgb[i] = i % (64 * 3) < 96 ? 255 : 0;
  }
  request.init_image = init;
  request.mask = mask;
  const GenerateResult got = guarded.generate(request), want = plain.generate(request);
  ASSERT_EQ(got.pictures.size(), 2u);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(got.pictures[i].image.rgb, want.pictures[i].image.rgb);
}

// The worst difference of two pictures, in 8-bit steps.
int worst_difference(const Image& a, const Image& b) {
  EXPECT_EQ(a.rgb.size(), b.rgb.size());
  int worst = 0;
  for (size_t i = 0; i < a.rgb.size(); ++i) worst = std::max(worst, std::abs(a.rgb[i] - b.rgb[i]));
  return worst;
}

TEST(GuardedPipeline, OffloadDrawsTheSamePictureWithLessMemory) {
  GuardedDevice whole_device, device;
  Pipeline whole = load_pipeline(kDemo, whole_device);
  LoadOptions options = kDemo;
  options.offload = true;
  Pipeline offloaded = load_pipeline(options, device);
  EXPECT_EQ(device.allocated(), 0u) << "weights wait in host memory";
  GenerateRequest request = small_request();
  const MemoryPlan plan = offloaded.plan(request), whole_plan = whole.plan(request);
  EXPECT_TRUE(plan.offload);
  EXPECT_LT(plan.weights, whole_plan.weights);
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(offloaded.generate(request).pictures[0].image.rgb,
              whole.generate(request).pictures[0].image.rgb);
    request.init_image = Image{64, 64, std::vector<uint8_t>(64 * 64 * 3, 77), {}};  // brings the encoder in
  }
}

// Offloaded encoders come back for another text alone, and whatever a text's states depend on makes another.
TEST(GuardedPipeline, OffloadedEncodersStayAwayFromTheSameText) {
  GuardedDevice device;
  LoadOptions options = kDemo;
  options.offload = true;
  Pipeline offloaded = load_pipeline(options, device);
  Pipeline plain = load_pipeline(kDemo, host_device());
  const auto uploaded_for = [&](const GenerateRequest& request, const std::string& what) {
    const uint64_t before = device.uploaded();
    EXPECT_EQ(offloaded.generate(request).pictures[0].image.rgb,
              plain.generate(request).pictures[0].image.rgb)
        << what;
    return device.uploaded() - before;
  };
  GenerateRequest request = small_request();
  request.steps = 1;
  uploaded_for(request, "the first one");
  request.seed = 4;
  const uint64_t same = uploaded_for(request, "another seed");
  using Change = std::function<void(GenerateRequest&)>;
  const std::pair<const char*, Change> changes[] = {
      {"prompt", [](GenerateRequest& r) { r.prompt = "a red apples"; }},
      {"weight", [](GenerateRequest& r) { r.prompt = "a (red:1.3) apples"; }},
      {"emphasis", [](GenerateRequest& r) { r.emphasis = "no norm"; }},
      {"negative", [](GenerateRequest& r) { r.negative_prompt = "a cart"; }},
      {"none", [](GenerateRequest& r) { r.negative_prompt = ""; }},
      {"layers", [](GenerateRequest& r) { r.clip_skip = 2; }},
      {"chunks", [](GenerateRequest& r) { r.prompt += " BREAK on a table"; }},
      {"guidance", [](GenerateRequest& r) { r.cfg_scale = 1; }},
  };
  uint64_t text = 0;  // bytes of the encoders, at least
  for (const auto& [what, change] : changes) {
    change(request);
    const uint64_t other = uploaded_for(request, what);
    if (text == 0) text = other - same;
    EXPECT_GE(other, text) << what;
    EXPECT_LT(uploaded_for(request, what), other - text / 2) << what << ", again";
  }
  EXPECT_GT(text, 100'000u);
}

TEST(GuardedPipeline, ABudgetIsKeptByBandsThenByOffload) {
  GuardedDevice device;
  GenerateRequest request = small_request();
  request.width = request.height = 256;  // the VAE takes most of the arena
  request.steps = 1;
  Pipeline plain = load_pipeline(kDemo, device);
  const MemoryPlan free_plan = plain.plan(request);
  ASSERT_GT(free_plan.vae, free_plan.unet);
  const Image want = plain.generate(request).pictures[0].image;

  LoadOptions options = kDemo;
  // Bands save half of the difference at most. The finest level's widest map stays whole, with the moments of
  // its norm: 0.2 MB in 32 bands, whose short runs keep a GPU busy (moment_rows()). The CPU's convolutions of
  // bands have 1.8 MB of weights in layouts of their own.
  options.vram_budget = free_plan.total() - (free_plan.vae - free_plan.unet) * 2 / 5;
  Pipeline banded = load_pipeline(options, device);
  const MemoryPlan banded_plan = banded.plan(request);
  EXPECT_GT(banded_plan.vae_bands, 1);
  EXPECT_FALSE(banded_plan.offload);
  EXPECT_LE(banded_plan.total(), options.vram_budget);
  EXPECT_LE(worst_difference(banded.generate(request).pictures[0].image, want), 1);

  options.vram_budget = banded_plan.total() - banded_plan.weights / 10;
  Pipeline offloaded = load_pipeline(options, device);
  const MemoryPlan tight = offloaded.plan(request);
  EXPECT_LE(tight.total(), options.vram_budget);
  EXPECT_TRUE(tight.offload || tight.vae_bands > banded_plan.vae_bands);
  EXPECT_LE(worst_difference(offloaded.generate(request).pictures[0].image, want), 1);

  options.vram_budget = 1'000'000;
  Pipeline hopeless = load_pipeline(options, device);
  EXPECT_THROW(hopeless.generate(request), OutOfMemoryError);
  EXPECT_THROW(hopeless.plan(request), OutOfMemoryError);
}

TEST(GuardedPipeline, RunningOutOfMemorySavesAndGoesOn) {
  uint64_t peak = 0;
  GenerateRequest request = small_request();
  request.width = request.height = 192;
  request.steps = 1;
  Image want;
  {
    GuardedDevice device;
    Pipeline pipeline = load_pipeline(kDemo, device);
    want = pipeline.generate(request).pictures[0].image;
    peak = device.peak();
    // Any allocation may fail: the attempt after it gives the picture.
    for (const int number : {1, 5, 17, 40}) {
      device.fail_allocation(number);
      EXPECT_LE(worst_difference(pipeline.generate(request).pictures[0].image, want), 1) << number;
      device.fail_allocation(0);
    }
  }
  GuardedDevice small(peak - peak / 20);  // a card that is a little too small
  Pipeline pipeline = load_pipeline(kDemo, small);
  EXPECT_LE(worst_difference(pipeline.generate(request).pictures[0].image, want), 1);
  small.set_capacity(small.allocated() / 2);  // somebody else took the rest: nothing helps
  EXPECT_THROW(pipeline.generate(request), OutOfMemoryError);
  small.set_capacity(peak);
  EXPECT_LE(worst_difference(pipeline.generate(request).pictures[0].image, want), 1) << "usable afterwards";
}

TEST(GuardedPipeline, WeightsThatDoNotFitAreOffloaded) {
  GuardedDevice large;
  uint64_t weights = 0;
  GenerateRequest request = small_request();
  Image want;
  {
    Pipeline pipeline = load_pipeline(kDemo, large);
    weights = large.allocated();
    want = pipeline.generate(request).pictures[0].image;
  }
  GuardedDevice small(weights - weights / 10);
  Pipeline pipeline = load_pipeline(kDemo, small);
  EXPECT_TRUE(pipeline.plan(request).offload);
  EXPECT_EQ(worst_difference(pipeline.generate(request).pictures[0].image, want), 0);
}

TEST(GuardedDeviceDeathTest, AReadOutsideALaunchIsSeen) {
  GuardedDevice device;
  const float value = 1;
  const Tensor x = tensor_from(device, {1}, &value);
  EXPECT_EQ(to_floats(device, x), std::vector<float>{1});
  EXPECT_DEATH(static_cast<void>(*static_cast<volatile float*>(x.data())), "");
}

}  // namespace
}  // namespace rocm_sd
