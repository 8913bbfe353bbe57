// ControlNets in the pipeline: on a device whose memory the host cannot reach, under offload and budgets,
// coming and going; the memory plan.
#include <gmock/gmock.h>

#include <filesystem>

#include "pipeline/control_image.hpp"
#include "pipeline/control_stage.hpp"
#include "pipeline/load.hpp"
#include "support/control_pictures.hpp"
#include "support/guarded_device.hpp"

namespace rocm_sd {
namespace {

using testing_support::GuardedDevice;

using testing_support::kDemo;
using testing_support::kModel;

class Controls : public testing_support::ControlPictures {};

TEST_F(Controls, DrawTheSamePictureWhereverTheMemoryIs) {
  const std::string net = write("a", 0.2f);
  GenerateRequest request = this->request();
  request.batch = 2;
  request.controls = {{.model = net, .image = picture(64, 64), .strength = 0.8, .end = 0.5},
                      {.model = net, .image = picture(80, 40), .start = 0.3, .mode = "guess"}};
  Pipeline plain = load_pipeline(kDemo, host_device());
  const std::vector<uint8_t> want = draw(plain, request);
  GuardedDevice device;
  {
    Pipeline guarded = load_pipeline(kDemo, device);
    EXPECT_EQ(draw(guarded, request), want);
    request.controls[0].strength = 0.1;  // the captured programs see it
    const std::vector<uint8_t> other = draw(guarded, request);
    EXPECT_NE(other, want);
    EXPECT_EQ(other, draw(plain, request));
    LoadOptions options = kDemo;
    options.offload = true;
    Pipeline offloaded = load_pipeline(options, device);
    EXPECT_EQ(draw(offloaded, request), other);
    EXPECT_EQ(draw(offloaded, request), other);
  }
  EXPECT_EQ(device.allocated(), 0u);
}

TEST_F(Controls, MasksAndPicturesOfABatchAreMadeOnTheDevice) {
  const std::string net = write("a", 0.2f);
  GenerateRequest request = this->request();
  request.batch = 2;
  request.controls = {{.model = net, .images = {picture(64, 64), picture(40, 64)}, .mask = picture(64, 64)}};
  Pipeline plain = load_pipeline(kDemo, host_device());
  const std::vector<uint8_t> want = draw(plain, request);
  GuardedDevice device;
  {
    Pipeline guarded = load_pipeline(kDemo, device);
    EXPECT_EQ(draw(guarded, request), want);
    request.controls[0].mask = Image{1, 1, {0, 0, 0}, {}};  // nowhere; the captured programs see it
    const std::vector<uint8_t> nowhere = draw(guarded, request);
    request.controls.clear();
    EXPECT_EQ(nowhere, draw(guarded, request));
    EXPECT_NE(nowhere, want);
  }
  EXPECT_EQ(device.allocated(), 0u);
}

TEST_F(Controls, ComeAndGo) {
  const std::string first = write("a", 0.2f), second = write("b", 0.3f);
  GuardedDevice device;
  Pipeline pipeline = load_pipeline(kDemo, device);
  const GenerateRequest without = request();
  GenerateRequest with_first = without, with_second = without;
  with_first.controls = {{.model = first, .image = picture(64, 64)}};
  with_second.controls = {{.model = second, .image = picture(64, 64)}};
  const std::vector<uint8_t> plain = draw(pipeline, without), a = draw(pipeline, with_first);
  const uint64_t with_one = device.allocated();
  const std::vector<uint8_t> b = draw(pipeline, with_second);
  EXPECT_EQ(device.allocated(), with_one) << "the first one's weights are given back";
  EXPECT_NE(a, plain);
  EXPECT_NE(a, b);
  EXPECT_EQ(draw(pipeline, without), plain);
  EXPECT_EQ(draw(pipeline, with_first), a);
  with_first.controls[0].end = 1e-9;  // in no step
  EXPECT_EQ(draw(pipeline, with_first), plain);
  // A file that is written anew is read anew.
  write("a", 0.3f);
  with_first.controls[0].end = 1;
  EXPECT_EQ(draw(pipeline, with_first), b);
}

TEST_F(Controls, AreCountedByThePlan) {
  const std::string net = write("a", 0.2f);
  for (const char* dtype : {"f32", "bf16"}) {
    LoadOptions options = kDemo;
    options.dtype = dtype;
    GuardedDevice device;
    const bool guarded = options.dtype == "f32";
    Pipeline pipeline = load_pipeline(options, guarded ? static_cast<Device&>(device) : host_device());
    GenerateRequest request = this->request();
    request.width = request.height = 128;
    const MemoryPlan plain = pipeline.plan(request);
    request.controls = {{.model = net, .image = picture(64, 64)}};
    const MemoryPlan plan = pipeline.plan(request);
    const uint64_t file = std::filesystem::file_size(net);
    const uint64_t least = dtype == std::string("f32") ? file / 10 * 9 : file / 10 * 4;
    EXPECT_GT(plan.weights, plain.weights + least) << dtype;
    EXPECT_GT(plan.buffers, plain.buffers);
    EXPECT_GT(plan.unet, plain.unet);
    const GenerateResult made = pipeline.generate(request);
    EXPECT_LE(made.arena_used, plan.arena) << dtype;
    EXPECT_LE(static_cast<double>(made.device_peak), 1.03 * static_cast<double>(plan.total())) << dtype;
  }
}

TEST_F(Controls, ThatNobodyAsksForGoWhenMemoryIsShort) {
  const std::string net = write("a", 0.2f);
  GuardedDevice device;
  GenerateRequest with = request();
  with.controls = {{.model = net, .image = picture(64, 64)}};
  uint64_t budget = 0;
  {
    Pipeline free = load_pipeline(kDemo, device);
    budget = free.plan(request()).total();
  }
  Pipeline roomy = load_pipeline(kDemo, device);
  const std::vector<uint8_t> plain = draw(roomy, request()), want = draw(roomy, with);
  LoadOptions options = kDemo;
  options.vram_budget = budget + budget / 50;
  Pipeline tight = load_pipeline(options, device);
  EXPECT_EQ(draw(tight, request()), plain);
  EXPECT_EQ(draw(tight, with), want) << "with weights in host memory";
  EXPECT_EQ(draw(tight, request()), plain);
  for (const int number : {1, 9, 40, 90}) {
    Pipeline pipeline = load_pipeline(kDemo, device);
    device.fail_allocation(number);
    EXPECT_EQ(draw(pipeline, with), want) << number;
    device.fail_allocation(0);
  }
}

TEST(ControlSettings, ActInDiffusersSteps) {
  const ControlSetting middle{.strength = 1, .start = 0.2, .end = 0.6};
  std::vector<int> acts;
  for (int i = 0; i < 10; ++i)
    if (middle.acts(i, 10)) acts.push_back(i);
  EXPECT_EQ(acts, (std::vector<int>{2, 3, 4, 5}));
  EXPECT_FALSE((ControlSetting{.strength = 0}).acts(0, 10));
  EXPECT_TRUE((ControlSetting{.strength = -1}).acts(9, 10));
}

TEST(ControlPictures, ShapesOfOnePixelAndOddOnes) {
  for (const auto& [width, height] : {std::pair{1, 1}, {1, 9}, {9, 1}, {33, 7}}) {
    Image image{width, height, std::vector<uint8_t>(static_cast<size_t>(3 * width * height), 90), {}};
    for (const ControlResize how : {ControlResize::kStretch, ControlResize::kCrop, ControlResize::kFill}) {
      const Image sized = resize_control(image, how, 24, 16);
      EXPECT_EQ(sized.rgb, std::vector<uint8_t>(3 * 24 * 16, 90)) << width << 'x' << height;
      for (const char* name : {"canny", "invert", "grey", "tile:64", "none"})
        EXPECT_EQ(preprocess_control(sized, parse_control_preprocess(name)).rgb.size(), sized.rgb.size())
            << name;
    }
    EXPECT_EQ(canny(image, 0, 0).rgb, std::vector<uint8_t>(image.rgb.size(), 0))
        << "a flat picture has no edges";
  }
}

}  // namespace
}  // namespace rocm_sd
