// How long ranks on devices of some kinds wait for each other.
#pragma once

#include <span>

#include "runtime/device.hpp"
#include "scaling/rank_hub.hpp"

namespace rocm_sd {

// ROCM_SD_RANK_TIMEOUT, in seconds, counts where it is set. Throws UsageError for a text that is no number.
RankPatience patience_of(std::span<const DeviceKind> kinds);

}  // namespace rocm_sd
