// What a module of an adapter must have to fit the weight that it changes.
#pragma once

#include "weights/adapter.hpp"

namespace rocm_sd {

// Sizes of a module's parts, checked against each other and against the weight of shape `target`. Throws
// FormatError for parts that are missing, empty or of different ranks, ShapeError for those that do not fit
// the weight.
void check_module(const WeightStore& tensors, const AdapterModule& module, const Shape& target);

// Whether DoRA's magnitudes belong to inputs rather than outputs: older versions of LyCORIS write
// "dora_scale" [1,in,...], newer ones [out,1,...] (its option wd_on_output). PEFT's vectors, [out] and
// [1,out,1,1] for filters, are of outputs.
bool magnitude_is_on_input(const AdapterModule& module, const WeightStore& tensors);

// The rank that alpha is divided by; 0 where there is none (whole matrices, vectors).
int64_t rank_of(const AdapterModule& module, const WeightStore& tensors);

}  // namespace rocm_sd
