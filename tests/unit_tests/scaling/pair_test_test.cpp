// The self-test of the ways between devices, on the CPU.
#include "scaling/pair_test.hpp"

#include <gmock/gmock.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

using testing::HasSubstr;

TEST(PairTests, EveryPairHasFiguresInTime) {
  const auto begin = std::chrono::steady_clock::now();
  const auto tests = test_pairs({{"cpu", 0}, {"cpu", 1}, {"cpu", 2}}, 0.6);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  ASSERT_EQ(tests.size(), 3u);
  for (const PairTest& test : tests) {
    EXPECT_EQ(test.problem, "");
    EXPECT_EQ(test.way, "host memory");
    EXPECT_GT(test.seconds, 0);
    EXPECT_GT(test.bytes_per_second, 1e6);
  }
  EXPECT_THAT(pair_tests_text(tests), HasSubstr("cpu - cpu, host memory: "));
  EXPECT_EQ(pair_tests_json(tests)[2]["problem"], "");
}

TEST(PairTests, NoPairsAndBadDevices) {
  EXPECT_TRUE(test_pairs({}, 1).empty());
  EXPECT_TRUE(test_pairs({{"cpu", 0}}, 1).empty());
  EXPECT_THROW(test_pairs({{"cpu", 0}, {"hip:99", 0}}, 1), DeviceError);
}

TEST(PairTests, AProblemIsTold) {
  const std::vector<PairTest> bad{{.from = "hip:0", .to = "hip:1", .way = "host memory", .problem = "hangs"}};
  EXPECT_THAT(pair_tests_text(bad), HasSubstr("hip:0 - hip:1, host memory: hangs"));
}

}  // namespace
}  // namespace rocm_sd
