#include "analysis/paper_gpu.hpp"

#include <algorithm>
#include <map>
#include <mutex>

#include "base/error.hpp"
#include "runtime/gpu_driver.hpp"

namespace rocm_sd {
namespace {

// The family whose kernels a card of this architecture would run: newer NVIDIA cards run those of the older.
GpuFamily family_of(const std::string& arch) {
  if (const auto family = gpu_family(arch)) return *family;
  require<UsageError>(arch.starts_with("sm_"), "architecture \"", printable(arch),
                      "\": no kernels are written for it");
  return GpuFamily::kNvidia;
}

class PaperDriver final : public GpuDriver {
 public:
  explicit PaperDriver(const GpuProduct& product) {
    const GpuFamily family = family_of(product.arch);
    const bool nvidia = family == GpuFamily::kNvidia;
    const ArchRates* rates = find_arch_rates(product.arch);
    description_ = {
        .kind = nvidia ? DeviceKind::kCuda : DeviceKind::kHip,
        .device = "paper",
        .product = product.name,
        .traits = {.arch = product.arch,
                   .family = family,
                   .lanes = wave_lanes(family),
                   .compute_units = driver_compute_units(product),
                   .lds_per_group = rates ? static_cast<size_t>(rates->lds_bytes) : 65536,
                   .l2_bytes = static_cast<size_t>(std::max(product.l2_mb, product.last_level_mb) * 1e6)},
        .memory_bytes = static_cast<uint64_t>(product.memory_gb * (1 << 30)),
        .targets = {product.arch}};
    for (const GpuTarget& target : kGpuTargets)
      if (target.family == family && target.arch != product.arch)
        description_.targets.emplace_back(target.arch);
  }

  const GpuDescription& description() const override { return description_; }
  void make_current() override {}
  MemoryInfo memory() override { return {description_.memory_bytes, description_.memory_bytes - taken_}; }

  // Addresses that nothing is stored at, each block apart from the others by more than its size.
  void* allocate(size_t bytes) override {
    const std::lock_guard lock(mutex_);
    if (bytes > description_.memory_bytes - taken_) return nullptr;
    taken_ += bytes;
    const uintptr_t at = next_;
    next_ += (bytes + 0xffff) & ~uintptr_t{0xffff};
    blocks_[at] = bytes;
    return reinterpret_cast<void*>(at);
  }
  void free(void* data) noexcept override {
    const std::lock_guard lock(mutex_);
    if (const auto block = blocks_.find(reinterpret_cast<uintptr_t>(data)); block != blocks_.end()) {
      taken_ -= block->second;
      blocks_.erase(block);
    }
  }
  void* allocate_pinned(size_t) override { return nullptr; }  // copies then go nowhere without a detour
  void free_pinned(void*) noexcept override {}

  void copy_to_device_async(void*, const void*, size_t) override {}
  void copy_to_host_async(void*, const void*, size_t) override { refuse("copy_to_host"); }
  void copy_on_device_async(void*, const void*, size_t) override {}
  void fill_zero_async(void*, size_t) override {}
  void synchronize() override {}

  void* load_module(const std::string&) override { return this; }
  void unload_module(void*) noexcept override {}
  void* function(void*, const std::string&) override { return this; }
  void allow_lds(void*, uint32_t) override {}
  void launch_async(void*, GpuGrid, uint32_t, uint32_t, const void*, size_t) override {}

  void begin_capture() override { refuse("begin_capture"); }
  void* end_capture(std::string&) override { return nullptr; }
  void launch_graph_async(void*) override { refuse("launch_graph"); }
  void destroy_graph(void*) noexcept override {}

  void* create_event() override { return this; }
  void destroy_event(void*) noexcept override {}
  void record_event(void*) override {}
  void wait_event(void*) override {}
  double milliseconds(void*, void*) const override { refuse("milliseconds"); }

 private:
  [[noreturn]] void refuse(std::string_view call) const {
    throw InternalError(gpu_call_failed(description_, call, "this GPU exists on paper only"));
  }

  GpuDescription description_;
  std::mutex mutex_;
  std::map<uintptr_t, size_t> blocks_;
  uint64_t taken_ = 0;
  uintptr_t next_ = uintptr_t{1} << 40;
};

}  // namespace

std::unique_ptr<GpuDevice> make_paper_gpu(const GpuProduct& product) {
  return make_gpu_device(std::make_unique<PaperDriver>(product));
}

}  // namespace rocm_sd
