#include "scaling/device_list.hpp"

#include <map>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

bool is_gpu(const std::string& name) { return name.starts_with("hip:") || name.starts_with("cuda:"); }

std::vector<ListedDevice> every_gpu(const std::vector<DeviceInfo>& there) {
  std::vector<ListedDevice> out;
  std::string reasons;
  for (const DeviceInfo& device : there) {
    if (device.usable && is_gpu(device.name))
      out.push_back({device.name, 0});
    else if (device.name != "cpu" && !device.name.starts_with("emu"))
      reasons += concat("; ", device.name, ": ", device.detail);
  }
  require<DeviceError>(!out.empty(), "devices: all: there is no usable GPU", reasons);
  return out;
}

}  // namespace

std::vector<ListedDevice> parse_devices(std::string_view list, const std::vector<DeviceInfo>& there) {
  if (list == "all") return every_gpu(there);
  std::vector<ListedDevice> out;
  std::map<std::string, int> copies;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    std::string name(list.substr(begin, end - begin));
    begin = end + 1;
    require<UsageError>(!name.empty() && name != "auto" && name != "all", "devices: \"", printable(list),
                        "\": expected all, or names with commas between them such as cuda:0,cuda:1");
    require<UsageError>(out.size() < kMaxDevices, "devices: more than ", kMaxDevices);
    if (name == "hip" || name == "cuda") name += ":0";
    const int copy = copies[name]++;
    out.push_back({std::move(name), copy});
  }
  return out;
}

}  // namespace rocm_sd
