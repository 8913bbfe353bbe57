#include "measurement/clocks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "measurement/energy.hpp"
#include "measurement/nvml.hpp"
#include "measurement/record.hpp"
#include "runtime/devices.hpp"

namespace rocm_sd::measurement {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Optional;

class Clocks : public testing::Test {
 protected:
  Clocks() {
    std::string name = (fs::temp_directory_path() / "clocks.XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  ~Clocks() override {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  void write(const std::string& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text << "\n";
  }
  // amdgpu's sensors of two cards.
  void write_cards() {
    for (const auto& [sensor, gpu] :
         {std::pair{"hwmon2", "0000:03:00.0"}, std::pair{"hwmon5", "0000:83:00.0"}}) {
      const std::string folder = std::string("sys/class/hwmon/") + sensor + "/";
      write(folder + "name", "amdgpu");
      fs::create_directories(root_ / "sys/devices" / gpu);
      fs::create_symlink(root_ / "sys/devices" / gpu, root_ / folder / "device");
    }
  }
  fs::path root_;
};

TEST_F(Clocks, OfAnAmdGpuAreItsOwnSensors) {
  EXPECT_EQ(clock_meter(DeviceKind::kHip, "0000:83:00.0", root_), nullptr);
  write_cards();
  EXPECT_EQ(clock_meter(DeviceKind::kHip, "0000:83:00.0", root_), nullptr);  // sensors without a clock
  write("sys/class/hwmon/hwmon2/freq1_input", "500000000");
  const std::string folder = "sys/class/hwmon/hwmon5/";
  write(folder + "freq1_input", "2304000000");
  write(folder + "freq2_input", "1249000000");
  write(folder + "power1_average", "303000000");
  write(folder + "temp1_input", "71000");
  write("sys/devices/0000:83:00.0/pp_dpm_sclk", "0: 500Mhz\n1: 1500Mhz *\n2: 2482Mhz");
  const auto meter = clock_meter(DeviceKind::kHip, "0000:83:00.0", root_);
  ASSERT_NE(meter, nullptr);
  EXPECT_EQ(meter->source(), "amdgpu");
  EXPECT_THAT(meter->core_max_mhz(), Optional(2482.0));
  const ClockReading r = meter->read();
  EXPECT_THAT(r.core_mhz, Optional(2304.0));
  EXPECT_THAT(r.memory_mhz, Optional(1249.0));
  EXPECT_THAT(r.watts, Optional(303.0));
  EXPECT_THAT(r.celsius, Optional(71.0));
  fs::remove(root_ / folder / "freq1_input");  // older kernels have the table only, newer cards power1_input
  fs::remove(root_ / folder / "power1_average");
  write(folder + "power1_input", "250000000");
  EXPECT_THAT(meter->read().core_mhz, Optional(1500.0));
  EXPECT_THAT(meter->read().watts, Optional(250.0));
}

TEST_F(Clocks, OfTheHostAreTheFastestCores) {
  EXPECT_EQ(clock_meter(DeviceKind::kHost, "", root_), nullptr);
  write("proc/cpuinfo", "processor : 0\ncpu MHz\t\t: 2394.374\nprocessor : 1\ncpu MHz\t\t: 2600.5");
  auto meter = clock_meter(DeviceKind::kHost, "", root_);
  ASSERT_NE(meter, nullptr);
  EXPECT_EQ(meter->source(), "/proc/cpuinfo");
  EXPECT_THAT(meter->read().core_mhz, Optional(2600.5));
  EXPECT_EQ(meter->core_max_mhz(), std::nullopt);
  for (const auto& [cpu, khz] : {std::pair{"cpu0", "1200000"}, std::pair{"cpu1", "3400000"}}) {
    write(std::string("sys/devices/system/cpu/") + cpu + "/cpufreq/scaling_cur_freq", khz);
    write(std::string("sys/devices/system/cpu/") + cpu + "/cpufreq/cpuinfo_max_freq", "3700000");
  }
  meter = clock_meter(DeviceKind::kHost, "", root_);
  EXPECT_EQ(meter->source(), "cpufreq");
  EXPECT_THAT(meter->read().core_mhz, Optional(3400.0));
  EXPECT_THAT(meter->core_max_mhz(), Optional(3700.0));
}

TEST_F(Clocks, OfAnNvidiaGpuAreNvmls) {
  setenv("ROCM_SD_NVML_LIBRARY", ROCM_SD_FAKE_NVML, 1);
  EXPECT_EQ(clock_meter(DeviceKind::kCuda, "0000:3b:00.0", root_), nullptr);  // a GPU that it does not know
  auto meter = clock_meter(DeviceKind::kCuda, "0000:1b:00.0", root_);         // reads once: 1980 MHz
  ASSERT_NE(meter, nullptr);
  EXPECT_EQ(driver_of(DeviceKind::kCuda, "0000:1b:00.0", root_), "580.159.04");
  EXPECT_THAT(Nvml("0000:1b:00.0").joules(), Optional(7.0));
  EXPECT_EQ(energy_counters(DeviceKind::kCuda, "0000:1b:00.0", root_).size(), 1u);
  ClockLog log(std::move(meter));
  EXPECT_TRUE(log.json().is_null());
  EXPECT_EQ(log.text(), "clocks: not readable");
  for (int i = 0; i < 3; ++i) log.read();
  log.read_due();  // not due yet
  const nlohmann::ordered_json want = {
      {"source", "NVML"},       {"core_mhz", {{"min", 1935.0}, {"median", 1950.0}, {"max", 1965.0}}},
      {"core_max_mhz", 1980.0}, {"memory_mhz", 3201.0},
      {"watts_max", 650.5},     {"celsius_max", 61.0}};
  EXPECT_EQ(log.json().dump(), want.dump());
  EXPECT_EQ(log.text(),
            "clocks: core 1935 to 1965 MHz (median 1950, at most 1980), memory 3201 MHz, 650 W, 61 C (NVML)");
  setenv("ROCM_SD_NVML_LIBRARY", "/nowhere/libnvidia-ml.so", 1);
  EXPECT_EQ(clock_meter(DeviceKind::kCuda, "0000:1b:00.0", root_), nullptr);
  EXPECT_THAT(driver_of(DeviceKind::kCuda, "0000:1b:00.0", root_), HasSubstr("Linux"));
  unsetenv("ROCM_SD_NVML_LIBRARY");
}

TEST_F(Clocks, DriversAreNamed) {
  EXPECT_THAT(driver_of(DeviceKind::kHip, "0000:83:00.0", root_), HasSubstr("Linux"));
  write("sys/module/amdgpu/version", "6.10.5");
  EXPECT_EQ(driver_of(DeviceKind::kHip, "0000:83:00.0", root_), "amdgpu 6.10.5");
}

TEST(Record, SaysWhoMeasuredWhatAndWhen) {
  const nlohmann::ordered_json head = record_head("bench", host_device());
  for (const char* key : {"schema", "benchmark", "command", "device", "driver", "system", "commit", "date"})
    EXPECT_TRUE(head.contains(key)) << key;
  EXPECT_EQ(head["device"], host_device().name());
  EXPECT_THAT(head["command"].get<std::string>(), testing::StartsWith("test_measurement"));
  EXPECT_THAT(head["command"].get<std::string>(), testing::Not(HasSubstr("/test_measurement")));
  EXPECT_THAT(head["date"].get<std::string>(),
              MatchesRegex("20[0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9][0-9]:[0-9][0-9]:[0-9][0-9]Z"));
  EXPECT_THAT(head["commit"].get<std::string>(),
              MatchesRegex("[0-9a-f]{10,40}( with uncommitted changes)?|unknown"));
}

}  // namespace
}  // namespace rocm_sd::measurement
