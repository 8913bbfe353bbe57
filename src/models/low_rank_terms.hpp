// Giving a loaded model the terms of run-time LoRAs: factors read, put side by side and brought to the
// device.
#pragma once

#include "models/adapter_use.hpp"
#include "models/low_rank.hpp"
#include "models/parameters.hpp"

namespace rocm_sd {

// Throws UsageError for an adapter of the component that has anything but low-rank terms (LoRA and LoCon
// without DoRA, on linear layers and convolutions): such a one can only be merged.
void require_low_rank(const VisitModel& visit, Component component, const std::vector<AdapterUse>& uses);

struct LowRankModel {
  Device& device;  // that multiplies
  Component component;
  std::shared_ptr<RowStrengths> strengths;  // of the adapters in the order of uses
};

// Every layer gets the terms of the adapters, in place of those that it had; without uses, none. Strengths of
// the uses do not count, block weights do. What was planned or captured with the model must be planned anew.
// Throws OutOfMemoryError.
void set_low_rank_terms(const VisitModel& visit, const LowRankModel& model,
                        const std::vector<AdapterUse>& uses);

// Bytes that the terms take.
uint64_t low_rank_bytes(const VisitModel& visit);

}  // namespace rocm_sd
