// The C interface with the demo model: pictures, progress, cancelling, and a message for every mistake.
#include "rocm_sd/rocm_sd.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace {

const std::string kDemo = std::string(ROCM_SD_SOURCE_DIR) + "/models/demo";
const rocm_sd_option kRequest[] = {
    {"prompt", "a red apple"}, {"steps", "3"}, {"seed", "1"}, {nullptr, nullptr}};

class CApi : public testing::Test {
 protected:
  void SetUp() override {
    const rocm_sd_option model[] = {{"model", kDemo.c_str()}, {"dtype", "f32"}, {nullptr, nullptr}};
    ASSERT_EQ(rocm_sd_create(model, nullptr, &pipeline_), ROCM_SD_OK) << rocm_sd_last_error();
  }
  void TearDown() override { rocm_sd_free(pipeline_); }
  rocm_sd_pipeline* pipeline_ = nullptr;
};

TEST_F(CApi, GeneratesAndSaves) {
  uint64_t bytes = 0;
  ASSERT_EQ(rocm_sd_plan(pipeline_, kRequest, &bytes), ROCM_SD_OK) << rocm_sd_last_error();
  EXPECT_GT(bytes, 10'000'000u);
  int steps = 0;
  const auto count = [](void* user, const char* stage, int step, int total, double) {
    if (std::string(stage) == "sample") {
      EXPECT_EQ(total, 3);
      *static_cast<int*>(user) = step;
    }
    return 0;
  };
  const rocm_sd_callbacks callbacks = {count, &steps, nullptr};
  rocm_sd_result* result = nullptr;
  ASSERT_EQ(rocm_sd_generate(pipeline_, kRequest, &callbacks, &result), ROCM_SD_OK) << rocm_sd_last_error();
  EXPECT_EQ(steps, 3);
  ASSERT_EQ(result->count, 1u);
  EXPECT_EQ(result->pictures[0].width, 128);
  EXPECT_EQ(result->pictures[0].seed, 1u);
  EXPECT_NE(std::string(result->pictures[0].parameters).find("Seed: 1"), std::string::npos);
  const std::string path = testing::TempDir() + "rocm_sd_c_api.png";
  EXPECT_EQ(rocm_sd_save(&result->pictures[0], path.c_str(), 95), ROCM_SD_OK);
  EXPECT_GT(std::filesystem::file_size(path), 1000u);
  std::filesystem::remove(path);
  EXPECT_EQ(rocm_sd_save(&result->pictures[0], "/nonexistent/a.png", 95), ROCM_SD_FILE);
  rocm_sd_result_free(result);
}

TEST_F(CApi, ProgressAndFlagCancel) {
  rocm_sd_result* result = nullptr;
  const rocm_sd_callbacks stop = {[](void*, const char*, int, int, double) { return 1; }, nullptr, nullptr};
  EXPECT_EQ(rocm_sd_generate(pipeline_, kRequest, &stop, &result), ROCM_SD_CANCELLED);
  EXPECT_EQ(result, nullptr);
  const int flag = 1;
  const rocm_sd_callbacks flagged = {nullptr, nullptr, &flag};
  EXPECT_EQ(rocm_sd_generate(pipeline_, kRequest, &flagged, &result), ROCM_SD_CANCELLED);
  EXPECT_EQ(rocm_sd_generate(pipeline_, kRequest, nullptr, &result), ROCM_SD_OK) << "usable after cancelling";
  rocm_sd_result_free(result);
}

TEST_F(CApi, MistakesAreNamed) {
  rocm_sd_result* result = nullptr;
  const rocm_sd_option bad[] = {{"steps", "many"}, {nullptr, nullptr}};
  EXPECT_EQ(rocm_sd_generate(pipeline_, bad, nullptr, &result), ROCM_SD_USAGE);
  EXPECT_NE(std::string(rocm_sd_last_error()).find("steps"), std::string::npos);
  const rocm_sd_option unknown[] = {{"setps", "3"}, {nullptr, nullptr}};
  EXPECT_EQ(rocm_sd_generate(pipeline_, unknown, nullptr, &result), ROCM_SD_USAGE);
  const rocm_sd_option loading[] = {{"model", "x"}, {nullptr, nullptr}};
  EXPECT_EQ(rocm_sd_generate(pipeline_, loading, nullptr, &result), ROCM_SD_USAGE);
  EXPECT_EQ(rocm_sd_generate(nullptr, kRequest, nullptr, &result), ROCM_SD_USAGE);
  EXPECT_EQ(rocm_sd_generate(pipeline_, nullptr, nullptr, &result), ROCM_SD_USAGE);
}

TEST(CApiCreate, RefusesWhatIsNoModel) {
  rocm_sd_pipeline* pipeline = nullptr;
  const rocm_sd_option missing[] = {{"model", "/nonexistent"}, {nullptr, nullptr}};
  EXPECT_EQ(rocm_sd_create(missing, nullptr, &pipeline), ROCM_SD_FILE);
  EXPECT_EQ(pipeline, nullptr);
  EXPECT_NE(std::string(rocm_sd_last_error()).find("/nonexistent"), std::string::npos);
  EXPECT_EQ(rocm_sd_create(missing, nullptr, nullptr), ROCM_SD_USAGE);
  rocm_sd_free(nullptr);
  rocm_sd_result_free(nullptr);
  EXPECT_STRNE(rocm_sd_version(), "");
}

}  // namespace
