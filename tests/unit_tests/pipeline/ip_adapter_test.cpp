// IP-Adapters on a device whose memory the host cannot reach but in launches and copies, under offload and in
// the memory plan; Pillow's resizing; masks for maps.
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>

#include "pipeline/clip_pixels.hpp"
#include "pipeline/load.hpp"
#include "pipeline/pillow_resize.hpp"
#include "support/guarded_device.hpp"
#include "support/random_ip_adapter.hpp"

namespace rocm_sd {
namespace {

using testing_support::GuardedDevice;
const std::string kModel = std::string(ROCM_SD_SOURCE_DIR) + "/models/demo";

class IpAdapters : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("rocm_sd_ip_" + std::to_string(::getpid()));
    plus_ = testing_support::write_random_ip_adapter(folder_, kModel, ImageProjectionKind::kResampler);
    request_.prompt = "a red apple";
    request_.negative_prompt = "a car";
    request_.width = request_.height = 64;
    request_.steps = 2;
    request_.seed = 3;
    request_.ip_adapters = {{.model = plus_, .images = {image_}, .weight = 0.7}};
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
  std::string plus_;
  Image image_{7, 5, std::vector<uint8_t>(105, 90), {}};
  GenerateRequest request_;
};

TEST_F(IpAdapters, DrawTheSameOnAGuardedDevice) {
  GuardedDevice device;
  {
    Pipeline guarded = load_pipeline({.model = kModel, .dtype = "f32"}, device);
    Pipeline plain = load_pipeline({.model = kModel, .dtype = "f32"}, host_device());
    const Image want = plain.generate(request_).pictures[0].image;
    EXPECT_EQ(guarded.generate(request_).pictures[0].image.rgb, want.rgb);
    EXPECT_EQ(guarded.generate(request_).pictures[0].image.rgb, want.rgb) << "replayed";
    GenerateRequest without = request_;
    without.ip_adapters.clear();
    EXPECT_NE(plain.generate(without).pictures[0].image.rgb, want.rgb);
    EXPECT_EQ(plain.generate(request_).pictures[0].image.rgb, want.rgb) << "and back";
  }
  EXPECT_EQ(device.allocated(), 0u) << "memory is given back";
}

TEST_F(IpAdapters, OffloadedWeightsArePlannedApart) {
  GuardedDevice device;
  Pipeline whole = load_pipeline({.model = kModel, .dtype = "f32"}, host_device());
  Pipeline offloaded = load_pipeline({.model = kModel, .dtype = "f32", .offload = true}, device);
  GenerateRequest without = request_;
  without.ip_adapters.clear();
  // Before the adapter's models are loaded: they are kept for the next image, which counts them, too.
  const uint64_t whole_without = whole.plan(without).weights,
                 offloaded_without = offloaded.plan(without).weights;
  const GenerateResult want = whole.generate(request_), got = offloaded.generate(request_);
  EXPECT_EQ(got.pictures[0].image.rgb, want.pictures[0].image.rgb);
  EXPECT_GT(want.plan.image, 0u);
  // All weights count without offload, the largest stage's under it: the UNet's.
  EXPECT_GT(want.plan.weights, whole_without);
  EXPECT_EQ(got.plan.weights, offloaded_without);
}

TEST_F(IpAdapters, EachImageOfABatchMaySeeItsOwn) {
  Pipeline pipeline = load_pipeline({.model = kModel, .dtype = "f32"}, host_device());
  Image dark = image_;
  dark.rgb.assign(dark.rgb.size(), 3);
  GenerateRequest batch = request_;
  batch.batch = 2;
  batch.ip_adapters = {{.model = plus_, .images = {}, .each = {{dark}, {image_}}, .weight = 0.7}};
  const GenerateResult both = pipeline.generate(batch);
  ASSERT_EQ(both.pictures.size(), 2u);
  for (int i = 0; i < 2; ++i) {
    GenerateRequest one = request_;
    one.seed += i;
    one.ip_adapters[0].images = batch.ip_adapters[0].each[static_cast<size_t>(i)];
    const Image want = pipeline.generate(one).pictures[0].image,
                &got = both.pictures[static_cast<size_t>(i)].image;
    ASSERT_EQ(got.rgb.size(), want.rgb.size());
    for (size_t k = 0; k < want.rgb.size(); ++k)
      ASSERT_NEAR(got.rgb[k], want.rgb[k], 1) << i << ", value " << k;
  }
  batch.ip_adapters[0].each.pop_back();
  EXPECT_THROW(pipeline.generate(batch), UsageError);
  batch.ip_adapters[0].each = {{dark}, {image_, image_}};
  EXPECT_THROW(pipeline.generate(batch), UsageError);
}

TEST(PillowResize, KeepsAConstantAndItsOwnSize) {
  const std::vector<uint8_t> grey(3 * 7 * 5, 77);
  EXPECT_EQ(pillow_resize(grey, 7, 5, 3, 4, 9, PillowFilter::kBicubic), std::vector<uint8_t>(3 * 4 * 9, 77));
  std::vector<uint8_t> ramp(3 * 7 * 5);
  std::iota(ramp.begin(), ramp.end(), uint8_t{0});
  EXPECT_EQ(pillow_resize(ramp, 7, 5, 3, 7, 5, PillowFilter::kLanczos), ramp);
}

// [9,13,3], value i is (37 i + 11) mod 251.
std::vector<uint8_t> test_pattern() {
  std::vector<uint8_t> out(9 * 13 * 3);
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<uint8_t>((37 * i + 11) % 251);
  return out;
}

// Sums and first values by Pillow 13.0: Image.fromarray(pattern).resize((width, height), filter).
TEST(PillowResize, GivesPillowsBytes) {
  struct Case {
    int width, height;
    PillowFilter filter;
    int64_t sum;
    std::vector<uint8_t> first;
  };
  for (const Case& c : {Case{5, 7, PillowFilter::kBicubic, 596138, {113, 106, 126, 137, 142, 117}},
                        Case{20, 11, PillowFilter::kLanczos, 3974054, {0, 20, 77, 41, 107, 154}},
                        Case{13, 4, PillowFilter::kLanczos, 813349, {122, 159, 85, 122, 101, 143}},
                        Case{31, 9, PillowFilter::kBicubic, 5066526, {0, 37, 74, 19, 58, 95}}}) {
    const std::vector<uint8_t> got = pillow_resize(test_pattern(), 13, 9, 3, c.width, c.height, c.filter);
    ASSERT_EQ(got.size(), static_cast<size_t>(3 * c.width * c.height));
    int64_t sum = 0;
    for (size_t i = 0; i < got.size(); ++i) sum += got[i] * static_cast<int64_t>(i % 97 + 1);
    EXPECT_EQ(sum, c.sum) << c.width << " x " << c.height;
    EXPECT_EQ(std::vector<uint8_t>(got.begin(), got.begin() + 6), c.first);
  }
}

// By transformers 5.23: CLIPImageProcessorPil(size=6, crop_size=6)(pattern). Floats of the same bytes: 1e-6.
TEST(ClipPixels, AreTransformers) {
  const std::vector<float> got = clip_pixels({13, 9, test_pattern(), {}}, 6);
  ASSERT_EQ(got.size(), 108u);
  const float first[] = {0.48509204387664795f,  -0.2513202726840973f, 0.6243500709533691f,
                         0.017942329868674278f, 0.6941691637039185f,  0.14086775481700897f},
              last[] = {-0.08424664288759232f, -0.02620377205312252f, -0.10087335109710693f};
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(got[i], first[i], 1e-6f);
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(got[105 + i], last[i], 1e-6f);
  EXPECT_NEAR(std::accumulate(got.begin(), got.end(), 0.0), 15.280687063932419, 1e-4);
}

TEST(ClipPixels, CutsTheMiddleOut) {
  Image wide{30, 10, std::vector<uint8_t>(900, 0), {}};
  for (size_t i = 0; i < wide.rgb.size(); ++i)
    if (i / 3 % 30 >= 10 && i / 3 % 30 < 20) wide.rgb[i] = 255;
  const std::vector<float> pixels = clip_pixels(wide, 10);  // the middle third, as it is
  ASSERT_EQ(pixels.size(), 300u);
  for (size_t i = 0; i < 300; ++i) EXPECT_GT(pixels[i], 1.9f);
}

TEST(MaskFactors, HaveAsManyCellsAsTheMap) {
  const std::vector<float> ones(64 * 64, 1.0f);
  for (const int64_t pixels : {64, 16, 4, 1, 63, 99, 97}) {
    const std::vector<float> cells = mask_factors(ones, 64, 64, pixels);
    ASSERT_EQ(cells.size(), static_cast<size_t>(pixels));
    // 97 pixels are no rectangle: of 10 x 9 cells the rest is left out, as Diffusers does. 16 bicubic
    // weights, whose magnitudes sum to 1.6 at most, each rounded to 2^-24.
    for (size_t i = 0; i < cells.size(); ++i)
      EXPECT_NEAR(cells[i], pixels == 97 && i >= 90 ? 0.0f : 1.0f, 2e-6f) << i << " of " << pixels;
  }
}

}  // namespace
}  // namespace rocm_sd
