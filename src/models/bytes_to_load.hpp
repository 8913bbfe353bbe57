// What a model's weights take of a device before any of them is loaded.
#pragma once

#include "models/parameters.hpp"

namespace rocm_sd {

bool lies_in_mapped_memory(const ParameterSlot& slot);  // where the device has any

// Bytes of the device's memory that load_parameters() takes for all slots.
uint64_t bytes_to_load(const VisitModel& visit, DType compute, const WeightFormat& weights,
                       std::span<const PrecisionRow> precisions);

// Of a model that is not loaded; no memory is needed.
template <Visitable Model>
uint64_t bytes_to_load(Model model, DType compute, const WeightFormat& weights = {}) {
  return bytes_to_load([&](Visitor& v) { model.visit(v); }, compute, weights, precisions_of(model));
}

}  // namespace rocm_sd
