// The list of full-size problems: that of the repository is what the planner gives now, and it has the shapes
// that are known of the architectures.
#include "analysis/model_shapes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> out;
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

TEST(ModelShapes, TheListOfTheRepositoryIsCurrent) {
  std::ifstream file(ROCM_SD_SOURCE_DIR "/tests/data/model_shapes.txt");
  std::stringstream text;
  text << file.rdbuf();
  const std::vector<std::string> have = lines_of(text.str()),
                                 want = lines_of(model_shapes_text(default_shape_sets()));
  EXPECT_EQ(have, want)
      << "tests/data/model_shapes.txt is not what the planner gives: run `make model-shapes`";
}

// From the models' papers and configurations, not from this planner.
TEST(ModelShapes, HasWhatTheArchitecturesSay) {
  const std::vector<std::string> lines =
      lines_of(model_shapes_text({{"sd15", 512, 512}, {"sdxl", 1024, 1024}}));
  EXPECT_THAT(
      lines,
      testing::IsSupersetOf({
          "# f16 sd15 512x512 text",
          "# f16 sd15 512x512 unet",
          "# f16 sd15 512x512 vae",
          "# f16 sd15 512x512 vae-encode",
          "# f16 sdxl 1024x1024 unet",
          // 8 heads of 40 channels over 64 x 64 places, and over the text; CLIP's causal ones.
          "attention f16 [2,8,4096x4096,40]",
          "attention f16 [2,8,4096x77,40]",
          "attention f16 [2,12,77x77,64] causal",
          // The VAE's one head of 512 channels over all places of a picture of 1024 x 1024, and of 512 x 512.
          "attention f16 [1,1,16384x16384,512]",
          "attention f16 [1,1,4096x4096,512]",
          "attention f16 [2,10,4096x4096,64]",
          "attention f16 [2,20,1024x1024,64]",
          "group_norm f16 [2,4096,320] groups 32 silu",
          "layer_norm f16 [8192,320]",
      }));
  std::set<std::string> once;
  for (const std::string& line : lines) EXPECT_TRUE(line.empty() || once.insert(line).second) << line;
}

// Whatever this machine's CPU multiplies: a GPU's UNet in bf16 has maps in f32 and products in bf16, and f16
// for the text.
TEST(ModelShapes, AreAGpusInBf16) {
  const std::vector<std::string> lines = lines_of(model_shapes_text({{"sd15", 512, 512, DType::kBF16}}));
  EXPECT_THAT(lines, testing::IsSupersetOf({
                         "# bf16 sd15 512x512 text",
                         "linear 154x2304x768 f16 bias",
                         "attention f16 [2,12,77x77,64] causal",
                         "linear 154x640x768 f16",
                         "attention bf16 [2,8,4096x4096,40]",
                         "attention f16 [2,8,4096x77,40]",
                         "group_norm f32->bf16 [2,4096,320] groups 32 silu",
                         "layer_norm f32->bf16 [8192,320]",
                         "linear 8192x320x1280 bf16->f32 bias residual",
                     }));
}

TEST(ModelShapes, RefusesWhatIsNoModelAndNoPicture) {
  EXPECT_THROW(model_shapes_text({{"sd16", 512, 512}}), UsageError);
  EXPECT_THROW(model_shapes_text({{"sd15", 500, 512}}), ShapeError);
}

}  // namespace
}  // namespace rocm_sd
