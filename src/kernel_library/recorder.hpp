// LaunchRecorder: a GPU that runs nothing. Ops launch on it over memory that has addresses and no bytes, and
// what they would have launched is kept, so that it can be launched later on other addresses.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "runtime/gpu.hpp"
#include "runtime/tensor.hpp"

namespace rocm_sd::library {

struct RecordedLaunch {
  const GpuKernel* kernel = nullptr;
  GpuGrid grid;
  uint32_t threads = 0, lds_bytes = 0;
  std::vector<std::byte> params;
};

class LaunchRecorder final : public GpuDevice {
 public:
  // base: where the addresses begin; far from anything that a parameter may be by chance is not needed, see
  // program.cpp. The GPU must outlive the recorder.
  LaunchRecorder(GpuDevice& gpu, uint64_t base) : gpu_(gpu), traits_(gpu.traits()), next_(base) {
    traits_.tma = false;  // its maps hold addresses that could not be replaced
  }

  struct Region {
    uint64_t begin = 0;
    size_t bytes = 0;
  };
  // In the order in which they were asked for; none is ever given back.
  const std::vector<Region>& regions() const { return regions_; }
  // The region that holds the address (or ends there), or -1.
  int region_of(uint64_t address) const;
  std::vector<RecordedLaunch> take_launches() { return std::exchange(launches_, {}); }

  DeviceKind kind() const override { return gpu_.kind(); }
  std::string name() const override { return gpu_.name(); }
  MemoryInfo memory() const override { return gpu_.memory(); }
  const GpuTraits& traits() const override { return traits_; }
  DType preferred_dtype() const override { return gpu_.preferred_dtype(); }
  const GpuKernel* find_kernel(std::string_view name) override { return gpu_.find_kernel(name); }

  void* allocate(size_t bytes) override;
  void free(void*, size_t) noexcept override {}
  void launch(const GpuKernel& kernel, GpuGrid grid, uint32_t threads, uint32_t lds_bytes, const void* params,
              size_t bytes) override;
  void synchronize() override {}  // nothing runs

  // No op that the library offers does any of these; InternalError.
  void copy_to_device(void*, const void*, size_t) override { refuse("copies to the device"); }
  void copy_to_host(void*, const void*, size_t) override { refuse("copies to the host"); }
  void copy_on_device(void*, const void*, size_t) override { refuse("copies on the device"); }
  void fill_zero(void*, size_t) override { refuse("fills"); }
  void begin_capture() override { refuse("captures"); }
  std::unique_ptr<GpuGraph> end_capture() override { refuse("captures"); }
  std::unique_ptr<GpuEvent> make_event() override { refuse("events"); }

 private:
  [[noreturn]] static void refuse(const char* what);

  GpuDevice& gpu_;
  GpuTraits traits_;
  uint64_t next_;
  std::vector<Region> regions_;
  std::vector<RecordedLaunch> launches_;
};

}  // namespace rocm_sd::library
