// Terms of run-time LoRAs on the layers of loaded components.
#include <utility>

#include "pipeline/components.hpp"

namespace rocm_sd {
namespace {

// The part's components with their models: work(component, visit).
template <class Work>
void for_each_model(Components& components, Part part, const Work& work) {
  if (part == Part::kUnet) work(Component::kUnet, [&](Visitor& v) { components.unet->visit(v); });
  if (part == Part::kText)
    for (TextEncoder& encoder : components.text)
      work(encoder.component, [&](Visitor& v) { encoder.model.visit(v); });
}

// In their order, without those that leave the component alone: the strengths' columns count all.
std::vector<AdapterUse> uses_of(const std::vector<ActiveAdapter>& adapters) {
  std::vector<AdapterUse> out;
  for (const ActiveAdapter& adapter : adapters) out.push_back({adapter.file, 1, adapter.blocks});
  return out;
}

}  // namespace

void Components::set_runtime_adapters(std::vector<ActiveAdapter> adapters) {
  const std::vector<AdapterUse> uses = uses_of(adapters);
  for (const Part part : {Part::kText, Part::kUnet})
    for_each_model(*this, part, [&](Component component, const VisitModel& visit) {
      if (component != Component::kUnet || share.all()) return require_low_rank(visit, component, uses);
      UNet whole(unet->config());  // of a layer of few heads this rank may have none
      require_low_rank([&](Visitor& v) { whole.visit(v); }, component, uses);
    });
  runtime_adapters = std::move(adapters);
  row_strengths_.clear();
  for (const Part part : {Part::kText, Part::kUnet})
    for_each_model(*this, part, [&](Component component, const VisitModel&) {
      if (!runtime_adapters.empty()) row_strengths_[component] = std::make_shared<RowStrengths>(place[part]);
    });
  stale_terms_[Part::kText] = stale_terms_[Part::kUnet] = true;
}

bool Components::set_strengths_alike(Component component, bool alike) {
  RowStrengths* strengths = row_strengths(component);
  if (!strengths || strengths->alike() == alike) return false;
  strengths->set_alike(alike);
  return true;
}

bool Components::refresh_terms(Part part) {
  if (!stale_terms_[part]) return false;
  const std::vector<AdapterUse> uses = uses_of(runtime_adapters);
  for_each_model(*this, part, [&](Component component, const VisitModel& visit) {
    const auto strengths = row_strengths_.find(component);
    set_low_rank_terms(
        visit, {place[part], component, strengths == row_strengths_.end() ? nullptr : strengths->second},
        uses);
  });
  stale_terms_[part] = false;
  return true;
}

RowStrengths* Components::row_strengths(Component component) const {
  const auto found = row_strengths_.find(component);
  return found == row_strengths_.end() ? nullptr : found->second.get();
}

uint64_t Components::term_bytes(Part part) const {
  uint64_t bytes = 0;
  auto& self = const_cast<Components&>(*this);  // a visit may change what it visits, this one does not
  for_each_model(self, part, [&](Component component, const VisitModel& visit) {
    if (const RowStrengths* strengths = row_strengths(component)) bytes += strengths->bytes();
    bytes += low_rank_bytes(visit);
  });
  return bytes;
}

uint64_t Components::base_bytes(Part part) const {
  uint64_t bytes = 0;
  auto& self = const_cast<Components&>(*this);
  for_each_model(self, part,
                 [&](Component component, const VisitModel&) { bytes += bases.bytes(component); });
  return bytes;
}

}  // namespace rocm_sd
