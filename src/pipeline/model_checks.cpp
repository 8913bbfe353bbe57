#include "pipeline/model_checks.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.hpp"
#include "base/text.hpp"

namespace rocm_sd {
namespace {

constexpr size_t kNamed = 12;                    // tensors that a message names; the rest are counted
constexpr int64_t kLookedAt = int64_t{1} << 20;  // elements of a tensor whose values are looked at beforehand

}  // namespace

void require_complete(const WeightStore& store, const std::vector<ParameterSlot::Part>& parts,
                      const char* what) {
  std::vector<std::string> missing, extra;
  std::set<std::string_view> wanted;
  for (const ParameterSlot::Part& part : parts) {
    wanted.insert(part.name);
    if (!store.has(part.name)) missing.push_back(concat(part.name, " ", part.shape));
  }
  for (const auto& [name, tensor] : store.weights())
    if (!wanted.contains(name)) extra.push_back(tensor.file_name());
  require<FormatError>(missing.empty(), store.title(), ": ", missing.size(), " of ", parts.size(),
                       " expected tensors ", missing.size() == 1 ? "is" : "are",
                       " missing: ", listed_names(missing, kNamed));
  require<FormatError>(extra.empty(), store.title(), ": ", extra.size(),
                       extra.size() == 1 ? " tensor has" : " tensors have", " no place in ", what, ": ",
                       listed_names(extra, kNamed));
  for (const ParameterSlot::Part& part : parts) store.check(part.name, part.shape);
}

void require_finite(const WeightStore& store) {
  std::vector<float> values;
  for (const auto& [name, tensor] : store.weights()) {
    if (tensor.shape.numel() > kLookedAt) continue;
    values.resize(static_cast<size_t>(tensor.shape.numel()));
    store.read_range(tensor, 0, tensor.shape.numel(), DType::kF32, values.data());
    const auto bad = std::ranges::count_if(values, [](float v) { return !std::isfinite(v); });
    require<FormatError>(bad == 0, store.title(), ": ", printable(tensor.file_name()), ": ", bad, " of ",
                         values.size(), " values are not finite");
  }
}

}  // namespace rocm_sd
