// A test of the hip device on a stand-in for libamdhip64.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "runtime/devices.hpp"
#include "runtime/gpu_driver.hpp"
#include "runtime/kernel_archive.hpp"
#include "runtime/probe.hpp"
#include "runtime/tensor.hpp"
#include "support/code_objects.hpp"
#include "support/fake_hip/fake_hip.hpp"

namespace rocm_sd {

// Loads the stand-in before anything asks for the driver: ctest runs each test in a process of its own.
class HipTest : public testing::Test {
 protected:
  explicit HipTest(const char* library = ROCM_SD_FAKE_HIP_6) {
    setenv("ROCM_SD_HIP_LIBRARY", library, 1);
    setenv("ROCM_SD_KERNELS", folder.path().c_str(), 1);
    handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    write_kernel_archive(folder.path() / "kernels_gfx1100.rsk", "gfx1100", "by hand",
                         {{"probe.co", testing_support::amd_code_object({{"probe_axpy", 32, 0, 0, 0},
                                                                         {"probe_reverse", 32, 0, 0, 0},
                                                                         {"nothing", 32, 1024, 0, 0}})}});
  }
  ~HipTest() override {
    EXPECT_STREQ(call<decltype(fake_hip_complaints)>("fake_hip_complaints")(), "");
    fail("hipStreamSynchronize", 0);
  }

  template <class Function>
  Function* call(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(handle, name));
  }
  void fail(const char* function, int status) {
    call<decltype(fake_hip_fail)>("fake_hip_fail")(function, status);
  }
  void set_card(const char* arch, uint64_t memory) {
    call<decltype(fake_hip_card)>("fake_hip_card")(arch, memory);
  }
  size_t calls(const char* function) { return call<decltype(fake_hip_calls)>("fake_hip_calls")(function); }
  size_t live() { return call<decltype(fake_hip_live)>("fake_hip_live")(); }

  static std::unique_ptr<GpuDevice> open() { return make_gpu_device(open_hip(0)); }
  static void axpy(GpuDevice& gpu, const Tensor& x, const Tensor& y, float scale) {
    const GpuKernel* kernel = gpu.find_kernel("probe_axpy");
    const ProbeParams params{x.as<float>(), y.as<float>(), scale, static_cast<int32_t>(x.numel()), 0};
    gpu.launch(*kernel, {.x = static_cast<uint32_t>((x.numel() + 255) / 256)}, 256, 0, &params,
               sizeof(params));
  }

  testing_support::TemporaryFolder folder;
  void* handle = nullptr;
};

}  // namespace rocm_sd
