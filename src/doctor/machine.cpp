#include "doctor/machine.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <sstream>
#include <system_error>

#include "base/error.hpp"
#include "base/format.hpp"
#include "doctor/sysfs.hpp"

extern char** environ;

namespace rocm_sd::doctor {
namespace fs = std::filesystem;
namespace {

// A line "MemTotal:  24 kB" of /proc/meminfo in bytes.
uint64_t meminfo(const std::string& text, std::string_view name) {
  std::istringstream lines(text);
  std::string word;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    uint64_t kilobytes = 0;
    if (fields >> word >> kilobytes && word == std::string(name) + ":" && kilobytes < (1ull << 50))
      return kilobytes << 10;
  }
  return 0;
}

std::string group_name(const fs::path& root, uint32_t group) {
  std::istringstream lines(read_text(root / "etc/group", 1 << 20));
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    if (line.substr(second + 1, line.find(':', second + 1) - second - 1) == std::to_string(group))
      return printable(line.substr(0, first), 64);
  }
  return std::to_string(group);
}

std::optional<DeviceFile> device_file(const fs::path& root, const std::string& path, const Identity& who) {
  struct stat status{};
  if (stat((root / path.substr(1)).c_str(), &status) != 0) return std::nullopt;
  const bool in_group = std::find(who.groups.begin(), who.groups.end(), status.st_gid) != who.groups.end();
  const unsigned mine = who.user == status.st_uid ? status.st_mode >> 6
                        : in_group                ? status.st_mode >> 3
                                                  : status.st_mode;
  return DeviceFile{path, who.user == 0 || (mine & 6) == 6, group_name(root, status.st_gid)};
}

std::vector<DeviceFile> device_files(const fs::path& root, const Identity& who) {
  std::vector<std::string> paths{"/dev/kfd", "/dev/dxg", "/dev/nvidiactl"};
  for (const fs::path& entry : entries(root / "dev/dri"))
    if (entry.filename().string().starts_with("renderD"))
      paths.push_back("/dev/dri/" + entry.filename().string());
  std::vector<DeviceFile> files;
  for (const std::string& path : paths)
    if (auto file = device_file(root, path, who)) files.push_back(*file);
  return files;
}

std::vector<Card> read_cards(const fs::path& root) {
  std::vector<Card> cards;
  for (const fs::path& device : entries(root / "sys/bus/pci/devices")) {
    const uint64_t kind = read_number(device / "class") >> 8;     // base class and subclass
    const bool controller = kind >> 8 == 0x03 || kind == 0x1200;  // display; processing accelerator
    const auto vendor = static_cast<uint32_t>(read_number(device / "vendor"));
    if (!controller || (vendor != kAmd && vendor != kNvidia)) continue;
    Card card{.address = printable(device.filename().string(), 32),
              .vendor = vendor,
              .device = static_cast<uint32_t>(read_number(device / "device"))};
    std::error_code failed;
    card.driver = printable(fs::read_symlink(device / "driver", failed).filename().string(), 64);
    card.vram = read_number(device / "mem_info_vram_total");
    card.vram_used = read_number(device / "mem_info_vram_used");
    card.vram_visible = read_number(device / "mem_info_vis_vram_total");
    card.gtt = read_number(device / "mem_info_gtt_total");
    card.link_width = static_cast<int>(std::min<uint64_t>(read_number(device / "current_link_width"), 255));
    card.link_width_max = static_cast<int>(std::min<uint64_t>(read_number(device / "max_link_width"), 255));
    card.link_speed = printable(read_text(device / "current_link_speed", 64), 64);
    card.link_speed_max = printable(read_text(device / "max_link_speed", 64), 64);
    cards.push_back(std::move(card));
  }
  return cards;
}

// KFD's location_id is bus << 8 | device << 3 | function.
std::string pci_address(uint64_t domain, uint64_t location) {
  return fmt::format("{:04x}:{:02x}:{:02x}.{}", domain & 0xffffffff, location >> 8 & 0xff,
                     location >> 3 & 0x1f, location & 7);
}

void read_topology(const fs::path& root, Machine& machine) {
  std::map<int, Card*> gpus;
  const std::vector<fs::path> nodes = entries(root / "sys/class/kfd/kfd/topology/nodes");
  for (const fs::path& node : nodes) {
    auto properties = read_properties(node / "properties");
    const std::string arch = gfx_name(properties["gfx_target_version"]);
    if (arch.empty()) continue;
    const std::string address = pci_address(properties["domain"], properties["location_id"]);
    for (Card& card : machine.cards)
      if (card.address == address) {
        card.arch = arch;
        std::from_chars(node.filename().c_str(), node.filename().c_str() + node.filename().string().size(),
                        card.node);
        gpus[card.node] = &card;
      }
  }
  for (const auto& [index, card] : gpus)
    for (const char* kind : {"io_links", "p2p_links"})
      for (const fs::path& link :
           entries(root / "sys/class/kfd/kfd/topology/nodes" / std::to_string(index) / kind)) {
        auto properties = read_properties(link / "properties");
        const auto to = static_cast<int>(std::min<uint64_t>(properties["node_to"], 1 << 20));
        if (gpus.contains(to))
          machine.links.push_back(
              {index, to, static_cast<int>(properties["type"] & 0xff), properties["max_bandwidth"]});
      }
}

