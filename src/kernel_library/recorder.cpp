#include "kernel_library/recorder.hpp"

#include "base/error.hpp"

namespace rocm_sd::library {

int LaunchRecorder::region_of(uint64_t address) const {
  for (size_t i = 0; i < regions_.size(); ++i)
    if (address >= regions_[i].begin && address - regions_[i].begin <= regions_[i].bytes)
      return static_cast<int>(i);
  return -1;
}

void* LaunchRecorder::allocate(size_t bytes) {
  constexpr uint64_t kPage = 4096;  // regions are apart, so that the end of one is not the next
  const uint64_t begin = next_;
  regions_.push_back({begin, bytes});
  next_ += (bytes + 2 * kPage - 1) / kPage * kPage;
  return reinterpret_cast<void*>(begin);
}

void LaunchRecorder::launch(const GpuKernel& kernel, GpuGrid grid, uint32_t threads, uint32_t lds_bytes,
                            const void* params, size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(params);
  launches_.push_back({&kernel, grid, threads, lds_bytes, {begin, begin + bytes}});
}

void LaunchRecorder::refuse(const char* what) {
  throw InternalError(concat("the kernel library cannot record ", what));
}

}  // namespace rocm_sd::library
