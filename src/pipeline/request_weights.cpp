// What a request brings to the weights: LoRAs, which are merged into them, and ControlNets beside the UNet.
#include "base/error.hpp"
#include "base/log.hpp"
#include "pipeline/state.hpp"

namespace rocm_sd {

void Pipeline::State::use_loras(const GenerateRequest& request) {
  const Clock::time_point begin = Clock::now();
  std::vector<ActiveAdapter> wanted = adapters.open(requested_loras(request), *components.checkpoint);
  if (wanted == components.adapters && !weights_unsure_) return;
  refused_ = false;  // what a plan said of an earlier request
  with_savings([&] { merge_adapters(wanted); });
  components.device->synchronize();
  log().debug("loras: {} at work, opened and merged in {:.3f} s, {:.1f} MB of weights kept as they were",
              wanted.size(), seconds_since(begin), static_cast<double>(components.bases.bytes()) / 1e6);
}

void Pipeline::State::merge_adapters(std::vector<ActiveAdapter> wanted) {
  const auto uses_of = [](const std::vector<ActiveAdapter>& list, Part part) {
    std::vector<std::pair<Component, std::vector<AdapterUse>>> out;
    for (const Component component : {Component::kUnet, Component::kTextEncoder, Component::kTextEncoder2})
      if ((component == Component::kUnet) == (part == Part::kUnet))
        out.emplace_back(component, adapter_uses(list, component));
    return out;
  };
  const bool whole = std::exchange(weights_unsure_, true);
  const std::vector<ActiveAdapter> before = std::exchange(components.adapters, std::move(wanted));
  for (const Part part : {Part::kText, Part::kUnet}) {
    const auto old_uses = uses_of(before, part), new_uses = uses_of(components.adapters, part);
    if (!whole && old_uses == new_uses) continue;
    drop(part);
    // Weights that wait in host memory are there in every layout that they had: they are read anew.
    if (whole || residency.offload() || !residency.resident(part))
      components.reload(part, components.dtype_of(part));
    else
      components.update(part, before);
    residency.reloaded(part);
  }
  weights_unsure_ = false;
}

void Pipeline::State::use_controls(const ResolvedRequest& r) {
  std::vector<std::shared_ptr<LoadedControl>> wanted, units;
  for (const ResolvedControl& control : r.controls) {
    const auto same = [&](const auto& known) { return known->path == control.model; };
    const auto listed = std::find_if(wanted.begin(), wanted.end(), same);
    units.push_back(listed != wanted.end() ? *listed : components.find_control(control.model));
    if (listed == wanted.end()) wanted.push_back(units.back());
  }
  controls_.clear();
  const auto loaded = [&](const auto& control) {
    return std::find(components.controls.begin(), components.controls.end(), control) !=
           components.controls.end();
  };
  if (!std::all_of(wanted.begin(), wanted.end(), loaded)) with_savings([&] { set_controls(wanted); });
  controls_ = std::move(units);
  planned_controls_ = plan_controls(r, controls_);
}

// Those that are not kept give their weights' memory back, whoever else refers to them.
void Pipeline::State::keep_controls(const std::vector<std::shared_ptr<LoadedControl>>& kept) {
  const auto goes = [&](const auto& control) {
    return std::find(kept.begin(), kept.end(), control) == kept.end();
  };
  const auto before = components.controls;
  if (std::none_of(before.begin(), before.end(), goes)) return;
  std::erase_if(components.controls, goes);
  residency.controls_changed();
  for (const auto& control : before)
    if (goes(control)) control->drop();
}

// All are checked. Those that go give their memory back first.
void Pipeline::State::set_controls(const std::vector<std::shared_ptr<LoadedControl>>& wanted) {
  at_work_ = Part::kUnet;
  drop(Part::kUnet);
  keep_controls(wanted);
  for (const auto& control : wanted) {
    if (std::find(components.controls.begin(), components.controls.end(), control) !=
        components.controls.end())
      continue;
    components.load_control(*control);
    components.controls.push_back(control);
    residency.controls_changed();
  }
}

}  // namespace rocm_sd
