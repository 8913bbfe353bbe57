// Files of modelled times: what is read, what is refused, and what a prediction makes of them.
#include "analysis/modelled_times.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "analysis/predict.hpp"
#include "base/error.hpp"
#include "base/paths.hpp"

namespace rocm_sd {
namespace {

namespace fs = std::filesystem;

// $ROCM_SD_SHARE for as long as it lives: the shipped files beside times of its own.
struct Share {
  Share() {
    std::string name = (fs::temp_directory_path() / "rocm_sd_times_XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("no temporary folder");
    folder = name;
    const fs::path shipped = share_path("counts").parent_path();
    for (const auto& entry : fs::directory_iterator(shipped))
      if (entry.path().filename() != "times")
        fs::create_symlink(entry.path(), folder / entry.path().filename());
    fs::create_directories(folder / "times");
    if (const char* set = std::getenv("ROCM_SD_SHARE")) before = set;
    setenv("ROCM_SD_SHARE", folder.c_str(), 1);
  }
  ~Share() {
    if (before.empty())
      unsetenv("ROCM_SD_SHARE");
    else
      setenv("ROCM_SD_SHARE", before.c_str(), 1);
    fs::remove_all(folder);
  }
  fs::path write(const std::string& name, const std::string& text) const {
    std::ofstream(folder / "times" / name) << text;
    return folder / "times" / name;
  }
  fs::path folder;
  std::string before;
};

TEST(ModelledTimes, BadFilesAreNamed) {
  const Share share;
  const auto said = [&](const std::string& text) {
    try {
      read_modelled_times(share.write("x.json", text));
    } catch (const FormatError& e) {
      return std::string(e.what());
    }
    return std::string("nothing");
  };
  EXPECT_THAT(said("{}"), testing::HasSubstr("\"card\" must be a text"));
  EXPECT_THAT(said(R"({"card": "a", "target": "b", "error": -1})"), testing::HasSubstr("\"error\""));
  EXPECT_THAT(said(R"({"card": "a", "target": "b", "error": 0, "microseconds": {"linear": 0}})"),
              testing::HasSubstr("linear: expected a number above 0"));
  EXPECT_EQ(said(R"({"card": "a", "target": "b", "error": 0.1, "microseconds": {"linear": 2}})"), "nothing");
  EXPECT_THROW(read_modelled_times(share.folder / "none.json"), FileError);
}

TEST(ModelledTimes, AreFoundByTheCardsName) {
  const Share share;
  share.write(
      "rx-7800-xt.json",
      R"({"card": "RX 7800 XT", "target": "gfx1100", "error": 0.2, "microseconds": {"linear 1": 3}})");
  share.write("rx-7600.json", R"({"card": "RX 7601", "target": "gfx1100", "error": 0, "microseconds": {}})");
  const auto found = modelled_times_for(*find_gpu_product("RX 7800 XT"));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->target, "gfx1100");
  EXPECT_EQ(found->error, 0.2);
  EXPECT_EQ(found->microseconds.at("linear 1"), 3);
  EXPECT_FALSE(modelled_times_for(*find_gpu_product("RX 7600")).has_value());  // the file is another's
  EXPECT_FALSE(modelled_times_for(*find_gpu_product("MI300X")).has_value());
}

// The shipped times cover whole pictures, and no stage is faster than its bound allows: the model's cards
// reach no more than the rates that the bound takes.
TEST(ModelledTimes, PredictionsHaveThemBesideTheBound) {
  const GpuProduct& gpu = *find_gpu_product("RX 7900 XTX");
  ASSERT_TRUE(modelled_times_for(gpu).has_value());
  for (const char* model : {"sd15", "sdxl"}) {
    const KnownModel& known = known_model(model);
    ModelBound bound;
    try {
      bound = predict(gpu, known, {.height = known.side, .width = known.side}, 20, DType::kF16);
    } catch (const DeviceError& e) {
      GTEST_SKIP() << e.what();  // no kernels of the family were built
    }
    EXPECT_GT(bound.modelled_error, 0);
    EXPECT_LT(bound.modelled_error, 0.5);
    EXPECT_EQ(bound.modelled_by, "gfx1100");
    double picture = 0;
    for (const StageBound& s : bound.stages) {
      EXPECT_GT(s.modelled_ms, s.bound_ms) << model << ' ' << s.stage;
      EXPECT_LT(s.modelled_ms, 10 * s.bound_ms) << model << ' ' << s.stage;
      picture += s.runs * s.modelled_ms;
      if (s.stage == "unet") EXPECT_EQ(bound.modelled_step_ms, s.modelled_ms);
    }
    EXPECT_NEAR(bound.modelled_picture_ms, picture, 1e-6 * picture);
    // In another type nothing was modelled.
    EXPECT_EQ(
        predict(gpu, known, {.height = known.side, .width = known.side}, 20, DType::kBF16).modelled_step_ms,
        0);
  }
}

}  // namespace
}  // namespace rocm_sd
