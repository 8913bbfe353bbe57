// Streamed weights: the same pictures to the bit as with all weights on the device, whatever is at work
// beside the UNet; on a device whose memory the host cannot reach, and which counts, within every budget.
#include <gmock/gmock.h>

#include <functional>

#include "support/control_pictures.hpp"
#include "support/guarded_device.hpp"
#include "support/random_sdxl.hpp"

namespace rocm_sd {
namespace {

using testing_support::GuardedDevice;
using testing_support::kDemo;
using testing_support::kModel;

// What the device's blocks are rounded up to, of some thousand weights.
constexpr uint64_t kRounding = 1 << 17;

class Streams : public testing_support::ControlPictures {
 protected:
  static LoadOptions streaming(uint64_t budget = 0) {
    LoadOptions options = kDemo;
    options.stream_weights = true;
    options.vram_budget = budget;
    return options;
  }
  // Draws twice: programs are captured, and captured anew after the VAE has had the device.
  static void compare(const LoadOptions& plain, const GenerateRequest& request, const std::string& what,
                      Device& device = host_device()) {
    LoadOptions options = plain;
    options.stream_weights = true;
    Pipeline whole = load_pipeline(plain, host_device()), streamed = load_pipeline(options, device);
    const GenerateResult want = whole.generate(request);
    for (int round = 0; round < 2; ++round) {
      const GenerateResult got = streamed.generate(request);
      ASSERT_EQ(got.pictures.size(), want.pictures.size()) << what;
      for (size_t i = 0; i < want.pictures.size(); ++i)
        EXPECT_EQ(got.pictures[i].image.rgb, want.pictures[i].image.rgb) << what << ", round " << round;
      EXPECT_GT(got.plan.stream_copied, 0u) << what;
    }
  }
};

TEST_F(Streams, DrawTheSamePicture) {
  GuardedDevice device;
  compare(kDemo, request(), "plain", device);
  EXPECT_EQ(device.allocated(), 0u) << "memory is given back";
  GenerateRequest several = request();
  several.batch = 2;
  several.init_image = picture(64, 64);
  compare(kDemo, several, "a batch from a picture");
  LoadOptions eight_bit = kDemo;
  eight_bit.weights = "int8";
  compare(eight_bit, request(), "weights in 8 bits");
  LoadOptions short_weights = kDemo;
  short_weights.dtype = "bf16";
  compare(short_weights, request(), "weights in 16 bits");
}

TEST_F(Streams, BesideWhatElseActs) {
  GenerateRequest savings = request();
  savings.steps = 6;
  savings.savings.deep_cache = 3;
  savings.savings.t_gate = 3;
  compare(kDemo, savings, "DeepCache and T-GATE, programs of their own");
  GenerateRequest controlled = request();
  controlled.controls = {{.model = write("a", 0.2f), .image = picture(64, 64), .end = 0.5},
                         {.model = write("b", 0.3f), .image = picture(80, 40), .start = 0.3}};
  compare(kDemo, controlled, "ControlNets, which stream too");
  GenerateRequest odd = request();
  odd.width = 72;
  odd.height = 88;
  compare(kDemo, odd, "odd maps");
}

// Merged into the weights, which are read anew, and as terms beside them.
TEST_F(Streams, WithLoras) {
  const std::string file = std::string(ROCM_SD_SOURCE_DIR) + "/models/demo_examples/dusk_lora.safetensors";
  Pipeline plain = load_pipeline(kDemo, host_device()), streamed = load_pipeline(streaming(), host_device());
  for (const bool runtime : {false, true}) {
    GenerateRequest request = this->request();
    request.lora_mode = runtime ? "runtime" : "merge";
    request.loras = {{.file = file, .weight = 0.7}};
    EXPECT_EQ(draw(streamed, request), draw(plain, request)) << runtime;
    request.loras[0].weight = 0.2;
    EXPECT_EQ(draw(streamed, request), draw(plain, request)) << runtime;
    request.loras.clear();
    EXPECT_EQ(draw(streamed, request), draw(plain, request)) << runtime << ", gone";
  }
}

TEST_F(Streams, KeepEveryBudgetByWhatStays) {
  const GenerateRequest request = this->request();
  Pipeline plain = load_pipeline(kDemo, host_device());
  const std::vector<uint8_t> want = draw(plain, request);
  GuardedDevice measured;
  const MemoryPlan least = load_pipeline(streaming(), measured).plan(request);
  ASSERT_GT(least.stream_copied, least.streamed / 2);
  uint64_t resident = 0;
  for (const double share : {0.02, 0.5, 0.9, 1.2}) {
    const uint64_t budget =
        least.total() + static_cast<uint64_t>(share * static_cast<double>(least.streamed));
    GuardedDevice device;
    Pipeline streamed = load_pipeline(streaming(budget), device);
    const GenerateResult got = streamed.generate(request);
    EXPECT_EQ(got.pictures[0].image.rgb, want) << share;
    EXPECT_LE(got.plan.total(), budget) << share;
    EXPECT_LE(device.peak(), budget + kRounding) << share;
    EXPECT_GE(got.plan.stream_resident, resident) << share;
    EXPECT_LE(got.plan.stream_resident + got.plan.stream_copied, got.plan.streamed) << share;
    resident = got.plan.stream_resident;
    if (got.plan.stream_copied > 0) {
      EXPECT_GT(got.plan.total(), budget - least.streamed / 10) << share << ": room is used";
    }
  }
  EXPECT_EQ(resident, load_pipeline(streaming(1 << 30), measured).plan(request).streamed) << "all of it fits";
}

// Nobody asked for it: the step of saving after --offload.
TEST_F(Streams, BeginWhereOffloadIsNotEnough) {
  const GenerateRequest request = this->request();
  Pipeline plain = load_pipeline(kDemo, host_device());
  LoadOptions options = kDemo;
  options.offload = true;
  GuardedDevice measured;
  const MemoryPlan offloaded = load_pipeline(options, measured).plan(request);
  EXPECT_EQ(offloaded.streamed, 0u);
  options.offload = false;
  options.vram_budget = offloaded.total() / 2;
  GuardedDevice device;
  Pipeline streamed = load_pipeline(options, device);
  const MemoryPlan plan = streamed.plan(request);
  EXPECT_TRUE(plan.offload);
  EXPECT_GT(plan.stream_copied, 0u);
  EXPECT_LE(plan.total(), options.vram_budget);
  EXPECT_EQ(draw(streamed, request), draw(plain, request));
}

// At any time, from loading on: with a budget below the weights, or below the UNet's alone, they are never on
// the device together, neither to be moved to the host nor to be laid out or measured.
TEST_F(Streams, NeverTakeMoreThanTheBudget) {
  for (const std::string& model : {kModel, testing_support::write_random_sdxl(folder_ / "sdxl", kModel)}) {
    LoadOptions options = {.model = model, .dtype = "f32"};
    GuardedDevice measured;
    const uint64_t weights = load_pipeline(options, measured).plan(request()).weights;
    options.offload = true;
    const MemoryPlan offloaded = load_pipeline(options, measured).plan(request());
    options.stream_weights = true;
    const MemoryPlan least = load_pipeline(options, measured).plan(request());
    options.offload = options.stream_weights = false;
    for (const uint64_t budget :
         {least.total() + least.total() / 10, (least.total() + offloaded.total()) / 2, offloaded.total()}) {
      ASSERT_LT(budget, weights) << model;
      options.vram_budget = budget;
      GuardedDevice device;
      Pipeline pipeline = load_pipeline(options, device);
      EXPECT_LE(device.peak(), budget) << model << ": loading";
      const GenerateResult first = pipeline.generate(request()), second = pipeline.generate(request());
      EXPECT_TRUE(first.plan.offload);
      EXPECT_EQ(first.plan.streamed > 0, budget < offloaded.total()) << model;
      EXPECT_LE(device.peak(), budget + kRounding) << model;
      EXPECT_LE(first.device_peak, device.peak());
      EXPECT_GT(first.device_peak, budget / 2);
      EXPECT_EQ(first.pictures[0].image.rgb, second.pictures[0].image.rgb);
    }
  }
}

// What comes with a request, too: where it does not fit beside the model, nothing of it is loaded there.
TEST_F(Streams, GuestsKeepTheBudget) {
  GenerateRequest plain = request(), guest = request();
  guest.controls = {{.model = write("a", 0.2f), .image = picture(64, 64)}};
  guest.init_image = picture(64, 64);
  GuardedDevice measured, device;
  LoadOptions options = kDemo;
  options.vram_budget = load_pipeline(kDemo, measured).plan(plain).total() + (1 << 20);
  Pipeline pipeline = load_pipeline(options, device);
  EXPECT_FALSE(pipeline.generate(plain).plan.offload);
  EXPECT_TRUE(pipeline.generate(guest).plan.offload);
  EXPECT_LE(device.peak(), options.vram_budget + kRounding);
}

// Any allocation may fail while weights are streamed; the attempt after it gives the picture, and a device
// that is too small for a call leaves the pipeline usable.
TEST_F(Streams, GoOnAfterMemoryRanOut) {
  const GenerateRequest request = this->request();
  Pipeline plain = load_pipeline(kDemo, host_device());
  const std::vector<uint8_t> want = draw(plain, request);
  GuardedDevice device;
  Pipeline streamed = load_pipeline(streaming(), device);
  for (const int number : {1, 30, 333}) {
    device.fail_allocation(number);
    EXPECT_EQ(draw(streamed, request), want) << number;
    device.fail_allocation(0);
  }
  device.set_capacity(device.allocated() / 2);
  EXPECT_THROW(draw(streamed, request), OutOfMemoryError);
  device.set_capacity(1 << 30);
  EXPECT_EQ(draw(streamed, request), want);
}

}  // namespace
}  // namespace rocm_sd
