// What Linux tells of a machine's GPUs, drivers and limits: read from /sys, /proc, /dev and /etc below a root
// folder, so that a test can give a tree of its own. Nothing here opens a device or throws: what cannot be
// read stays empty, and every number is bounds-checked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace rocm_sd::doctor {

inline constexpr uint32_t kAmd = 0x1002, kNvidia = 0x10de;  // PCI vendors

// A display or compute controller of one of the two vendors.
struct Card {
  std::string address;                     // "0000:03:00.0"
  uint32_t vendor = 0, device = 0;         // PCI identifiers
  std::string driver;                      // "amdgpu", "nvidia", "vfio-pci"; "": none is bound
  std::string arch;                        // "gfx1100", from the KFD topology; "": not listed there
  uint64_t vram = 0, vram_used = 0;        // bytes; 0: not told
  uint64_t vram_visible = 0;               // bytes of VRAM that the host can address (resizable BAR)
  uint64_t gtt = 0;                        // bytes of host memory that the GPU may map
  int link_width = 0, link_width_max = 0;  // PCIe lanes
  std::string link_speed, link_speed_max;  // "16.0 GT/s PCIe"
  int node = -1;                           // of the KFD topology
};

// A way from one KFD node to another (/sys/class/kfd/kfd/topology/nodes/*/io_links and p2p_links).
struct Link {
  int from = 0, to = 0;
  int type = 0;                // 2: PCIe, 11: xGMI
  uint64_t max_megabytes = 0;  // per second; 0: not told
};

// A device file and whether this process's user may read and write it.
struct DeviceFile {
  std::string path;  // without the root
  bool accessible = false;
  std::string group;  // that owns it, "render"; its number where it has no name
};

struct Identity {
  uint32_t user = 0;
  std::vector<uint32_t> groups;
};
Identity current_identity();

struct Machine {
  std::string kernel;  // "6.8.0-45-generic"
  bool wsl = false;    // Windows' subsystem for Linux
  bool container = false;
  uint64_t memory = 0, memory_available = 0, swap = 0;  // bytes
  uint64_t memory_limit = 0;                            // of the control group; 0: none
  std::string rocm, amdgpu, nvidia;        // versions of ROCm, of the two kernel drivers; "": not there
  bool amdgpu_loaded = false;              // the module is in the kernel
  std::vector<Card> cards;                 // by address
  std::vector<Link> links;                 // between GPUs only
  std::vector<DeviceFile> files;           // /dev/kfd, /dev/dri/renderD*, /dev/dxg, /dev/nvidia*
  std::map<std::string, uint64_t> caches;  // folder -> bytes in it; those that exist
  std::map<std::string, std::string> environment;  // the variables that matter here
};

// environment: the process's, or a test's; only the variables that some check knows are kept.
Machine read_machine(const std::filesystem::path& root, const std::map<std::string, std::string>& environment,
                     const Identity& identity);
std::map<std::string, std::string> current_environment();

// 110001 -> "gfx1101", 90010 -> "gfx90a" (KFD's gfx_target_version: major * 10000 + minor * 100 + stepping,
// the last two as hexadecimal digits of the name); "" for 0, a CPU.
std::string gfx_name(uint64_t target_version);

// "11.0.0" -> "gfx1100", as HSA_OVERRIDE_GFX_VERSION is written; "" for another form.
std::string gfx_name_of_override(const std::string& version);

}  // namespace rocm_sd::doctor
