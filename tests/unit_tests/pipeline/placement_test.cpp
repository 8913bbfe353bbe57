// Parts of a pipeline on devices of their own: the demo model draws the same image wherever they are, and
// each device has its share of the plan. A guarded device ends the test where one device's memory is taken
// for another's.
#include "pipeline/placement.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>

#include "pipeline/load.hpp"
#include "runtime/devices.hpp"
#include "support/guarded_device.hpp"
#include "support/random_control.hpp"
#include "support/random_ip_adapter.hpp"

namespace rocm_sd {
namespace {

using testing::HasSubstr;
using testing_support::GuardedDevice;

const std::string kModel = std::string(ROCM_SD_SOURCE_DIR) + "/models/demo";
const std::string kExamples = std::string(ROCM_SD_SOURCE_DIR) + "/models/demo_examples";

LoadOptions placed(const std::string& place) {
  return {.model = kModel, .device = "cuda:7", .place = place, .dtype = "f32"};  // a name alone: see below
}

GenerateRequest small_request() {
  GenerateRequest request;
  request.prompt = "a (red:1.3) apple";
  request.negative_prompt = "a car";
  request.width = request.height = 64;
  request.steps = 2;
  request.seed = 3;
  return request;
}

Image picture(int side) {
  Image image{side, side, std::vector<uint8_t>(static_cast<size_t>(3 * side * side)), {}};
  for (size_t i = 0; i < image.rgb.size(); ++i) image.rgb[i] = static_cast<uint8_t>(i * 31 % 251);
  return image;
}

class Placed : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("rocm_sd_place_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
};

TEST_F(Placed, PartsDrawTheSameImageWhereverTheyAre) {
  std::vector<std::pair<std::string, GenerateRequest>> cases;
  const auto add = [&](const std::string& what, const std::function<void(GenerateRequest&)>& change) {
    cases.emplace_back(what, small_request());
    change(cases.back().second);
  };
  add("plain", [](GenerateRequest& r) { r.preview = {.mode = "vae", .interval = 1}; });
  add("inpainting a batch", [](GenerateRequest& r) {
    r.init_image = picture(64);
    r.mask = picture(64);
    r.batch = 2;
    r.vae_sample = "posterior";
  });
  add("an image for each of the batch", [](GenerateRequest& r) {
    r.init_images = {picture(64), picture(32)};
    r.batch = 2;
  });
  add("images as prompts, control", [&](GenerateRequest& r) {
    r.ip_adapters = {
        {.model = testing_support::write_random_ip_adapter(folder_, kModel, ImageProjectionKind::kResampler),
         .images = {picture(7)},
         .weight = 0.7}};
    r.controls = {{.model = testing_support::write_random_control(folder_ / "net.safetensors", kModel, 0.2f),
                   .image = picture(64)}};
  });
  add("merged LoRA", [](GenerateRequest& r) { r.loras = {{.file = kExamples + "/dusk_lora.safetensors"}}; });
  add("LoRA at run time", [](GenerateRequest& r) {
    r.loras = {{.file = kExamples + "/dusk_lora.safetensors", .weight = 0.6}};
    r.lora_mode = "runtime";
  });
  add("two passes", [](GenerateRequest& r) { r.hires.scale = 1.5, r.hires.steps = 1; });
  Pipeline plain = load_pipeline({.model = kModel, .dtype = "f32"}, host_device());
  std::vector<std::vector<Picture>> want;
  for (const auto& [what, request] : cases) want.push_back(plain.generate(request).pictures);
  for (const char* place : {"text=cpu", "unet=cpu", "vae=cpu,image=cpu", "text=cpu,unet=cpu"})
    for (const bool offload : {false, true}) {
      GuardedDevice device;
      {
        LoadOptions options = placed(place);
        options.offload = offload;
        Pipeline pipeline = load_pipeline(options, device);
        for (size_t c = 0; c < cases.size(); ++c) {
          int previews = 0;
          Callbacks callbacks;
          callbacks.preview = [&](const Preview&) { ++previews; };
          const std::vector<Picture> got = pipeline.generate(cases[c].second, callbacks).pictures;
          ASSERT_EQ(got.size(), want[c].size());
          for (size_t i = 0; i < got.size(); ++i)
            EXPECT_EQ(got[i].image.rgb, want[c][i].image.rgb)
                << place << (offload ? ", offload: " : ": ") << cases[c].first;
          EXPECT_EQ(previews > 0, c == 0);
        }
      }
      EXPECT_EQ(device.allocated(), 0u) << "memory is given back";
    }
}

TEST_F(Placed, EachDeviceHasItsShareOfThePlan) {
  GuardedDevice device;
  Pipeline plain = load_pipeline({.model = kModel, .dtype = "f32"}, host_device());
  Pipeline pipeline = load_pipeline(placed("text=cpu,image=cpu"), device);
  const MemoryPlan whole = plain.plan(small_request()), plan = pipeline.plan(small_request());
  ASSERT_EQ(whole.devices.size(), 1u);
  EXPECT_EQ(whole.devices[0].total(), whole.total());
  EXPECT_EQ(whole.devices[0].parts, "text, image, unet, vae");
  ASSERT_EQ(plan.devices.size(), 2u);
  EXPECT_EQ(plan.devices[0].device, "cuda:7");
  EXPECT_EQ(plan.devices[0].parts, "unet, vae");
  EXPECT_EQ(plan.devices[0].arena, std::max(plan.unet, plan.vae));
  EXPECT_EQ(plan.devices[1].device, "cpu");
  EXPECT_EQ(plan.devices[1].parts, "text, image");
  EXPECT_EQ(plan.devices[1].arena, plan.text);
  EXPECT_EQ(plan.devices[0].weights + plan.devices[1].weights, whole.weights);
  EXPECT_EQ(plan.total(), plan.devices[0].total() + plan.devices[1].total());
  const GenerateResult result = pipeline.generate(small_request());
  EXPECT_LE(device.peak(), plan.devices[0].total() * 101 / 100);
  EXPECT_GE(device.peak(), plan.devices[0].total() / 2);
}

// The budget is the VAE's device's: neither weights nor the other parts' memory are saved for it.
TEST_F(Placed, TheBudgetCountsForEachDevice) {
  GuardedDevice device, small;
  LoadOptions options = placed("text=cpu,unet=cpu,image=cpu");
  GenerateRequest request = small_request();
  request.width = request.height = 256;
  const MemoryPlan whole = load_pipeline(options, device).plan(request);
  ASSERT_EQ(whole.devices.at(1).parts, "vae");
  options.vram_budget = whole.devices[1].total() - whole.vae / 4;
  Pipeline pipeline = load_pipeline(options, device);
  const MemoryPlan plan = pipeline.plan(request);
  EXPECT_LE(plan.devices[1].total(), options.vram_budget);
  EXPECT_GT(plan.devices[0].total(), options.vram_budget) << "of the CPU beside it nothing is asked";
  EXPECT_GT(plan.vae_bands, 1);
  EXPECT_FALSE(plan.offload);
  options.vram_budget = whole.devices[1].weights / 2;
  try {
    load_pipeline(options, device).plan(request);
    ADD_FAILURE();
  } catch (const OutOfMemoryError& e) {
    EXPECT_THAT(e.what(), HasSubstr("cuda:7 has "));
  }
}

std::string refusal(const std::string& place) {
  try {
    Pipeline::load({.model = kModel, .place = place, .dtype = "f32"});
  } catch (const Error& e) {
    return e.what();
  }
  return "no refusal";
}

TEST_F(Placed, RefusesWhatIsNoPlacement) {
  EXPECT_THAT(refusal("decoder=cpu"), HasSubstr("no part \"decoder\": expected text, image, unet or vae"));
  EXPECT_THAT(refusal("control=cpu"), HasSubstr("ControlNets are on the UNet's device"));
  EXPECT_THAT(refusal("text=cpu,vae=cpu,text=cpu"), HasSubstr("text is named twice"));
  for (const char* form : {"text", "text=", "=cpu", "text=cpu,", ",text=cpu"})
    EXPECT_THAT(refusal(form), HasSubstr("expected PART=DEVICE with commas between them")) << form;
  EXPECT_THAT(refusal("vae=tpu:0"), HasSubstr("place: vae: "));
  EXPECT_THAT(refusal("vae=emu:gfx9"), HasSubstr("place: vae: "));
}

TEST_F(Placed, PartsOnOneDeviceAreAPlainPipeline) {
  const GenerateRequest request = small_request();
  const Image want =
      Pipeline::load({.model = kModel, .device = "cpu"}).generate(request).pictures.at(0).image;
  Pipeline pipeline =
      Pipeline::load({.model = kModel, .device = "cpu", .place = "text=cpu,unet=cpu,vae=cpu"});
  EXPECT_EQ(pipeline.generate(request).pictures.at(0).image.rgb, want.rgb);
  EXPECT_EQ(pipeline.plan(request).devices.size(), 1u);
}

// The emulated card computes in its own type: 16 bits beside the CPU's.
TEST_F(Placed, AUNetOnAnEmulatedCard) {
  const std::vector<DeviceListing> all = list_devices();
  const bool there =
      std::ranges::any_of(all, [](const DeviceListing& d) { return d.name == "emu:gfx1100" && d.usable; });
  if (!there) GTEST_SKIP() << "no kernels were built for it";
  GenerateRequest request = small_request();
  request.width = request.height = 32;
  request.steps = 1;
  const Image want = Pipeline::load({.model = kModel, .device = "cpu", .dtype = "f32"})
                         .generate(request)
                         .pictures.at(0)
                         .image;
  Pipeline pipeline =
      Pipeline::load({.model = kModel, .device = "cpu", .place = "text=cpu,unet=emu:gfx1100,vae=cpu"});
  const GenerateResult result = pipeline.generate(request);
  EXPECT_EQ(result.plan.devices.at(0).device, "emu:gfx1100");
  EXPECT_EQ(result.plan.devices.at(0).parts, "unet");
  double squares = 0;
  const auto& got = result.pictures.at(0).image.rgb;
  ASSERT_EQ(got.size(), want.rgb.size());
  for (size_t i = 0; i < got.size(); ++i) squares += std::pow(int{got[i]} - int{want.rgb[i]}, 2);
  const double psnr =
      10 * std::log10(255.0 * 255.0 * static_cast<double>(got.size()) / std::max(squares, 1.0));
  EXPECT_GE(psnr, 40) << "bf16's gate (docs/architecture.md, Numerics)";
}

}  // namespace
}  // namespace rocm_sd
