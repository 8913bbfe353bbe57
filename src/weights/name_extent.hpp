// Structure told from the names of a component's tensors: how many numbered children a name has, judged by
// all tensors below them and never by a single key.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "weights/store.hpp"

namespace rocm_sd {

// Whether some tensor's name begins with `prefix`.
bool has_any(const WeightStore& store, std::string_view prefix);

// One more than the highest number N of which a tensor "<prefix>N.<rest>" is there; 0 where there is none.
int extent(const WeightStore& store, std::string_view prefix);

// Extent of an axis of the first of these tensors that is there, or `fallback` where none is. Throws
// FormatError where the tensor's rank or extent is of no use.
int64_t dim_of(const WeightStore& store, std::initializer_list<std::string> names, int axis,
               int64_t fallback);

}  // namespace rocm_sd
