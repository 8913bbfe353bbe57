// Where a GPU sits on the PCI bus: the ports from the root port down to it, and what each of their links runs
// at. Read from /sys below a root folder; what cannot be read stays empty.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace rocm_sd::doctor {

// One end of a link: a root port, a port of a switch, or the GPU.
struct PciPort {
  std::string address;                  // "0000:00:01.1"
  int width = 0, width_max = 0;         // lanes; 0: not told
  double speed = 0, speed_max = 0;      // GT/s of a lane; 0: not told
  bool acs_readable = false;            // root may read it, others often may not
  std::optional<unsigned> acs_control;  // of Access Control Services; nothing: it has none
};

// What a link between two ports runs at.
struct PciLink {
  std::string at;  // the address of its lower end
  int width = 0;
  double speed = 0;
  double bytes_per_second() const;  // each way, before what packets cost; 0: not told
  std::string text() const;         // "PCIe 4.0 x16"
};

struct PciPlace {
  std::string address;
  std::string root;           // "pci0000:00"; "": not told
  std::vector<PciPort> path;  // from the root port down to the GPU, which is the last one
  int numa = -1;              // the memory node beside it
  uint64_t window_bytes = 0;  // of its largest PCI window (BAR)
  std::string iommu_type;     // "DMA-FQ", "identity" (no translation); "": no group, or not told

  PciLink slowest_now() const;   // of the links of the path
  PciLink slowest_ever() const;  // of what both ends of each link could do
  PciLink own() const;           // what the GPU alone could do
};

// Bits of the control register of Access Control Services (PCIe base specification, 7.7.8.3).
inline constexpr unsigned kAcsRequestRedirect = 1u << 2, kAcsCompletionRedirect = 1u << 3,
                          kAcsEgressControl = 1u << 5;

PciPlace read_place(const std::filesystem::path& root, const std::string& address);

// How many ports two paths have in common, from the root port on; 0 where their roots differ.
size_t common_ports(const PciPlace& one, const PciPlace& other);

}  // namespace rocm_sd::doctor
