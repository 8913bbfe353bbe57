// The emulated AMD GPU behind the runtime's interface, as far as it needs no kernels: what it says it is,
// memory with exact bounds, graphs of copies, and what it refuses. Kernels run in tests/gpu_tests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "base/error.hpp"
#include "runtime/devices.hpp"
#include "runtime/gpu_driver.hpp"

namespace rocm_sd {
namespace {

using testing::HasSubstr;

template <class E, class F>
std::string thrown(F f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// A folder without archives for as long as it lives.
class NoKernels {
 public:
  NoKernels() {
    if (const char* value = std::getenv("ROCM_SD_KERNELS")) before_ = value;
    setenv("ROCM_SD_KERNELS", folder_.c_str(), 1);
    std::filesystem::create_directories(folder_);
  }
  ~NoKernels() {
    before_.empty() ? unsetenv("ROCM_SD_KERNELS") : setenv("ROCM_SD_KERNELS", before_.c_str(), 1);
    std::filesystem::remove(folder_);
  }

 private:
  std::string folder_ = testing::TempDir() + "no_kernels_for_emulated_gpus", before_;
};

class EmulatedDevice : public testing::Test {
 protected:
  void SetUp() override {
    if (!emulated_gpus().problem.empty()) GTEST_SKIP() << emulated_gpus().problem;
    gpu_ = make_gpu_device(open_emulator("gfx1100"));
  }
  std::unique_ptr<GpuDevice> gpu_;
};

TEST(EmulatedDevices, SayWhatIsMissing) {
  const std::string error = thrown<DeviceError>([] { device_named("emu:gfx9999"); });
  EXPECT_THAT(error, HasSubstr("emu:gfx9999"));
  const std::string problem = emulated_gpus().problem;
  EXPECT_THAT(error, HasSubstr(problem.empty() ? "gfx1100" : problem));
  EXPECT_THAT(thrown<UsageError>([] { device_named("emu"); }), HasSubstr("emu:TARGET"));
}

TEST(EmulatedDevices, AreListedWhereTheyHaveKernels) {
  const NoKernels none;
  const auto listings = list_devices();
  EXPECT_EQ(listings.back().name, "emu");
  EXPECT_FALSE(listings.back().usable);
}

TEST_F(EmulatedDevice, IsTheCardOfItsTarget) {
  EXPECT_EQ(gpu_->kind(), DeviceKind::kEmulator);
  EXPECT_EQ(gpu_->traits().lanes, 32);
  EXPECT_EQ(gpu_->traits().lds_per_group, 64u << 10);
  EXPECT_EQ(gpu_->memory().total, uint64_t{24} << 30);
  EXPECT_THAT(gpu_->name(), HasSubstr("emu:gfx1100"));
  EXPECT_EQ(make_gpu_device(open_emulator("gfx942"))->traits().lanes, 64);
}

TEST_F(EmulatedDevice, NamesATargetWithoutKernels) {
  const NoKernels none;
  const auto gpu = make_gpu_device(open_emulator("gfx1201"));
  EXPECT_THAT(thrown<DeviceError>([&] { gpu->find_kernel("probe_axpy"); }),
              HasSubstr("for which no kernels were built: no kernels_gfx1201.rsk"));
}

TEST_F(EmulatedDevice, KnowsTheBoundsOfEveryBlock) {
  std::vector<char> bytes(102);
  void* block = gpu_->allocate(101);
  gpu_->copy_to_device(block, bytes.data(), 101);
  EXPECT_THAT(thrown<DeviceError>([&] { gpu_->copy_to_device(block, bytes.data(), 102); }),
              HasSubstr("102 bytes"));
  EXPECT_THROW(gpu_->copy_to_host(bytes.data(), static_cast<char*>(block) + 1, 101), DeviceError);
  EXPECT_THROW(gpu_->fill_zero(static_cast<char*>(block) - 1, 1), DeviceError);
  EXPECT_EQ(gpu_->allocated(), 101u);
  gpu_->free(block, 101);
  EXPECT_EQ(gpu_->allocated(), 0u);
  EXPECT_THROW(gpu_->copy_to_host(bytes.data(), block, 1), DeviceError);  // given back
}

TEST_F(EmulatedDevice, ReplaysCopiesInTheirOrder) {
  const std::vector<char> ones(64, 1);
  std::vector<char> got(64);
  void *a = gpu_->allocate(64), *b = gpu_->allocate(64);
  gpu_->copy_to_device(a, ones.data(), 64);
  gpu_->copy_to_device(b, ones.data(), 64);
  gpu_->begin_capture();
  gpu_->copy_on_device(b, a, 64);
  gpu_->fill_zero(a, 64);
  const auto graph = gpu_->end_capture();
  gpu_->copy_to_host(got.data(), a, 64);
  EXPECT_EQ(got, ones) << "recording must not run";
  graph->replay();
  gpu_->copy_to_host(got.data(), b, 64);
  EXPECT_EQ(got, ones);
  graph->replay();
  gpu_->copy_to_host(got.data(), b, 64);
  EXPECT_EQ(std::count(got.begin(), got.end(), 0), 64);
  gpu_->free(a, 64);
  gpu_->free(b, 64);
}

TEST_F(EmulatedDevice, RefusesAnOddSetting) {
  setenv("ROCM_SD_EMULATOR_CHECK", "yes", 1);
  EXPECT_THAT(thrown<UsageError>([] { open_emulator("gfx1100"); }), HasSubstr("expected 0 or 1, got yes"));
  unsetenv("ROCM_SD_EMULATOR_CHECK");
}

}  // namespace
}  // namespace rocm_sd
