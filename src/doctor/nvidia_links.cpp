#include "doctor/nvidia_links.hpp"

#include "base/dynamic_library.hpp"

namespace rocm_sd::doctor {
namespace {

// nvml.h: functions return 0 on success; numbers are those of its enumerations.
constexpr int kRead = 0, kNvlink = 2;  // nvmlGpuP2PCapsIndex_t
constexpr unsigned kMaxLinks = 18;     // NVML_NVLINK_MAX_LINKS
constexpr const char* kPeerStatus[] = {"ok",
                                       "chipset not supported",
                                       "GPU not supported",
                                       "I/O hub not supported",
                                       "disabled by a registry key",
                                       "not supported",
                                       "unknown"};  // nvmlGpuP2PStatus_t

template <class Function>
Function* function_of(const DynamicLibrary& library, const char* name) {
  return reinterpret_cast<Function*>(library.symbol(name));
}

int active_links(const DynamicLibrary& library, void* device) {
  auto* const state = function_of<int(void*, unsigned, int*)>(library, "nvmlDeviceGetNvLinkState");
  int links = 0;
  for (unsigned link = 0; state && link < kMaxLinks; ++link) {
    int active = 0;
    if (state(device, link, &active) == 0 && active == 1) ++links;
  }
  return links;
}

}  // namespace

std::vector<NvidiaLink> read_nvidia_links(const std::vector<std::string>& addresses) {
  std::vector<NvidiaLink> out;
  if (addresses.size() < 2) return out;
  const DynamicLibrary library = DynamicLibrary::chosen_by("ROCM_SD_NVML_LIBRARY", {"libnvidia-ml.so.1"});
  auto* const init = function_of<int()>(library, "nvmlInit_v2");
  auto* const handle = function_of<int(const char*, void**)>(library, "nvmlDeviceGetHandleByPciBusId_v2");
  auto* const status = function_of<int(void*, void*, int, int*)>(library, "nvmlDeviceGetP2PStatus");
  if (!init || !handle || !status || init() != 0) return out;
  std::vector<void*> devices;
  for (const std::string& address : addresses) {
    void* device = nullptr;
    if (handle(address.c_str(), &device) != 0) device = nullptr;
    devices.push_back(device);
  }
  for (size_t from = 0; from < devices.size(); ++from)
    for (size_t to = 0; to < devices.size(); ++to) {
      if (from == to || !devices[from] || !devices[to]) continue;
      NvidiaLink link{.from = addresses[from], .to = addresses[to]};
      int peer = 0, over = 0;
      if (status(devices[from], devices[to], kRead, &peer) != 0) peer = 6;
      link.peer = kPeerStatus[peer >= 0 && peer <= 6 ? peer : 6];
      if (status(devices[from], devices[to], kNvlink, &over) == 0 && over == 0)
        link.nvlinks = active_links(library, devices[from]);
      out.push_back(link);
    }
  return out;
}

}  // namespace rocm_sd::doctor
