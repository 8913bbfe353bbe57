#include "models/control_lora_source.hpp"

#include <set>

#include "base/dtype.hpp"
#include "base/text.hpp"
#include "kernels/onednn.hpp"

namespace rocm_sd {
namespace {

constexpr size_t kNamed = 12;

// "x.weight" -> "x."; empty for a bias.
std::string stem_of(const std::string& name) {
  constexpr std::string_view kWeight = "weight";
  return name.ends_with(".weight") ? name.substr(0, name.size() - kWeight.size()) : std::string();
}

std::vector<float> whole(const WeightStore& store, const std::string& name) {
  std::vector<float> out(static_cast<size_t>(store.shape(name).numel()));
  store.read(name, store.shape(name), DType::kF32, out.data());
  return out;
}

}  // namespace

void ControlLoraSource::read(const std::string& name, const Shape& shape, DType dtype, void* dst) const {
  const WeightStore& base = file_.has(name) ? file_ : unet_;
  const std::string stem = stem_of(name);
  if (stem.empty() || !file_.has(stem + "up")) return base.read(name, shape, dtype, dst);
  std::vector<float> weight(static_cast<size_t>(shape.numel()));
  base.read(name, shape, DType::kF32, weight.data());
  const std::vector<float> up = whole(file_, stem + "up"), down = whole(file_, stem + "down");
  const int64_t rows = shape[0], columns = shape.numel() / rows,
                rank = static_cast<int64_t>(down.size()) / columns;
  std::vector<float> change(weight.size());
  onednn::multiply(up.data(), down.data(), change.data(), rows, rank, columns);
  for (size_t i = 0; i < weight.size(); ++i) weight[i] += change[i];
  convert_elements(weight.data(), DType::kF32, dst, dtype, shape.numel());
}

void ControlLoraSource::check(const std::vector<ParameterSlot::Part>& parts) const {
  std::set<std::string, std::less<>> used;
  std::vector<std::string> missing, extra;
  for (const ParameterSlot::Part& part : parts) {
    used.insert(part.name);
    if (file_.has(part.name))
      file_.check(part.name, part.shape);
    else if (unet_.has(part.name))
      unet_.check(part.name, part.shape);
    else
      missing.push_back(concat(part.name, " ", part.shape));
    const std::string stem = stem_of(part.name);
    if (stem.empty() || (!file_.has(stem + "up") && !file_.has(stem + "down"))) continue;
    used.insert({stem + "up", stem + "down"});
    const Shape &up = file_.shape(stem + "up"), &down = file_.shape(stem + "down");
    const int64_t rows = part.shape[0], columns = part.shape.numel() / rows;
    require<ShapeError>(up.rank() > 0 && down.rank() > 0 && up[0] == rows && down[0] > 0 &&
                            up.numel() == rows * down[0] && down.numel() == down[0] * columns,
                        file_.title(), ": ", part.name, " ", part.shape, ": expected up [", rows,
                        ",rank] and down [rank,", columns, "], found ", up, " and ", down);
  }
  for (const auto& [name, tensor] : file_.weights())
    if (!used.contains(name)) extra.push_back(tensor.file_name());
  require<FormatError>(
      missing.empty(), file_.title(), ": ", missing.size(), " of ", parts.size(),
      " expected tensors are neither in it nor in the model's UNet: ", listed_names(missing, kNamed));
  require<FormatError>(extra.empty(), file_.title(), ": ", extra.size(),
                       extra.size() == 1 ? " tensor has" : " tensors have",
                       " no place in a ControlNet: ", listed_names(extra, kNamed));
}

}  // namespace rocm_sd
