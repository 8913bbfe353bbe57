#include "scaling/patience.hpp"

#include <algorithm>
#include <cstdlib>

#include "pipeline/options.hpp"

namespace rocm_sd {

RankPatience patience_of(std::span<const DeviceKind> kinds) {
  RankPatience out;
  for (const DeviceKind kind : kinds)
    if (kind == DeviceKind::kHost) out.later = std::max(out.later, 60.0);  // of one kernel at most
  if (std::find(kinds.begin(), kinds.end(), DeviceKind::kEmulator) != kinds.end()) out = {0, 0, 0};
  if (const char* seconds = std::getenv("ROCM_SD_RANK_TIMEOUT"); seconds && *seconds)
    out.first = out.later = out.alone = parse_number(seconds, 0, 1e6);
  return out;
}

}  // namespace rocm_sd
