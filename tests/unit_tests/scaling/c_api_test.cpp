// The C interface with the demo model: pictures, progress, cancelling, and a message for every mistake.
#include "rocm_sd/rocm_sd.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

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
  const rocm_sd_callbacks callbacks = {count, &steps, nullptr, nullptr};
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
  const rocm_sd_callbacks stop = {[](void*, const char*, int, int, double) { return 1; }, nullptr, nullptr,
                                  nullptr};
  EXPECT_EQ(rocm_sd_generate(pipeline_, kRequest, &stop, &result), ROCM_SD_CANCELLED);
  EXPECT_EQ(result, nullptr);
  const int flag = 1;
  const rocm_sd_callbacks flagged = {nullptr, nullptr, &flag, nullptr};
  EXPECT_EQ(rocm_sd_generate(pipeline_, kRequest, &flagged, &result), ROCM_SD_CANCELLED);
  EXPECT_EQ(rocm_sd_generate(pipeline_, kRequest, nullptr, &result), ROCM_SD_OK) << "usable after cancelling";
  rocm_sd_result_free(result);
}

// At each of the load's reports in turn.
TEST_F(CApi, LoadingCancels) {
  struct Count {
    int seen = 0, stop_at = 0;
  };
  const auto load = [](Count& count, rocm_sd_pipeline** pipeline) {
    const auto report = [](void* user, const char* stage, int, int, double) {
      EXPECT_STREQ(stage, "load");
      auto& c = *static_cast<Count*>(user);
      return ++c.seen == c.stop_at ? 1 : 0;
    };
    const rocm_sd_option model[] = {{"model", kDemo.c_str()}, {"dtype", "f32"}, {nullptr, nullptr}};
    const rocm_sd_callbacks callbacks = {report, &count, nullptr, nullptr};
    return rocm_sd_create(model, &callbacks, pipeline);
  };
  Count all;
  rocm_sd_pipeline* pipeline = nullptr;
  ASSERT_EQ(load(all, &pipeline), ROCM_SD_OK) << rocm_sd_last_error();
  rocm_sd_free(pipeline);
  ASSERT_GE(all.seen, 3) << "text encoder, UNet, VAE";
  for (int stop_at = 1; stop_at <= all.seen; ++stop_at) {
    Count count{0, stop_at};
    EXPECT_EQ(load(count, &pipeline), ROCM_SD_CANCELLED);
    EXPECT_EQ(pipeline, nullptr);
    EXPECT_EQ(count.seen, stop_at) << "it went on";
  }
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

// Bytes of the picture of kRequest with a seed; empty where it failed.
std::vector<uint8_t> picture_of(rocm_sd_pipeline* pipeline, const char* seed) {
  const rocm_sd_option request[] = {
      {"prompt", "a red apple"}, {"steps", "3"}, {"seed", seed}, {nullptr, nullptr}};
  rocm_sd_result* result = nullptr;
  if (rocm_sd_generate(pipeline, request, nullptr, &result) != ROCM_SD_OK) return {};
  const rocm_sd_picture& picture = result->pictures[0];
  std::vector<uint8_t> out(picture.rgb, picture.rgb + size_t{3} * 128 * 128);
  rocm_sd_result_free(result);
  return out;
}

TEST_F(CApi, TwoPipelinesDrawAtOnce) {
  const rocm_sd_option model[] = {{"model", kDemo.c_str()}, {"dtype", "f32"}, {nullptr, nullptr}};
  rocm_sd_pipeline* other = nullptr;
  ASSERT_EQ(rocm_sd_create(model, nullptr, &other), ROCM_SD_OK) << rocm_sd_last_error();
  const auto first = picture_of(pipeline_, "1"), second = picture_of(pipeline_, "2");
  ASSERT_FALSE(first.empty());
  ASSERT_NE(first, second);
  for (int round = 0; round < 2; ++round) {
    std::vector<uint8_t> a, b;
    std::thread beside([&] { a = picture_of(other, "1"); });
    b = picture_of(pipeline_, "2");
    beside.join();
    EXPECT_EQ(a, first) << "round " << round;
    EXPECT_EQ(b, second) << "round " << round;
  }
  // A mistake is told to the thread that made it.
  rocm_sd_result* result = nullptr;
  const rocm_sd_option bad[] = {{"steps", "many"}, {nullptr, nullptr}};
  ASSERT_EQ(rocm_sd_generate(pipeline_, bad, nullptr, &result), ROCM_SD_USAGE);
  const std::string mine = rocm_sd_last_error();
  std::thread([&] {
    const rocm_sd_option worse[] = {{"setps", "3"}, {nullptr, nullptr}};
    EXPECT_EQ(rocm_sd_generate(other, worse, nullptr, &result), ROCM_SD_USAGE);
    EXPECT_NE(rocm_sd_last_error(), mine);
  }).join();
  EXPECT_EQ(rocm_sd_last_error(), mine);
  rocm_sd_free(other);
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
