// Loading a MultiPipeline onto devices of the caller's choosing (MultiPipeline::load finds them by name).
#pragma once

#include "rocm_sd/multi.hpp"
#include "scaling/group.hpp"

namespace rocm_sd {

// options.device and options.devices do not count. The devices must outlive the result. patience: of devices
// that draw one image together.
MultiPipeline load_multi_pipeline(const LoadOptions& options, const std::vector<RankDevice>& devices,
                                  const RankPatience& patience = {}, const Callbacks& callbacks = {});

}  // namespace rocm_sd
