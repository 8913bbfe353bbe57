#include "weights/name_extent.hpp"

#include <algorithm>

#include "weights/name_map.hpp"

namespace rocm_sd {

bool has_any(const WeightStore& store, std::string_view prefix) {
  const auto it = store.weights().lower_bound(prefix);
  return it != store.weights().end() && it->first.starts_with(prefix);
}

int extent(const WeightStore& store, std::string_view prefix) {
  int count = 0;
  for (auto it = store.weights().lower_bound(prefix);
       it != store.weights().end() && it->first.starts_with(prefix); ++it)
    if (const auto child = numbered(it->first, prefix)) count = std::max(count, child->number + 1);
  return count;
}

int64_t dim_of(const WeightStore& store, std::initializer_list<std::string> names, int axis,
               int64_t fallback) {
  for (const std::string& name : names) {
    const StoredTensor* tensor = store.find(name);
    if (tensor == nullptr) continue;
    require<FormatError>(axis < tensor->shape.rank() && tensor->shape[axis] > 0, store.title(), ": tensor \"",
                         printable(name), "\" has the unusable shape ", tensor->shape);
    return tensor->shape[axis];
  }
  return fallback;
}

}  // namespace rocm_sd
