#include "doctor/pci_place.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <sstream>

#include "base/format.hpp"
#include "doctor/sysfs.hpp"

namespace rocm_sd::doctor {
namespace fs = std::filesystem;
namespace {

struct Generation {
  double speed;             // GT/s
  double bytes_per_second;  // of a lane, after the line code (8b/10b, 128b/130b, 242B/256B)
  const char* name;
};
constexpr Generation kGenerations[] = {{2.5, 0.25e9, "1.0"}, {5, 0.5e9, "2.0"},    {8, 0.985e9, "3.0"},
                                       {16, 1.969e9, "4.0"}, {32, 3.938e9, "5.0"}, {64, 7.563e9, "6.0"}};

const Generation* generation(double speed) {
  for (const Generation& known : kGenerations)
    if (known.speed == speed) return &known;
  return nullptr;
}

// "16.0 GT/s PCIe" -> 16; only speeds that there are.
double speed_of(const std::string& text) {
  const double speed = std::strtod(text.c_str(), nullptr);
  return generation(speed) ? speed : 0;
}

int small_number(const fs::path& path) {
  return static_cast<int>(std::min<uint64_t>(read_number(path), 255));
}

unsigned little_endian(const std::string& bytes, size_t at, size_t count) {
  unsigned value = 0;
  for (size_t i = 0; i < count; ++i) value |= unsigned{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  return value;
}

// Extended capabilities are a list from byte 256 on: identifier, version and the next one's place.
void read_acs(const fs::path& config, PciPort& port) {
  const std::string bytes = read_bytes(config, 4096);
  constexpr unsigned kAcs = 0x000d;
  size_t at = 0x100;
  port.acs_readable = bytes.size() >= at + 4;
  for (int hops = 0; hops < 64 && at >= 0x100 && at + 8 <= bytes.size(); ++hops) {
    const unsigned head = little_endian(bytes, at, 4);
    if ((head & 0xffff) == kAcs) {
      port.acs_control = little_endian(bytes, at + 6, 2);
      return;
    }
    at = head >> 20 & 0xffc;
  }
}

bool is_address(const std::string& name) {
  return name.size() >= 12 && name.size() < 20 && name[name.size() - 2] == '.' &&
         name.find_first_not_of("0123456789abcdef:.") == std::string::npos;
}

PciPort read_port(const fs::path& folder) {
  PciPort port{.address = folder.filename().string()};
  port.width = small_number(folder / "current_link_width");
  port.width_max = small_number(folder / "max_link_width");
  port.speed = speed_of(read_text(folder / "current_link_speed", 64));
  port.speed_max = speed_of(read_text(folder / "max_link_speed", 64));
  read_acs(folder / "config", port);
  return port;
}

// Lines "start end flags" in hexadecimal, the first six of them windows.
uint64_t largest_window(const std::string& text) {
  std::istringstream lines(text);
  uint64_t most = 0, start = 0, end = 0, flags = 0;
  constexpr uint64_t kMemory = 0x200;
  lines >> std::hex;
  for (int i = 0; i < 6 && lines >> start >> end >> flags; ++i)
    if (flags & kMemory && end > start) most = std::max(most, end - start + 1);
  return most;
}

template <class Rate>
PciLink slowest(const std::vector<PciPort>& path, const Rate& rate) {
  PciLink out;
  for (size_t i = path.size() > 1 ? 1 : 0; i < path.size(); ++i) {
    const PciPort& lower = path[i];
    const PciLink link = rate(i > 0 ? path[i - 1] : lower, lower);
    const double bytes = link.bytes_per_second();
    if (bytes > 0 && (out.width == 0 || bytes < out.bytes_per_second())) out = link;
  }
  return out;
}

// Of what two ends tell, the less; what one does not tell counts for nothing.
template <class T>
T less(T one, T other) {
  return one == 0 ? other : other == 0 ? one : std::min(one, other);
}

}  // namespace

double PciLink::bytes_per_second() const {
  const Generation* const known = generation(speed);
  return known ? width * known->bytes_per_second : 0;
}

std::string PciLink::text() const {
  const Generation* const known = generation(speed);
  return known && width > 0 ? fmt::format("PCIe {} x{}", known->name, width) : "not told";
}

PciLink PciPlace::slowest_now() const {
  return slowest(path, [](const PciPort& upper, const PciPort& lower) {
    return PciLink{lower.address, less(upper.width, lower.width), less(upper.speed, lower.speed)};
  });
}

PciLink PciPlace::slowest_ever() const {
  return slowest(path, [](const PciPort& upper, const PciPort& lower) {
    return PciLink{lower.address, less(upper.width_max, lower.width_max),
                   less(upper.speed_max, lower.speed_max)};
  });
}

PciLink PciPlace::own() const {
  return path.empty() ? PciLink{} : PciLink{address, path.back().width_max, path.back().speed_max};
}

PciPlace read_place(const fs::path& root, const std::string& address) {
  PciPlace place{.address = address};
  std::error_code failed;
  const fs::path link = root / "sys/bus/pci/devices" / address;
  const fs::path device = fs::canonical(link, failed);
  if (failed) return place;
  fs::path folder;
  for (const fs::path& part : device) {
    folder /= part;
    const std::string name = part.string();
    if (name.starts_with("pci") && name.size() < 32) place.root = name;
    if (is_address(name)) place.path.push_back(read_port(folder));
  }
  const std::string numa = read_text(device / "numa_node", 32);
  std::from_chars(numa.data(), numa.data() + numa.size(), place.numa);
  place.window_bytes = largest_window(read_text(device / "resource"));
  place.iommu_type = read_text(device / "iommu_group/type", 32);
  return place;
}

size_t common_ports(const PciPlace& one, const PciPlace& other) {
  if (one.root != other.root || one.root.empty()) return 0;
  const size_t most = std::min(one.path.size(), other.path.size());
  size_t same = 0;
  while (same < most && one.path[same].address == other.path[same].address) ++same;
  return same;
}

}  // namespace rocm_sd::doctor
