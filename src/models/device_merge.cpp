#include "models/device_merge.hpp"

#include <algorithm>

#include "kernels/elementwise/elementwise.hpp"
#include "kernels/gemm/linear.hpp"

namespace rocm_sd {
namespace {

bool changes_any(const std::vector<AdapterUse>& uses, Component component, const ParameterSlot& slot) {
  return std::any_of(slot.parts.begin(), slot.parts.end(), [&](const ParameterSlot::Part& part) {
    return any_changes(uses, component, part.name);
  });
}

constexpr int64_t kSlabBytes = int64_t{256} << 20;
constexpr int64_t kAlignment = 256;

}  // namespace

Tensor AdapterBases::find(Component component, const std::string& slot) const {
  const auto found = bases_.find({component, slot});
  return found == bases_.end() ? Tensor() : found->second;
}

void AdapterBases::drop(Component component) {
  std::erase_if(bases_, [&](const auto& entry) { return entry.first.first == component; });
}

void AdapterBases::clear() {
  bases_.clear();
  factors_.clear();
  slabs_.clear();
}

uint64_t AdapterBases::bytes() const {
  uint64_t bytes = 0;
  for (const auto& [key, tensor] : bases_) bytes += tensor.bytes();
  for (const auto& [key, factors] : factors_) bytes += factors->bytes();
  return bytes;
}

uint64_t AdapterBases::bytes(Component component) const {
  uint64_t bytes = 0;
  for (const auto& [key, tensor] : bases_)
    if (key.first == component) bytes += tensor.bytes();
  for (const auto& [key, factors] : factors_)
    if (std::get<Component>(key) == component) bytes += factors->bytes();
  return bytes;
}

const DeviceFactors& AdapterBases::factors(Device& device, const std::shared_ptr<const AdapterFile>& file,
                                           Component component, DType dtype) {
  auto& known = factors_[{file, component, dtype}];
  if (!known) known = std::make_unique<DeviceFactors>(device, *file, component, dtype);
  return *known;
}

void AdapterBases::keep_factors(Component component, const std::vector<AdapterUse>& uses) {
  std::erase_if(factors_, [&](const auto& entry) {
    const auto& [file, of, dtype] = entry.first;
    return of == component &&
           std::none_of(uses.begin(), uses.end(), [&](const AdapterUse& use) { return use.file == file; });
  });
}

Tensor AdapterBases::allocate(Device& device, const Shape& shape, DType dtype) {
  const auto size = static_cast<int64_t>(dtype_size(dtype));
  const int64_t slab = kSlabBytes / size, step = kAlignment / size;
  const int64_t count = (shape.numel() + step - 1) / step * step;
  if (device.kind() == DeviceKind::kHost || count > slab / 8) return make_tensor(device, shape, dtype);
  auto& [tensor, used] = slabs_[{&device, dtype}];
  if (!tensor || used + count > slab) {
    tensor = make_tensor(device, {slab}, dtype);
    used = 0;
  }
  return tensor.narrow(0, std::exchange(used, used + count), shape.numel()).reshape(shape);
}

DeviceMerge::DeviceMerge(AdapterBases& bases, Component component, std::vector<AdapterUse> before,
                         std::vector<AdapterUse> after, Device& device)
    : bases_(bases),
      component_(component),
      before_(std::move(before)),
      after_(std::move(after)),
      scratch_(device) {
  bases_.keep_factors(component_, after_);
}

Tensor DeviceMerge::find_base(const ParameterSlot& slot) const {
  if (slot.resident() == 0) return {};
  if (Tensor kept = bases_.find(component_, slot.parts.front().name)) return kept;
  if (changes_any(before_, component_, slot)) return {};
  const StoredWeight now = slot.fetch();
  return now.scales ? Tensor() : now.values;
}

Tensor DeviceMerge::ready(const ParameterSlot& slot, DType dtype, Device& device) {
  base_ = slot.is_cut() ? Tensor() : find_base(slot);
  const std::string& key = slot.parts.front().name;
  bases_.drop(component_, key);
  if (!base_ || base_.dtype() != dtype || device.kind() == DeviceKind::kHost || !slot.matrix) return {};
  if (!changes_any(after_, component_, slot)) return std::exchange(base_, Tensor());
  for (const ParameterSlot::Part& part : slot.parts)
    for (const AdapterUse& use : after_)
      if (const AdapterModule* module = use.module(component_, part.name))
        if (!is_plain_lora(*module)) return {};
  Tensor base = std::exchange(base_, Tensor());
  // Memory that the last merge filled takes the next.
  Tensor target = slot.fetch().values;
  if (target.storage() == base.storage() || target.dtype() != dtype) target = Tensor();
  Tensor made = merged(slot, base, std::move(target), device);
  bases_.keep(component_, key, std::move(base));
  return made;
}

// before [rows,columns] and the changes of every adapter to this tensor: one product of all their factors,
// side by side.
Tensor DeviceMerge::changed(Exec& ex, const std::string& name, const Tensor& before) {
  Tensor up, down;  // [rows,R], [columns,R]
  for (const AdapterUse& use : after_) {
    const AdapterModule* module = use.module(component_, name);
    if (!module) continue;
    const auto& own = bases_.factors(ex.device(), use.file, component_, before.dtype()).of(name);
    const Tensor scaled = affine(ex, own.up, static_cast<float>(module->scale * use.strength_of(*module)), 0);
    up = up ? concat_channels(ex, up, scaled) : scaled;
    down = down ? concat_channels(ex, down, own.down) : own.down;
  }
  return linear(ex, up, LinearWeight{Weight(down), std::nullopt},
                {.residual = &before, .dtype = before.dtype()});
}

Tensor DeviceMerge::merged(const ParameterSlot& slot, const Tensor& base, Tensor target, Device& device) {
  const Shape rows_columns{slot.shape[0], slot.shape.numel() / slot.shape[0]};
  const Tensor plain = base.reshape(rows_columns);
  if (!target) target = bases_.allocate(device, slot.shape, base.dtype());
  const Tensor out = target.reshape(rows_columns);
  const auto work = [&](Exec& ex) {
    int64_t begin = 0;
    for (const ParameterSlot::Part& part : slot.parts) {
      const Tensor before = plain.narrow(0, begin, part.shape[0]);  // [rows,columns]
      const bool changes = any_changes(after_, component_, part.name);
      copy_into(ex, changes ? changed(ex, part.name, before) : before, out.narrow(0, begin, part.shape[0]));
      begin += part.shape[0];
    }
  };
  // Planned, so that all slots share one piece of memory and none waits for another.
  scratch_.begin_plan();
  {
    Exec dry(scratch_, Mode::kPlan);
    work(dry);
  }
  const ArenaPlan plan = scratch_.end_plan();
  scratch_.begin_replay(plan);
  Exec ex(scratch_);
  work(ex);
  scratch_.end_replay();
  return target.reshape(slot.shape);
}

}  // namespace rocm_sd
