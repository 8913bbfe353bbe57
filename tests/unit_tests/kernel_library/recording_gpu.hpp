// A GPU over host memory that runs nothing and keeps its launches: what an op launches on real addresses.
#pragma once

#include <cstdlib>
#include <map>
#include <memory>

#include "kernel_library/recorder.hpp"

namespace rocm_sd::library {

class RecordingGpu final : public GpuDevice {
 public:
  explicit RecordingGpu(GpuTraits traits) : traits_(std::move(traits)) {}

  struct Launch {
    void* stream;  // of launch_on; this device otherwise
    RecordedLaunch launch;
  };
  std::vector<Launch> launches;
  void* context = nullptr;  // of "the thread"
  std::string missing;      // no kernel with this in its name

  DeviceKind kind() const override { return DeviceKind::kHip; }
  std::string name() const override { return "a recording GPU"; }
  MemoryInfo memory() const override { return {}; }
  const GpuTraits& traits() const override { return traits_; }
  DType preferred_dtype() const override { return DType::kF16; }
  const GpuKernel* find_kernel(std::string_view name) override {
    context = this;
    if (!missing.empty() && name.find(missing) != std::string_view::npos) return nullptr;
    auto& kernel = kernels_[std::string(name)];
    if (!kernel) kernel = std::make_unique<GpuKernel>(GpuKernel{std::string(name), nullptr});
    return kernel.get();
  }
  void* allocate(size_t bytes) override { return std::aligned_alloc(256, (bytes + 256) / 256 * 256); }
  void free(void* data, size_t) noexcept override { std::free(data); }
  void launch(const GpuKernel& kernel, GpuGrid grid, uint32_t threads, uint32_t lds, const void* params,
              size_t bytes) override {
    launch_on(this, kernel, grid, threads, lds, params, bytes);
  }
  void launch_on(void* stream, const GpuKernel& kernel, GpuGrid grid, uint32_t threads, uint32_t lds,
                 const void* params, size_t bytes) override {
    context = this;
    const auto* begin = static_cast<const std::byte*>(params);
    launches.push_back({stream, {&kernel, grid, threads, lds, {begin, begin + bytes}}});
  }
  void* thread_context() override { return context; }
  void restore_thread_context(void* before) noexcept override { context = before; }
  void synchronize() override {}
  void copy_to_device(void*, const void*, size_t) override { std::abort(); }
  void copy_to_host(void*, const void*, size_t) override { std::abort(); }
  void copy_on_device(void*, const void*, size_t) override { std::abort(); }
  void fill_zero(void*, size_t) override { std::abort(); }
  void begin_capture() override { std::abort(); }
  std::unique_ptr<GpuGraph> end_capture() override { std::abort(); }
  std::unique_ptr<GpuEvent> make_event() override { std::abort(); }

 private:
  GpuTraits traits_;
  std::map<std::string, std::unique_ptr<GpuKernel>> kernels_;
};

inline GpuTraits traits_of(const std::string& arch) {
  GpuTraits traits;
  traits.arch = arch;
  traits.family = *gpu_family(arch);
  traits.lanes = wave_lanes(traits.family);
  traits.compute_units = 96;
  traits.lds_per_group = traits.family == GpuFamily::kNvidia ? 166912 : 65536;
  traits.l2_bytes = 6 << 20;
  return traits;
}

}  // namespace rocm_sd::library
