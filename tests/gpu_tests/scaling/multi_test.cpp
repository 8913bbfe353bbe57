// Several GPUs: images divided over them, and pairs that draw one image. ROCM_SD_TEST_DEVICES names them
// ("cuda:0,cuda:1"); else the tests' GPU stands there twice, with memory and a stream for each.
#include <cmath>
#include <cstdlib>

#include "gpu_tests/gpu_test.hpp"
#include "rocm_sd/multi.hpp"

namespace rocm_sd {
namespace {

const std::string kDemo = std::string(ROCM_SD_SOURCE_DIR) + "/models/demo";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// One of them, and a pair.
std::string one() {
  const std::string list = variable("ROCM_SD_TEST_DEVICES");
  if (!list.empty()) return list.substr(0, list.find(','));
  if (const std::string named = variable("ROCM_SD_TEST_DEVICE"); !named.empty()) return named;
  for (const DeviceInfo& device : devices())
    if (device.usable && device.name != "cpu") return device.name;
  return "cuda";
}
std::string pair() {
  const std::string list = variable("ROCM_SD_TEST_DEVICES");
  return list.empty() ? one() + "," + one() : list;
}

GenerateRequest request() {
  GenerateRequest request;
  request.prompt = "a red apple";
  request.negative_prompt = "a car";
  request.steps = test_gpu_is_emulated() ? 2 : 8;
  if (test_gpu_is_emulated()) request.width = request.height = 64;
  request.cfg_scale = 5;
  request.seed = 7;
  return request;
}

double psnr(const Image& a, const Image& b) {
  EXPECT_EQ(a.rgb.size(), b.rgb.size());
  double squares = 0;
  for (size_t i = 0; i < a.rgb.size(); ++i) squares += std::pow(double{1} * a.rgb[i] - b.rgb[i], 2);
  if (squares == 0) return HUGE_VAL;
  return 10 * std::log10(255.0 * 255.0 * static_cast<double>(a.rgb.size()) / squares);
}

// What the ranks of the last image sent each other is what they received, kernels' stores among it; what a
// library passes is not counted.
void expect_traffic(const MultiPipeline& together, uint64_t least_messages) {
  const std::vector<RankTraffic> traffic = together.drawers().at(0).traffic;
  if (const std::string way = variable("ROCM_SD_EXCHANGE"); way == "nccl" || way == "rccl")
    least_messages = 0;
  uint64_t sent = 0, received = 0;
  for (const RankTraffic& rank : traffic) {
    EXPECT_GE(rank.messages, least_messages);
    EXPECT_GT(rank.bytes, 0u);
    EXPECT_GE(rank.receive_seconds, 0);
    sent += rank.bytes;
    received += rank.received_bytes;
  }
  EXPECT_GT(sent, 0u);
  EXPECT_EQ(sent, received);
}

TEST(SeveralGpus, DrawTheBytesOfOne) {
  Pipeline alone = Pipeline::load({.model = kDemo, .device = one()});
  MultiPipeline several = MultiPipeline::load({.model = kDemo, .devices = pair()});
  const size_t count = test_gpu_is_emulated() ? 3 : 12;
  std::vector<Image> want;
  for (size_t i = 0; i < count; ++i) {
    GenerateRequest r = request();
    r.seed += static_cast<int64_t>(i);
    want.push_back(alone.generate(r).pictures.at(0).image);
  }
  for (int round = 0; round < 2; ++round)
    several.generate_each(
        [&](size_t i) {
          GenerateRequest r = request();
          r.seed += static_cast<int64_t>(i);
          return i < count ? std::optional(r) : std::nullopt;
        },
        [&](size_t i, const GenerateResult& got) {
          EXPECT_EQ(got.pictures.at(0).image.rgb, want[i].rgb) << i << " on " << got.device;
        });
  for (const DrawerInfo& drawer : several.drawers()) EXPECT_GT(drawer.requests, 0) << drawer.devices;
}

// The kernels of half a batch may be others: 45 dB or better in f16.
TEST(SeveralGpus, PairsDrawTheImageOfOne) {
  Pipeline alone = Pipeline::load({.model = kDemo, .device = one()});
  MultiPipeline together = MultiPipeline::load({.model = kDemo, .devices = pair(), .split = "guidance"});
  GenerateRequest r = request();
  for (int round = 0; round < (test_gpu_is_emulated() ? 1 : 4); ++round) {
    if (round == 2) r.sampler = "Euler a";
    if (round == 3) r.pag_scale = 2;
    const Image want = alone.generate(r).pictures.at(0).image,
                got = together.generate(r).pictures.at(0).image;
    EXPECT_GE(psnr(got, want), 45) << round;
    expect_traffic(together, static_cast<uint64_t>(r.steps));
    EXPECT_EQ(together.generate(r).pictures.at(0).image.rgb, got.rgb) << "the same bits again";
  }
}

// Borders, moments, keys and values pass between the devices: nothing is approximated, but sums have another
// order. Rounds are other heights, whose rows do not divide evenly.
TEST(SeveralGpus, RowsDrawTheImageOfOne) {
  Pipeline alone = Pipeline::load({.model = kDemo, .device = one()});
  MultiPipeline together = MultiPipeline::load({.model = kDemo, .devices = pair(), .split = "rows"});
  GenerateRequest r = request();
  if (test_gpu_is_emulated()) r.steps = 1;
  for (const int height : test_gpu_is_emulated() ? std::vector{128} : std::vector{128, 192, 136}) {
    r.height = height;
    const Image want = alone.generate(r).pictures.at(0).image,
                got = together.generate(r).pictures.at(0).image;
    EXPECT_GE(psnr(got, want), 45) << height;
    expect_traffic(together, static_cast<uint64_t>(r.steps) * 45);  // norms and convolutions, attention
    EXPECT_EQ(together.generate(r).pictures.at(0).image.rgb, got.rgb) << "the same bits again";
  }
}

// What the ranks read of each other is the same by every way: in the first calls what is being made, in later
// ones what there was in the call before. Both leave their mark on the image, so that equal images mean equal
// bytes passed at equal times.
TEST(SeveralGpus, DisplacedRowsDrawTheSameByEveryWay) {
  const std::string asked = variable("ROCM_SD_EXCHANGE");
  if (!asked.empty()) GTEST_SKIP() << "ROCM_SD_EXCHANGE asks for one way";
  GenerateRequest r = request();
  r.height = 128;
  r.steps = test_gpu_is_emulated() ? 3 : 8;  // exact, reading the exact one, reading a stale one
  const std::string stale = test_gpu_is_emulated() ? "displaced:1" : "displaced:3";
  const auto drawn = [&](const std::string& way, const std::string& split) {
    if (!way.empty()) setenv("ROCM_SD_EXCHANGE", way.c_str(), 1);
    MultiPipeline together = MultiPipeline::load({.model = kDemo, .devices = pair(), .split = split});
    unsetenv("ROCM_SD_EXCHANGE");
    const Image got = together.generate(r).pictures.at(0).image;
    if (way != "host") expect_traffic(together, static_cast<uint64_t>(r.steps) * 45);
    if (test_gpu_is_emulated() && !way.empty()) return got;
    EXPECT_EQ(together.generate(r).pictures.at(0).image.rgb, got.rgb) << way << ": the same bits again";
    return got;
  };
  const Image exact = drawn("", "rows"), host = drawn("host", stale);
  EXPECT_LT(psnr(host, exact), HUGE_VAL) << "some calls are stale";
  for (const char* way : {"", "mapped"}) {
    const Image got = drawn(way, stale);
    EXPECT_EQ(psnr(got, host), HUGE_VAL) << way;
  }
  if (!test_gpu_is_emulated())
    EXPECT_EQ(psnr(drawn("", "displaced:8"), exact), HUGE_VAL) << "all calls are exact";
}

// Each has its share of the heads and of the feed-forwards' channels, whose parts are summed in f16: 45 dB or
// better. A LoRA is merged into the shares, or acts beside them.
TEST(SeveralGpus, TensorsDrawTheImageOfOne) {
  Pipeline alone = Pipeline::load({.model = kDemo, .device = one()});
  MultiPipeline together = MultiPipeline::load({.model = kDemo, .devices = pair(), .split = "tensor"});
  GenerateRequest r = request();
  if (test_gpu_is_emulated()) r.steps = 1;
  for (int round = 0; round < (test_gpu_is_emulated() ? 1 : 4); ++round) {
    if (round == 1) r.batch = 2, r.pag_scale = 2;
    if (round == 2) r.loras = {{.file = kDemo + "_examples/dusk_lora.safetensors", .weight = 0.8}};
    if (round == 3) r.lora_mode = "runtime";
    const Image want = alone.generate(r).pictures.at(0).image,
                got = together.generate(r).pictures.at(0).image;
    EXPECT_GE(psnr(got, want), 45) << round;
    // Two attentions and a feed-forward of each transformer block, of which the demo model has six.
    expect_traffic(together, static_cast<uint64_t>(r.steps) * 18);
    EXPECT_EQ(together.generate(r).pictures.at(0).image.rgb, got.rgb) << "the same bits again";
  }
  const MemoryPlan plan = together.plans(r).at(0).plan;
  ASSERT_EQ(plan.devices.size(), 2u);
  for (const DeviceMemory& rank : plan.devices) EXPECT_LT(rank.weights, alone.plan(r).weights);
}

}  // namespace
}  // namespace rocm_sd
