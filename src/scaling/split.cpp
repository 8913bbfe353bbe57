#include "scaling/split.hpp"

#include <vector>

#include "base/error.hpp"
#include "pipeline/options.hpp"
#include "runtime/gpu.hpp"

namespace rocm_sd {
namespace {

// As DistriFusion's warm-up (Li et al. 2024, section 4.3), which keeps the first steps in step, for they say
// where things lie.
constexpr int kExactCalls = 4;

}  // namespace

Split parse_split(std::string_view text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ':')
      parts.emplace_back();
    else
      parts.back() += c;
  }
  Split out{.name = parts[0], .division = std::nullopt};
  if (out.name == "guidance") out.division = {Division::kConditions};
  if (out.name == "rows") out.division = {Division::kRows};
  if (out.name == "pipeline") out.division = {Division::kLayers};
  if (out.name == "tensor") out.division = {Division::kTensors};
  if (out.name == "guidance-rows") out.division = {Division::kBoth};
  const bool with_guidance = out.name == "guidance-displaced",
             displaced = with_guidance || out.name == "displaced";
  if (displaced) {
    out.checks = parts.size() > 1 && parts.back() == "check";
    if (out.checks) parts.pop_back();
    const int calls = parts.size() == 2 ? static_cast<int>(parse_integer(parts[1], 1, 1000)) : kExactCalls;
    out.division = {with_guidance ? Division::kBoth : Division::kRows, calls};
  }
  require<UsageError>((out.division || out.name == "images") && parts.size() <= (displaced ? 2u : 1u),
                      "split: expected images, guidance, rows, guidance-rows, pipeline, tensor, "
                      "displaced[:CALLS][:check] or guidance-displaced[:CALLS][:check], got \"",
                      printable(text), "\"");
  return out;
}

size_t Split::group_size(size_t devices) const {
  const char* plural = devices == 1 ? " device" : " devices";
  if (!division) return 1;
  if (division->what == Division::kConditions) {
    require<UsageError>(devices > 0 && devices % 2 == 0,
                        "split: guidance: expected pairs of devices (--devices cuda:0,cuda:1), got ", devices,
                        plural);
    return 2;
  }
  if (division->what == Division::kBoth)
    require<UsageError>(devices >= 4 && devices % 2 == 0, "split: ", name,
                        ": expected 4, 6, 8, ... devices, half of them for each half of guidance, got ",
                        devices, plural);
  require<UsageError>(devices > 1, "split: ", name,
                      ": expected several devices (--devices cuda:0,cuda:1), got ", devices);
  return devices;
}

std::string device_architecture(Device& device) {
  return device.kind() == DeviceKind::kHost ? "the CPU" : static_cast<GpuDevice&>(device).traits().arch;
}

}  // namespace rocm_sd
