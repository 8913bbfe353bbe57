// Benchmarks of problems on the host, their reports, and counters of energy from a sysfs of the test's own.
#include "measurement/bench.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/error.hpp"
#include "measurement/energy.hpp"

namespace rocm_sd::measurement {
namespace {

namespace fs = std::filesystem;

const std::vector<PlannedWorkload> kProblems = {{"linear", "64x64x64 f32 bias", 3},
                                                {"layer_norm", "f32 [12,320]", 1}};

std::vector<std::string> choices(const BenchReport& report) {
  std::vector<std::string> out;
  for (const BenchRow& row : report.rows) out.push_back(row.op + " " + row.choice + (row.chosen ? "*" : ""));
  return out;
}

TEST(Bench, ListsCandidatesWithoutRunning) {
  const BenchReport report = bench(host_device(), kProblems, {.mode = BenchMode::kList, .impls = "*"});
  EXPECT_THAT(choices(report),
              testing::ElementsAre("linear tiled*", "linear onednn", "linear scalar", "linear ref",
                                   "layer_norm host*", "layer_norm scalar", "layer_norm ref"));
  for (const BenchRow& row : report.rows) EXPECT_TRUE(row.seconds.empty() && !row.accuracy);
}

TEST(Bench, ChecksEveryCandidate) {
  const BenchReport report = bench(host_device(), kProblems, {.mode = BenchMode::kCheck, .impls = "*"});
  ASSERT_EQ(report.rows.size(), 7u);
  for (const BenchRow& row : report.rows) {
    ASSERT_TRUE(row.accuracy) << row.choice << row.failure;
    EXPECT_TRUE(row.accuracy->ok()) << row.choice;
  }
}

TEST(Bench, TimesWhatTheOpPicksOrWhatIsNamed) {
  const BenchReport picked = bench(host_device(), kProblems, {.seconds = 0});
  EXPECT_THAT(choices(picked), testing::ElementsAre("linear tiled*", "layer_norm host*"));
  for (const BenchRow& row : picked.rows) {
    EXPECT_GE(row.seconds.size(), 5u);
    EXPECT_GT(row.median, 0);
    EXPECT_GE(row.spread, 0);
  }
  const BenchReport named = bench(host_device(), kProblems, {.impls = "one,ref", .seconds = 0});
  EXPECT_THAT(choices(named), testing::ElementsAre("linear onednn", "linear ref", "layer_norm ref"));
  const nlohmann::ordered_json json = bench_json(picked);
  EXPECT_EQ(json["rows"][0]["launches"], 3);
  EXPECT_NEAR(json["rows"][0]["tflops"].get<double>(), 2 * 64 * 64 * 64 / picked.rows[0].median * 1e-12,
              1e-9);
  EXPECT_TRUE(json["rows"][0]["error"]["ok"].get<bool>());
  EXPECT_EQ(json["origin"], "measured");
  EXPECT_EQ(json["schema"], 1);
  for (const char* key : {"command", "driver", "commit", "date", "system"})
    EXPECT_TRUE(json.contains(key)) << key;
  EXPECT_THAT(bench_text(picked), testing::HasSubstr("driver Linux"));
  EXPECT_THAT(bench_text(picked), testing::HasSubstr("clocks: "));
  EXPECT_FALSE(json["rows"][0].contains("peer"));  // nothing else was timed
  const nlohmann::ordered_json beside =
      bench_json(bench(host_device(), kProblems, {.impls = "*", .seconds = 0}));
  EXPECT_EQ(beside["rows"][0]["peer"], "onednn");
  EXPECT_DOUBLE_EQ(
      beside["rows"][0]["ratio_to_peer"].get<double>(),
      beside["rows"][1]["median_us"].get<double>() / beside["rows"][0]["median_us"].get<double>());
  EXPECT_THAT(bench_text(picked), testing::HasSubstr("linear 64x64x64 f32 bias x3"));
  EXPECT_THAT(bench_markdown(picked), testing::HasSubstr("| linear | 64x64x64 f32 bias | tiled * |"));
}

class FakeSysfs : public testing::Test {
 protected:
  FakeSysfs() {
    std::string name = (fs::temp_directory_path() / "energy.XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  ~FakeSysfs() override {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  void write(const std::string& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text << "\n";
  }
  fs::path root_;
};

TEST_F(FakeSysfs, ReadsPackagesOfRapl) {
  EXPECT_TRUE(energy_counters(host_device(), root_).empty());
  const std::string zone = "class/powercap/intel-rapl:0/";
  write(zone + "name", "package-0");
  write(zone + "energy_uj", "4000000");
  write(zone + "max_energy_range_uj", "5000000");
  write("class/powercap/intel-rapl:0:0/name", "core");  // a part of it
  write("class/powercap/intel-rapl:0:0/energy_uj", "1");
  const auto counters = energy_counters(host_device(), root_);
  ASSERT_EQ(counters.size(), 1u);
  EXPECT_EQ(counters[0]->name(), "RAPL: package-0");
  EXPECT_EQ(counters[0]->joules(), 0);
  write(zone + "energy_uj", "4500000");
  EXPECT_DOUBLE_EQ(counters[0]->joules(), 0.5);
  write(zone + "energy_uj", "500000");  // wrapped
  EXPECT_DOUBLE_EQ(counters[0]->joules(), 1.5);
}

TEST_F(FakeSysfs, ReadsTheSensorOfTheGpu) {
  for (const auto& [sensor, gpu, energy] :
       {std::tuple{"hwmon2", "0000:03:00.0", "7000000"}, std::tuple{"hwmon5", "0000:83:00.0", "9000000"}}) {
    const std::string folder = concat("class/hwmon/", sensor, "/");
    write(folder + "name", "amdgpu");
    write(folder + "energy1_input", energy);
    fs::create_directories(root_ / "devices" / gpu);
    fs::create_symlink(root_ / "devices" / gpu, root_ / folder / "device");
  }
  const auto counters = energy_counters(DeviceKind::kHip, "0000:83:00.0", root_);
  ASSERT_EQ(counters.size(), 1u);
  EXPECT_EQ(counters[0]->name(), "amdgpu: GPU 0000:83:00.0");
  EXPECT_EQ(counters[0]->joules(), 0);
  write("class/hwmon/hwmon2/energy1_input", "8000000");  // another's
  write("class/hwmon/hwmon5/energy1_input", "9500000");
  EXPECT_DOUBLE_EQ(counters[0]->joules(), 0.5);
  EXPECT_TRUE(energy_counters(DeviceKind::kHip, "0000:c3:00.0", root_).empty());
  EXPECT_TRUE(energy_counters(DeviceKind::kHip, "", root_).empty());
}

}  // namespace
}  // namespace rocm_sd::measurement
