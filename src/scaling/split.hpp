// "guidance", "rows", "guidance-rows", "pipeline", "tensor", "displaced:4:check", "guidance-displaced": what
// the devices of a MultiPipeline divide.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/device.hpp"
#include "scaling/rank_hub.hpp"

namespace rocm_sd {

struct Split {
  std::string name;                       // "guidance", without what follows the colons
  std::optional<GroupDivision> division;  // nothing: images, of which each device draws its own
  bool checks = false;                    // also draws the exact image, and tells how far this one is from it
  // How many devices draw one image, of so many. Throws UsageError where they cannot be grouped so.
  size_t group_size(size_t devices) const;
};

// Throws UsageError for another name.
Split parse_split(std::string_view text);

// "gfx1100", "sm_90", "the CPU": what the devices of one image have in common.
std::string device_architecture(Device& device);

}  // namespace rocm_sd
