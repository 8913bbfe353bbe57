// The host device: system memory, one OpenMP runtime.
#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/device.hpp"

namespace rocm_sd {
namespace {

// Blocks from here on come from mmap, so that freeing them gives the memory back at once and they can have
// huge pages.
constexpr size_t kMapThreshold = 1 << 20;
constexpr size_t kHugePage = 2 << 20;

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown CPU";
}

uint64_t meminfo_bytes(std::string_view field) {
  std::ifstream info("/proc/meminfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with(field)) return std::strtoull(line.c_str() + field.size() + 1, nullptr, 10) * 1024;
  return 0;
}

HostIsa detect_isa() {
  HostIsa isa = HostIsa::kBaseline;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("x86-64-v3")) isa = HostIsa::kV3;
  if (__builtin_cpu_supports("x86-64-v4")) isa = HostIsa::kV4;
#endif
  const char* env = std::getenv("ROCM_SD_ISA");
  const std::string_view limit = env ? env : "";
  if (limit == "baseline") return HostIsa::kBaseline;
  if (limit == "v3" && isa > HostIsa::kV3) return HostIsa::kV3;
  return isa;
}

class ReadBytes final : public PendingRead {
 public:
  ReadBytes(Device& device, const void* src, size_t bytes) : bytes_(bytes) {
    device.copy_to_host(bytes_.data(), src, bytes);
  }
  void get(void* dst) override { std::memcpy(dst, bytes_.data(), bytes_.size()); }
  bool is_here() const override { return true; }

 private:
  std::vector<char> bytes_;
};

class HostDevice final : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::kHost; }
  std::string name() const override {
    static constexpr const char* kIsaNames[] = {"SSE2", "AVX2", "AVX-512"};
    return fmt::format("host: {}, {} threads, {}{}", cpu_model(), host_threads(),
                       kIsaNames[static_cast<int>(host_isa())], host_has_bf16() ? " with bf16" : "");
  }
  MemoryInfo memory() const override { return {meminfo_bytes("MemTotal:"), meminfo_bytes("MemAvailable:")}; }

  void* allocate(size_t bytes) override {
    if (bytes == 0) bytes = 1;
    void* data = nullptr;
    if (bytes >= kMapThreshold) {
      data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (data == MAP_FAILED) data = nullptr;
      if (data && bytes >= 4 * kHugePage) madvise(data, bytes, MADV_HUGEPAGE);
    } else {
      data = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    }
    require<OutOfMemoryError>(data != nullptr, "host memory: cannot allocate ", bytes, " bytes");
    allocated_ += bytes;
    return data;
  }
  void free(void* data, size_t bytes) noexcept override {
    allocated_ -= std::max<size_t>(bytes, 1);
    if (bytes >= kMapThreshold)
      munmap(data, bytes);
    else
      std::free(data);
  }
  // An empty tensor's pointers may be null, which memcpy does not take.
  void copy_to_device(void* dst, const void* src, size_t bytes) override {
    if (bytes > 0) std::memcpy(dst, src, bytes);
  }
  void copy_to_host(void* dst, const void* src, size_t bytes) override {
    if (bytes > 0) std::memcpy(dst, src, bytes);
  }
  void copy_on_device(void* dst, const void* src, size_t bytes) override {
    if (bytes > 0) std::memmove(dst, src, bytes);
  }
  void synchronize() override {}
  DType preferred_dtype() const override { return host_has_bf16() ? DType::kBF16 : DType::kF32; }
  uint64_t allocated() const override { return allocated_; }

 private:
  std::atomic<uint64_t> allocated_ = 0;
};

}  // namespace

std::unique_ptr<PendingRead> Device::read_later(const void* src, size_t bytes) {
  return std::make_unique<ReadBytes>(*this, src, bytes);
}

Device& host_device() {
  static HostDevice device;
  return device;
}

HostIsa host_isa() {
  static const HostIsa isa = detect_isa();
  return isa;
}

bool host_has_bf16() {
#if defined(__x86_64__)
  // AMX implies AVX512-BF16 on every CPU that has it.
  return host_isa() == HostIsa::kV4 && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

int host_threads() { return omp_get_max_threads(); }

void copy_by_threads(void* dst, const void* src, size_t bytes) {
  constexpr size_t kPiece = 512 << 10;
  const size_t pieces = (bytes + kPiece - 1) / kPiece;
  const int threads =
      static_cast<int>(std::min<size_t>(pieces / 2, static_cast<size_t>(std::min(8, host_threads()))));
  if (threads <= 1) {
    if (bytes > 0) std::memcpy(dst, src, bytes);
    return;
  }
#pragma omp parallel for num_threads(threads) schedule(static)
  for (size_t piece = 0; piece < pieces; ++piece) {
    const size_t begin = piece * kPiece;
    std::memcpy(static_cast<char*>(dst) + begin, static_cast<const char*>(src) + begin,
                std::min(kPiece, bytes - begin));
  }
}

}  // namespace rocm_sd
