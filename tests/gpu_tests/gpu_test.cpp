// main() of the GPU tests.
#include "gpu_tests/gpu_test.hpp"

#include <cmath>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "base/error.hpp"
#include "runtime/devices.hpp"

namespace rocm_sd {
namespace {

GpuDevice* opened = nullptr;

void open_device() {
  const char* name = std::getenv("ROCM_SD_TEST_DEVICE");
  Device& device = device_named(name && *name ? name : "auto");
  if (device.kind() == DeviceKind::kHost) {
    std::string found;
    for (const DeviceListing& listing : list_devices())
      found += concat("\n  ", listing.name, ": ", listing.detail);
    throw DeviceError(
        concat("these tests need a GPU, and none is usable here (ROCM_SD_TEST_DEVICE names one):", found));
  }
  opened = static_cast<GpuDevice*>(&device);
}

}  // namespace

GpuDevice& test_gpu() { return *opened; }
bool test_gpu_is_emulated() {
  const char* small = std::getenv("ROCM_SD_TEST_SMALL");  // a tool that is as slow watches a real one
  return opened->kind() == DeviceKind::kEmulator || (small && std::string_view(small) == "1");
}

double test_gpu_most_flops() {
  constexpr double kInterpreted = 2e9;
  const char* asked = std::getenv("ROCM_SD_TEST_GFLOP");
  if (!asked || !*asked) return test_gpu_is_emulated() ? kInterpreted : HUGE_VAL;
  char* end = nullptr;
  const double giga = std::strtod(asked, &end);
  require<UsageError>(*end == 0 && giga > 0, "ROCM_SD_TEST_GFLOP: expected a positive number, got \"", asked,
                      "\"");
  return giga * 1e9;
}

}  // namespace rocm_sd

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (GTEST_FLAG_GET(list_tests)) return RUN_ALL_TESTS();
  try {
    rocm_sd::open_device();
  } catch (const rocm_sd::Error& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(error.exit_code());
  }
  std::cout << "device: " << rocm_sd::test_gpu().name() << std::endl;
  if (rocm_sd::test_gpu_is_emulated() && GTEST_FLAG_GET(filter) == "*") GTEST_FLAG_SET(filter, "-*Full*");
  return RUN_ALL_TESTS();
}
