// What NVIDIA's management library tells of the links between its GPUs.
#pragma once

#include <string>
#include <vector>

namespace rocm_sd::doctor {

// Of the GPU `from` to the GPU `to`, by their places on the PCI bus.
struct NvidiaLink {
  std::string from, to;
  int nvlinks = 0;   // active links of `from`, where both reach each other over them
  std::string peer;  // "ok", or why there is no peer access: "chipset not supported", ...
};

// Every ordered pair of these GPUs; empty where the library (ROCM_SD_NVML_LIBRARY, libnvidia-ml.so.1) is not
// there or does not know them.
std::vector<NvidiaLink> read_nvidia_links(const std::vector<std::string>& addresses);

}  // namespace rocm_sd::doctor
