// "cuda:0,cuda:1", "cpu,cpu", "all": the devices of a MultiPipeline.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rocm_sd/pipeline.hpp"
#include "runtime/device.hpp"

namespace rocm_sd {

// A device of a list. Where it stands there more than once, each is a copy of its own (device_copy()).
struct ListedDevice {
  std::string name;  // "cuda:0"
  int copy = 0;
};

constexpr size_t kMaxDevices = 64;

// there: what "all" chooses from: every usable GPU that is not emulated. Throws UsageError for a list with an
// empty name, with "auto", or of more than kMaxDevices; DeviceError for "all" where there is no such GPU.
std::vector<ListedDevice> parse_devices(std::string_view list, const std::vector<DeviceInfo>& there);

}  // namespace rocm_sd
