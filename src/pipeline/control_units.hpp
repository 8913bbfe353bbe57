// The control models of a request as they act together: which of them are one, and what goes with what.
#pragma once

#include "pipeline/control_stage.hpp"
#include "pipeline/request.hpp"

namespace rocm_sd {

// One control model at work, and the request's controls that it stands for: one, or several that name the
// same union ControlNet in a row.
struct PlannedControl {
  ControlUnit unit;
  std::vector<size_t> members;  // of request.controls
};

// controls: the models of the request's controls, in their order. Throws UsageError for what does not go
// together: a type without a union ControlNet or the other way round, images of one union ControlNet that
// act in other steps, sizes (of windows, too) that a T2I-Adapter cannot take.
std::vector<PlannedControl> plan_controls(const ResolvedRequest& r,
                                          const std::vector<std::shared_ptr<LoadedControl>>& controls);

// What the request asks of each, its images as the model reads them.
std::vector<ControlSetting> control_settings(const ResolvedRequest& r,
                                             const std::vector<PlannedControl>& planned);

}  // namespace rocm_sd
