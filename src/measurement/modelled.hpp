// Choices for a GPU that is not here: each candidate is planned, a model says what its launches take, and
// nothing is run.
#pragma once

#include <functional>
#include <optional>

#include "measurement/workload.hpp"
#include "runtime/exec.hpp"
#include "tuning/table.hpp"

namespace rocm_sd::measurement {

// Seconds that a candidate's launches of a workload take by the model. splits: splits_of its name.
using LaunchModel =
    std::function<double(const Workload& workload, const PlannedProblems& launches, int splits)>;

// What a choice's name says after the last '/', else 1.
int splits_of(const std::string& choice);

// A model's choice has to be this much better than the untuned one to take its place: an estimate against
// another.
inline constexpr double kLeastGain = 0.05;

// The candidate of least time among this project's own kernels, as a record of Origin::kModel; nothing where
// there is no choice to make. device: plans, and need not run (analysis/paper_gpu.hpp). Throws what planning
// throws.
std::optional<tuning::Record> modelled_choice(Device& device, const Workload& workload,
                                              const LaunchModel& seconds);

}  // namespace rocm_sd::measurement