uint64_t folder_bytes(const fs::path& folder) {
  uint64_t bytes = 0;
  int files = 0;
  std::error_code failed;
  for (fs::recursive_directory_iterator it(folder, failed), end; !failed && it != end && ++files < 100'000;
       it.increment(failed)) {
    std::error_code gone;
    if (it->is_regular_file(gone)) bytes += it->file_size(gone);
  }
  return bytes;
}

std::map<std::string, uint64_t> read_caches(const fs::path& root,
                                            const std::map<std::string, std::string>& environment) {
  const auto get = [&](const char* name) {
    const auto it = environment.find(name);
    return it == environment.end() ? std::string() : it->second;
  };
  const std::string home = get("HOME");
  const std::string cache = get("XDG_CACHE_HOME").empty() ? home + "/.cache" : get("XDG_CACHE_HOME");
  std::map<std::string, uint64_t> found;
  for (const std::string& folder :
       {cache + "/rocm-sd", cache + "/miopen", home + "/.config/miopen", cache + "/comgr"}) {
    std::error_code failed;
    const fs::path place = root / fs::path(folder).relative_path();
    if (folder.starts_with("/") && fs::is_directory(place, failed)) found[folder] = folder_bytes(place);
  }
  return found;
}

// The first number of a text such as "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue ...".
std::string nvidia_version(const std::string& text) {
  std::istringstream words(text.substr(0, text.find('\n')));
  for (std::string word; words >> word;)
    if (word.find('.') != std::string::npos && word.find_first_not_of("0123456789.") == std::string::npos)
      return printable(word, 32);
  return {};
}

constexpr std::array kPrefixes = {
    "HSA_",        "HIP_", "ROCR_", "CUDA_VISIBLE", "GPU_", "MIOPEN_", "ROCBLAS_", "HIPBLASLT_", "PYTORCH_",
    "TORCH_BLAS_", "AMD_", "NCCL_", "RCCL_",        "OMP_", "GOMP_",   "ROCM_SD_", "LD_PRELOAD"};

}  // namespace

Identity current_identity() {
  Identity who{geteuid(), {getegid()}};
  std::vector<gid_t> groups(static_cast<size_t>(std::max(getgroups(0, nullptr), 0)));
  const int count = getgroups(static_cast<int>(groups.size()), groups.data());
  for (int i = 0; i < count; ++i) who.groups.push_back(groups[static_cast<size_t>(i)]);
  return who;
}

std::map<std::string, std::string> current_environment() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (const size_t equals = text.find('='); equals != std::string::npos)
      variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return variables;
}

std::string gfx_name(uint64_t version) {
  if (version == 0 || version >= 1'000'000) return {};
  return fmt::format("gfx{}{:x}{:x}", version / 10000, version / 100 % 100, version % 100);
}

std::string gfx_name_of_override(const std::string& version) {
  uint64_t parts[3] = {};
  const char *at = version.data(), *end = at + version.size();
  for (int i = 0; i < 3; ++i) {
    const auto [next, error] = std::from_chars(at, end, parts[i]);
    if (error != std::errc() || parts[i] > 99 || (i < 2 ? next == end || *next != '.' : next != end))
      return {};
    at = next + 1;
  }
  return gfx_name(parts[0] * 10000 + parts[1] * 100 + parts[2]);
}

Machine read_machine(const fs::path& root, const std::map<std::string, std::string>& environment,
                     const Identity& identity) {
  Machine machine;
  std::error_code failed;
  machine.kernel = printable(read_text(root / "proc/sys/kernel/osrelease", 256), 128);
  machine.wsl = machine.kernel.find("icrosoft") != std::string::npos;
  machine.container =
      fs::exists(root / ".dockerenv", failed) || fs::exists(root / "run/.containerenv", failed);
  const std::string memory = read_text(root / "proc/meminfo");
  machine.memory = meminfo(memory, "MemTotal");
  machine.memory_available = meminfo(memory, "MemAvailable");
  machine.swap = meminfo(memory, "SwapTotal");
  machine.memory_limit = read_number(root / "sys/fs/cgroup/memory.max");  // "max" is no number: none
  machine.rocm = printable(read_text(root / "opt/rocm/.info/version", 64), 64);
  machine.amdgpu = printable(read_text(root / "sys/module/amdgpu/version", 64), 64);
  machine.amdgpu_loaded = fs::is_directory(root / "sys/module/amdgpu", failed);
  machine.nvidia = nvidia_version(read_text(root / "proc/driver/nvidia/version", 512));
  machine.cards = read_cards(root);
  read_topology(root, machine);
  machine.files = device_files(root, identity);
  machine.caches = read_caches(root, environment);
  for (const auto& [name, value] : environment)
    if (std::any_of(kPrefixes.begin(), kPrefixes.end(), [&](const char* p) { return name.starts_with(p); }))
      machine.environment[name] = value;
  return machine;
}

}  // namespace rocm_sd::doctor
