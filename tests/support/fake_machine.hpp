// A machine made of files below a temporary folder, as read_machine sees one.
#pragma once

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "doctor/machine.hpp"

namespace rocm_sd::doctor {

class FakeMachine {
 public:
  // usual: a Linux with 32 GiB, ROCm and amdgpu; else an empty tree.
  explicit FakeMachine(bool usual = true) {
    std::string pattern = (std::filesystem::temp_directory_path() / "fake_machine_XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    if (!usual) return;
    write("proc/sys/kernel/osrelease", "6.8.0-45-generic\n");
    write("proc/meminfo", "MemTotal:       33554432 kB\nMemAvailable:   16777216 kB\nSwapTotal: 0 kB\n");
    write("sys/fs/cgroup/memory.max", "max\n");
    write("sys/module/amdgpu/version", "6.8.5\n");
    write("opt/rocm/.info/version", "6.4.1\n");
    write("etc/group", fmt::format("games:x:60:\nrender:x:{}:someone\n", file_group()));
  }
  ~FakeMachine() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  FakeMachine(const FakeMachine&) = delete;
  FakeMachine& operator=(const FakeMachine&) = delete;

  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path, std::ios::binary) << text;
  }

  // An RX 7900 XTX's PCI functions with another architecture if so wished. node: of the topology.
  void add_amd(const std::string& address, int gfx_version, int node, const std::string& driver = "amdgpu") {
    const std::string device = "sys/bus/pci/devices/" + address;
    for (const auto& [name, text] :
         std::map<std::string, std::string>{{"class", "0x030000"},
                                            {"vendor", "0x1002"},
                                            {"device", "0x744c"},
                                            {"mem_info_vram_total", std::to_string(24ull << 30)},
                                            {"mem_info_vram_used", std::to_string(1ull << 30)},
                                            {"mem_info_vis_vram_total", std::to_string(24ull << 30)},
                                            {"mem_info_gtt_total", std::to_string(16ull << 30)},
                                            {"current_link_width", "16"},
                                            {"max_link_width", "16"},
                                            {"current_link_speed", "16.0 GT/s PCIe"},
                                            {"max_link_speed", "16.0 GT/s PCIe"}})
      write(device + "/" + name, text + "\n");
    std::filesystem::remove(root_ / device / "driver");
    if (!driver.empty())
      std::filesystem::create_symlink("/sys/bus/pci/drivers/" + driver, root_ / device / "driver");
    const unsigned bus = static_cast<unsigned>(std::stoul(address.substr(5, 2), nullptr, 16));
    write(fmt::format("sys/class/kfd/kfd/topology/nodes/{}/properties", node),
          fmt::format("cpu_cores_count 0\nsimd_count 192\ngfx_target_version {}\ndomain 0\nlocation_id {}\n",
                      gfx_version, bus << 8));
  }
  void add_link(int from, int to, const std::string& kind, int type, int megabytes) {
    write(fmt::format("sys/class/kfd/kfd/topology/nodes/{}/{}/{}/properties", from, kind, to),
          fmt::format("type {}\nnode_from {}\nnode_to {}\nmax_bandwidth {}\n", type, from, to, megabytes));
  }
  // Moves the device below these ports of the bus, {"pci0000:00", "0000:00:01.1"}, as sysfs has it.
  void put_below(const std::string& address, const std::vector<std::string>& ports) {
    std::filesystem::path folder = root_ / "sys/devices";
    for (const std::string& port : ports) folder /= port;
    std::filesystem::create_directories(folder);
    const std::filesystem::path device = root_ / "sys/bus/pci/devices" / address;
    std::filesystem::rename(device, folder / address);
    std::filesystem::create_symlink(folder / address, device);
  }
  // A port's link. path: "pci0000:00/0000:00:01.1".
  void add_port(const std::string& path, int width, int width_max, const std::string& speed,
                const std::string& speed_max) {
    const std::string folder = "sys/devices/" + path + "/";
    write(folder + "current_link_width", std::to_string(width));
    write(folder + "max_link_width", std::to_string(width_max));
    write(folder + "current_link_speed", speed + " GT/s PCIe\n");
    write(folder + "max_link_speed", speed_max + " GT/s PCIe\n");
  }
  // A port's configuration space with Access Control Services behind another extended capability.
  void add_acs(const std::string& path, unsigned control) {
    std::string bytes(4096, '\0');
    const auto put = [&](size_t at, unsigned value, int count) {
      for (int i = 0; i < count; ++i)
        bytes[at + static_cast<size_t>(i)] = static_cast<char>(value >> (8 * i));
    };
    put(0x100, 0x0001u | 1u << 16 | 0x2a0u << 20, 4);  // error reporting, the next one at 0x2a0
    put(0x2a0, 0x000du | 1u << 16, 4);
    put(0x2a6, control, 2);
    write("sys/devices/" + path + "/config", bytes);
  }
  void add_device_files(mode_t mode) {
    for (const char* path : {"dev/kfd", "dev/dri/renderD128"}) {
      write(path, "");
      chmod((root_ / path).c_str(), mode);
    }
  }
  void remove(const std::string& path) { std::filesystem::remove_all(root_ / path); }
  uint32_t file_owner() const { return geteuid(); }
  uint32_t file_group() const { return getegid(); }
  const std::filesystem::path& root() const { return root_; }

  Machine read(const Identity& who = {0, {}}) const { return read_machine(root_, environment, who); }

  std::map<std::string, std::string> environment;

 private:
  std::filesystem::path root_;
};

}  // namespace rocm_sd::doctor
