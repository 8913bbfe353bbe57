// What a request brings to the weights: LoRAs, which are merged into them, and ControlNets beside the UNet.
#include <algorithm>
#include <functional>

#include "base/error.hpp"
#include "base/log.hpp"
#include "models/bytes_to_load.hpp"
#include "pipeline/state.hpp"

namespace rocm_sd {

namespace {

// The same LoRA with the same block weights takes its terms' memory once; strengths of a LoRA that an image
// names twice add up.
void add_image(WantedAdapters& wanted, const std::vector<ActiveAdapter>& image) {
  auto& unet = wanted.strengths.unet.emplace_back();
  auto& text = wanted.strengths.text.emplace_back();
  unet.resize(wanted.runtime.size());
  text.resize(wanted.runtime.size());
  for (const ActiveAdapter& adapter : image) {
    const auto same = [&](const ActiveAdapter& known) {
      return known.file == adapter.file && known.blocks == adapter.blocks;
    };
    const auto found = std::find_if(wanted.runtime.begin(), wanted.runtime.end(), same);
    const auto at = static_cast<size_t>(found - wanted.runtime.begin());
    if (found == wanted.runtime.end()) {
      wanted.runtime.push_back({adapter.file, adapter.name, 1, 1, adapter.blocks});
      unet.push_back(0);
      text.push_back(0);
    }
    if (std::ranges::none_of(wanted.own, same)) wanted.own.push_back(wanted.runtime[at]);
    unet[at] += static_cast<float>(adapter.weight);
    text[at] += static_cast<float>(adapter.te_weight);
  }
}

}  // namespace

WantedAdapters Pipeline::State::wanted_loras(const GenerateRequest& request, Loras loras) {
  WantedAdapters wanted;
  if (loras == Loras::kBeside) wanted.runtime = components.runtime_adapters;
  const size_t images = image_prompts(request).size();
  const bool runtime = request.lora_mode == "runtime";
  for (size_t i = 0; i < images; ++i) {
    const std::vector<ActiveAdapter> own = adapters.open(requested_loras(request, i), *components.checkpoint);
    require<UsageError>(runtime || i == 0 || own == wanted.merged, "lora: the prompts of images 1 and ",
                        i + 1,
                        " ask for different LoRAs, which cannot all be merged: expected lora-mode runtime");
    add_image(wanted, runtime ? own : std::vector<ActiveAdapter>());
    if (!runtime) wanted.merged = wanted.own = own;
  }
  for (auto* strengths : {&wanted.strengths.unet, &wanted.strengths.text})
    for (std::vector<float>& image : *strengths) image.resize(wanted.runtime.size());
  require<UsageError>(
      wanted.runtime.empty() || !divides_layers(),
      "lora-mode: runtime: not with --split pipeline, whose ranks know their own layers alone; "
      "expected merge");
  return wanted;
}

bool Pipeline::State::merges_alike(const GenerateRequest& a, const GenerateRequest& b) {
  return wanted_loras(a, Loras::kOwn).merged == wanted_loras(b, Loras::kOwn).merged;
}

AdapterStrengths Pipeline::State::use_loras(PreparedRequest& r, Loras loras) {
  const Clock::time_point begin = Clock::now();
  WantedAdapters wanted = wanted_loras(r.request, loras);
  r.loras = wanted.own;
  const bool other_terms = wanted.runtime != components.runtime_adapters;
  if (other_terms) components.set_runtime_adapters(wanted.runtime);
  const auto& own = wanted.strengths.unet;
  const bool alike =
      !has_company(r) && std::adjacent_find(own.begin(), own.end(), std::not_equal_to<>()) == own.end();
  if (components.set_strengths_alike(Component::kUnet, alike) && !other_terms) drop(Part::kUnet);
  for (const Part part : {Part::kText, Part::kUnet})
    if (other_terms) drop(part);
  if (wanted.merged != components.adapters || weights_unsure_) {
    refused_ = false;  // what a plan said of an earlier request
    with_savings([&] { merge_adapters(wanted.merged); });
    for (Device* device : components.place.devices()) device->synchronize();
  } else if (!other_terms) {
    return wanted.strengths;
  }
  log().debug(
      "loras: {} merged, {} at run time, opened and merged in {:.3f} s, {:.1f} MB of weights kept as they "
      "were",
      wanted.merged.size(), wanted.runtime.size(), seconds_since(begin),
      static_cast<double>(components.bases.bytes() + components.originals->bytes()) / 1e6);
  return wanted.strengths;
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
    if (whole) {
      components.reload(part, components.dtype_of(part));
    } else {
      if (residency.offload()) residency.to_host(part);
      components.update(part, before, residency.offload() ? host_device() : components.place[part]);
    }
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
    keep_room_for(Part::kUnet, bytes_to_load([&](Visitor& v) { control->visit(v); },
                                             components.dtype_of(Part::kUnet), components.weights, {}));
    components.load_control(*control);
    components.controls.push_back(control);
    residency.controls_changed();
  }
}

}  // namespace rocm_sd
