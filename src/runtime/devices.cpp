#include "runtime/devices.hpp"

#include <charconv>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "runtime/gpu_driver.hpp"
#include "runtime/kernel_archive.hpp"

namespace rocm_sd {
namespace {

bool has_code(const GpuDescription& gpu) {
  for (const std::string& target : gpu.targets)
    if (find_kernel_archive(target)) return true;
  return false;
}

struct DeviceName {
  bool hip = false;
  int index = 0;
};

constexpr std::string_view kEmulated = "emu:";

// "hip", "hip:1", "cuda:0".
std::optional<DeviceName> parse(std::string_view name) {
  DeviceName parsed;
  const size_t colon = name.find(':');
  const std::string_view api = name.substr(0, colon);
  if (api != "hip" && api != "cuda") return std::nullopt;
  parsed.hip = api == "hip";
  if (colon == std::string_view::npos) return parsed;
  const std::string_view number = name.substr(colon + 1);
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), parsed.index);
  if (error != std::errc() || end != number.data() + number.size() || parsed.index < 0 || number.size() > 3)
    return std::nullopt;
  return parsed;
}

// The first GPU that can run what was built, as device_named takes it; "cpu" where there is none.
std::string best_device() {
  for (const GpuReport& report : {hip_gpus(), cuda_gpus()})
    for (const GpuDescription& gpu : report.gpus) {
      if (has_code(gpu)) return gpu.device;
      log().info("{} ({}) is not used: no kernels were built for {}", gpu.device, gpu.product,
                 gpu.traits.arch);
    }
  return "cpu";
}

std::unique_ptr<GpuDriver> open(const std::string& name, const std::optional<DeviceName>& parsed) {
  if (parsed) return parsed->hip ? open_hip(parsed->index) : open_cuda(parsed->index);
  return open_emulator(name.substr(kEmulated.size()));
}

DeviceListing listing_of(const GpuDescription& gpu) {
  const bool usable = has_code(gpu);
  return {.name = gpu.device,
          .detail = fmt::format("{}, {}, {:.1f} GiB{}", gpu.product, gpu.traits.arch,
                                static_cast<double>(gpu.memory_bytes) / (1 << 30),
                                usable ? "" : "; no kernels were built for it"),
          .usable = usable};
}

// Emulated GPUs, of which every machine has all: only those with kernels.
void list_emulated(std::vector<DeviceListing>& listings) {
  const GpuReport report = emulated_gpus();
  const size_t before = listings.size();
  for (const GpuDescription& gpu : report.gpus)
    if (has_code(gpu)) listings.push_back(listing_of(gpu));
  if (listings.size() > before) return;
  listings.push_back(
      {.name = "emu",
       .detail = report.problem.empty() ? "no kernels were built for any AMD GPU" : report.problem});
}

}  // namespace

Device& device_named(const std::string& name) { return device_copy(name, 0); }

Device& device_copy(const std::string& name, int copy) {
  if (name == "cpu") return host_device();
  if (name == "auto") {
    static const std::string best = best_device();
    return device_copy(best, copy);
  }
  const bool emulated = name.starts_with(kEmulated);
  const auto parsed = parse(name);
  require<UsageError>(parsed || emulated, "device \"", printable(name),
                      "\": expected cpu, auto, hip, hip:N, cuda, cuda:N or emu:TARGET (emu:gfx1100)");
  // Never closed: a driver may be gone before the process's last destructor runs.
  static std::mutex mutex;
  static auto& opened = *new std::map<std::pair<std::string, int>, std::unique_ptr<GpuDevice>>;
  const std::lock_guard lock(mutex);
  const std::pair key(emulated ? name : concat(parsed->hip ? "hip:" : "cuda:", parsed->index), copy);
  if (const auto found = opened.find(key); found != opened.end()) return *found->second;
  auto device = make_gpu_device(open(name, parsed));
  return *opened.emplace(key, std::move(device)).first->second;
}

Device& current_device(const std::string& name) {
  require<UsageError>(name == "hip:current" || name == "cuda:current", "device \"", printable(name),
                      "\": expected hip:current or cuda:current");
  if (name == "hip:current") return device_named(concat("hip:", current_hip().index));
  const CurrentGpu gpu = current_cuda();
  if (!gpu.context) return device_named(concat("cuda:", gpu.index));
  static std::mutex mutex;
  static auto& adopted = *new std::map<void*, std::unique_ptr<GpuDevice>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<GpuDevice>& device = adopted[gpu.context];
  if (!device) device = make_gpu_device(open_cuda_context(gpu));
  return *device;
}

std::vector<DeviceListing> list_devices() {
  std::vector<DeviceListing> listings{{.name = "cpu", .detail = host_device().name(), .usable = true}};
  for (const auto& [api, report] : {std::pair{"hip", hip_gpus()}, std::pair{"cuda", cuda_gpus()}}) {
    if (!report.problem.empty()) listings.push_back({.name = api, .detail = report.problem});
    for (const GpuDescription& gpu : report.gpus) listings.push_back(listing_of(gpu));
  }
  list_emulated(listings);
  return listings;
}

}  // namespace rocm_sd
