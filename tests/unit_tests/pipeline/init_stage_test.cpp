// What requests bring besides a prompt: masks at the latents' size, depth maps, latents on disk, LCM's
// guidance.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "pipeline/latents_file.hpp"
#include "pipeline/pixels.hpp"
#include "pipeline/unet_stage.hpp"

namespace rocm_sd {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

TEST(LatentMask, TakesTheFirstPixelOrTheMeanOfEachSquare) {
  std::vector<float> mask(8 * 8, 0.0f);  // of squares of 4 x 4: one pixel, all but one, all, the half
  mask[0] = 1;
  for (size_t y = 0; y < 4; ++y)
    for (size_t x = 4; x < 8; ++x) mask[8 * y + x] = y + x > 4 ? 1.0f : 0.0f;
  for (size_t y = 4; y < 8; ++y)
    for (size_t x = 0; x < 8; ++x) mask[8 * y + x] = x < 4 ? 1.0f : 0.5f;
  EXPECT_THAT(latent_mask(mask, 8, 8, 4, MaskDownscale::kNearest), ElementsAre(1, 0, 1, 1));
  EXPECT_THAT(latent_mask(mask, 8, 8, 4, MaskDownscale::kArea), ElementsAre(0, 1, 1, 0));  // half to even
}

TEST(DepthMap, IsStretchedAndFlatOnesAreZero) {
  Image ramp{4, 1, {}, {}};
  for (const uint8_t v : {10, 20, 30, 40}) ramp.rgb.insert(ramp.rgb.end(), 3, v);
  EXPECT_THAT(depth_to_floats(ramp, 4, 2), Pointwise(FloatNear(1e-5f), {-1.0f, -1 / 3.0f, 1 / 3.0f, 1.0f,
                                                                        -1.0f, -1 / 3.0f, 1 / 3.0f, 1.0f}));
  const Image flat{3, 3, std::vector<uint8_t>(27, 200), {}};
  EXPECT_THAT(depth_to_floats(flat, 2, 2), Each(0.0f));
}

TEST(GuidanceEmbedding, IsDiffusers) {
  // get_guidance_scale_embedding(torch.tensor(7.5), embedding_dim=8)
  EXPECT_THAT(guidance_embedding(8.5, 8),
              Pointwise(FloatNear(2e-5f), {-0.85123587f, 0.56267112f, -0.43523303f, 0.68163872f, -0.52478325f,
                                           -0.82668084f, -0.90031785f, 0.73168892f}));
  EXPECT_EQ(guidance_embedding(1, 7).size(), 7u);
}

class LatentsFile : public ::testing::Test {
 protected:
  // Its own in each process: tests run side by side.
  LatentsFile()
      : path_(std::filesystem::temp_directory_path() /
              concat("rocm-sd-latents-test-", getpid(), ".safetensors")) {}
  ~LatentsFile() override { std::filesystem::remove(path_); }
  std::string refusal() const {
    try {
      load_latents(path_.string());
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  }
  void write(const std::string& header, size_t bytes) const {
    std::ofstream file(path_, std::ios::binary);
    const uint64_t length = header.size();
    file.write(reinterpret_cast<const char*>(&length), 8);
    file << header << std::string(bytes, '\0');
  }
  std::filesystem::path path_;
};

TEST_F(LatentsFile, ComesBackAsItWasWritten) {
  Latents latents{2, 3, 5, {}};
  for (int i = 0; i < 2 * 4 * 3 * 5; ++i) latents.values.push_back(0.25f * static_cast<float>(i));
  save_latents(path_.string(), latents);
  const Latents got = load_latents(path_.string());
  EXPECT_THAT((std::vector<int64_t>{got.images, got.height, got.width}), ElementsAre(2, 3, 5));
  EXPECT_EQ(got.values, latents.values);
}

TEST_F(LatentsFile, OthersAreRefused) {
  EXPECT_THAT(refusal(), HasSubstr("rocm-sd-latents-test"));
  write(R"({"other":{"dtype":"F32","shape":[1,4,1,1],"data_offsets":[0,16]}})", 16);
  EXPECT_THAT(refusal(), HasSubstr("no tensor \"latents\""));
  write(R"({"latents":{"dtype":"F16","shape":[1,4,1,2],"data_offsets":[0,16]}})", 16);
  EXPECT_THAT(refusal(), HasSubstr("expected [N,4,height/8,width/8] f32"));
  write(R"({"latents":{"dtype":"F32","shape":[1,3,1,1],"data_offsets":[0,12]}})", 12);
  EXPECT_THAT(refusal(), HasSubstr("expected [N,4,height/8,width/8] f32"));
}

}  // namespace
}  // namespace rocm_sd
