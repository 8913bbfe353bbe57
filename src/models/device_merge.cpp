#include "models/device_merge.hpp"

#include <algorithm>

#include "kernels/gemm/linear.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd {
namespace {

constexpr int64_t kRankStep = 32;  // depth of a product's step in most configurations: zeros fill the rest

bool changes_any(const std::vector<AdapterUse>& uses, Component component, const ParameterSlot& slot) {
  return std::any_of(slot.parts.begin(), slot.parts.end(), [&](const ParameterSlot::Part& part) {
    return any_changes(uses, component, part.name);
  });
}

bool is_plain_lora(const AdapterModule& module) {
  return module.kind == AdapterKind::kLora && !module.is_dora() && !module.has("mid");
}

Tensor on_device(Device& device, const std::vector<float>& values, const Shape& shape, DType dtype) {
  const Tensor out = make_tensor(device, shape, dtype);
  upload(device, out, values.data(), out.numel());
  return out;
}

// The factors of every adapter that changes a weight [rows,columns], side by side: their product is the whole
// change.
struct Factors {
  int64_t rank = 0;         // of all together, filled up
  std::vector<float> up;    // [rows,rank], scaled
  std::vector<float> down;  // [columns,rank]: transposed, as linear() takes a weight
};

Factors gather_factors(const std::vector<AdapterUse>& uses, Component component, const std::string& name,
                       int64_t rows, int64_t columns) {
  Factors out;
  for (const AdapterUse& use : uses)
    if (const AdapterModule* module = use.module(component, name)) out.rank += module->rank;
  out.rank = (out.rank + kRankStep - 1) / kRankStep * kRankStep;
  out.up.resize(static_cast<size_t>(rows * out.rank));
  out.down.resize(static_cast<size_t>(columns * out.rank));
  int64_t begin = 0;
  for (const AdapterUse& use : uses) {
    const AdapterModule* module = use.module(component, name);
    if (!module) continue;
    const std::vector<float> up = use.file->values(*module, "up"), down = use.file->values(*module, "down");
    const auto scale = static_cast<float>(module->scale * use.strength_of(*module));
    const int64_t rank = module->rank, whole = out.rank;
    float *to_up = out.up.data() + begin, *to_down = out.down.data() + begin;
#pragma omp parallel for
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t r = 0; r < rank; ++r)
        to_up[row * whole + r] = scale * up[static_cast<size_t>(row * rank + r)];
#pragma omp parallel for
    for (int64_t column = 0; column < columns; ++column)
      for (int64_t r = 0; r < rank; ++r)
        to_down[column * whole + r] = down[static_cast<size_t>(r * columns + column)];
    begin += rank;
  }
  return out;
}

}  // namespace

Tensor AdapterBases::find(Component component, const std::string& slot) const {
  const auto found = bases_.find({component, slot});
  return found == bases_.end() ? Tensor() : found->second;
}

void AdapterBases::drop(Component component) {
  std::erase_if(bases_, [&](const auto& entry) { return entry.first.first == component; });
}

uint64_t AdapterBases::bytes() const {
  uint64_t bytes = 0;
  for (const auto& [key, tensor] : bases_) bytes += tensor.bytes();
  return bytes;
}

Tensor DeviceMerge::ready(const ParameterSlot& slot, DType dtype, Device& device) {
  if (device.kind() == DeviceKind::kHost || !slot.matrix || slot.resident() == 0) return {};
  const std::string& key = slot.parts.front().name;
  Tensor base = bases_.find(component_, key);
  if (!base && !changes_any(before_, component_, slot)) {
    const StoredWeight now = slot.fetch();
    if (!now.scales) base = now.values;
  }
  if (base && base.dtype() != dtype) base = Tensor();
  bases_.drop(component_, key);
  if (!base || !changes_any(after_, component_, slot)) return base;
  for (const ParameterSlot::Part& part : slot.parts)
    for (const AdapterUse& use : after_)
      if (const AdapterModule* module = use.module(component_, part.name))
        if (!is_plain_lora(*module)) return {};
  // Memory that the last merge filled takes the next.
  Tensor target = slot.fetch().values;
  if (target.storage() == base.storage() || target.dtype() != dtype) target = Tensor();
  Tensor changed = merged(slot, base, std::move(target), device);
  bases_.keep(component_, key, std::move(base));
  return changed;
}

Tensor DeviceMerge::merged(const ParameterSlot& slot, const Tensor& base, Tensor target,
                           Device& device) const {
  Arena arena(device);
  Exec ex(arena);
  const int64_t columns = slot.shape.numel() / slot.shape[0];
  const Tensor plain = base.reshape({slot.shape[0], columns});
  Tensor out = target                  ? target.reshape(plain.shape())
               : slot.parts.size() > 1 ? make_tensor(device, plain.shape(), base.dtype())
                                       : Tensor();
  int64_t begin = 0;
  for (const ParameterSlot::Part& part : slot.parts) {
    const int64_t rows = part.shape[0];
    const Tensor before = plain.narrow(0, begin, rows);  // [rows,columns]
    Tensor after = before;
    if (any_changes(after_, component_, part.name)) {
      const Factors factors = gather_factors(after_, component_, part.name, rows, columns);
      const Tensor up = on_device(device, factors.up, {rows, factors.rank}, base.dtype());
      const LinearWeight down{Weight(on_device(device, factors.down, {columns, factors.rank}, base.dtype())),
                              std::nullopt};
      after = linear(ex, up, down, {.residual = &before, .dtype = base.dtype()});  // [rows,columns]
    }
    if (!out) return after.reshape(slot.shape);
    device.copy_on_device(out.narrow(0, begin, rows).data(), after.data(), after.bytes());
    begin += rows;
  }
  return out.reshape(slot.shape);
}

}  // namespace rocm_sd
