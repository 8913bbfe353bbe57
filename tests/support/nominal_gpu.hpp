// A GPU that has every kernel of this project's and no memory: ops choose on it as on the real one, and
// nothing runs.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "runtime/gpu.hpp"

namespace rocm_sd::testing_support {

class NominalGpu final : public GpuDevice {
 public:
  explicit NominalGpu(GpuTraits traits) : traits_(std::move(traits)) {}

  DeviceKind kind() const override { return DeviceKind::kHip; }
  std::string name() const override { return traits_.arch; }
  MemoryInfo memory() const override { return {uint64_t{1} << 40, uint64_t{1} << 40}; }
  const GpuTraits& traits() const override { return traits_; }
  DType preferred_dtype() const override { return DType::kF16; }
  const GpuKernel* find_kernel(std::string_view name) override {
    if (name.starts_with("ck_")) return nullptr;  // an option of the build
    auto& kernel = kernels_[std::string(name)];
    if (!kernel) kernel = std::make_unique<GpuKernel>(GpuKernel{std::string(name), nullptr});
    return kernel.get();
  }
  // Addresses at which nothing lies.
  void* allocate(size_t bytes) override {
    next_ += (bytes + 0xffff) & ~uintptr_t{0xffff};
    return reinterpret_cast<void*>(next_ - ((bytes + 0xffff) & ~uintptr_t{0xffff}));
  }
  void free(void*, size_t) noexcept override {}
  void launch(const GpuKernel&, GpuGrid, uint32_t, uint32_t, const void*, size_t) override {}
  void map_boxes(void*, const MatrixBoxes&) override {}
  void map_boxes(void*, const HeadBoxes&) override {}
  void map_boxes(void*, const ImageBoxes&) override {}
  void synchronize() override {}
  void copy_to_device(void*, const void*, size_t) override {}
  void copy_to_host(void*, const void*, size_t) override {}
  void copy_on_device(void*, const void*, size_t) override {}
  void fill_zero(void*, size_t) override {}
  void begin_capture() override {}
  std::unique_ptr<GpuGraph> end_capture() override { return nullptr; }
  std::unique_ptr<GpuEvent> make_event() override { return nullptr; }

 private:
  GpuTraits traits_;
  std::map<std::string, std::unique_ptr<GpuKernel>> kernels_;
  uintptr_t next_ = uintptr_t{1} << 40;
};

// RX 7900 XTX, RX 9070 XT, MI300X, MI250X, A100, H200, as their drivers describe them.
inline GpuTraits nominal_traits(const std::string& arch) {
  GpuTraits traits;
  traits.arch = arch;
  traits.family = gpu_family(arch).value();
  traits.lanes = wave_lanes(traits.family);
  const std::map<std::string, int> compute_units = {{"gfx1100", 48}, {"gfx1201", 32}, {"gfx942", 304},
                                                    {"gfx90a", 110}, {"sm_80", 108},  {"sm_90", 132}};
  traits.compute_units = compute_units.at(arch);
  traits.lds_per_group = arch == "sm_90" ? 232448 : arch == "sm_80" ? 166912 : 65536;
  traits.l2_bytes = 32 << 20;
  traits.tma = arch == "sm_90";
  traits.cluster = arch == "sm_90" ? 8 : 1;
  return traits;
}

}  // namespace rocm_sd::testing_support
