// Pipeline: prompt -> tokens -> text states -> latents -> pictures.
#include "rocm_sd/pipeline.hpp"

#include "base/error.hpp"
#include "base/log.hpp"
#include "pipeline/load.hpp"
#include "pipeline/state.hpp"
#include "runtime/devices.hpp"

namespace rocm_sd {

Pipeline::Pipeline(std::unique_ptr<State> state) : state_(std::move(state)) {}
Pipeline::~Pipeline() = default;
Pipeline::Pipeline(Pipeline&&) noexcept = default;
Pipeline& Pipeline::operator=(Pipeline&&) noexcept = default;

Pipeline load_pipeline(const LoadOptions& options, Device& device, const Callbacks& callbacks) {
  const auto load = [&](const LoadOptions& how) {
    return Pipeline(std::make_unique<Pipeline::State>(load_components(how, device, callbacks),
                                                      options.vram_budget, options.lora_dir,
                                                      options.embedding_dir));
  };
  if (options.offload || &device == &host_device()) return load(options);
  try {
    return load(options);
  } catch (const OutOfMemoryError& e) {
    log().warn("out of memory ({}): weights wait in host memory (--offload)", e.what());
  }
  LoadOptions offloaded = options;
  offloaded.offload = true;
  return load(offloaded);
}

Pipeline Pipeline::load(const LoadOptions& options, const Callbacks& callbacks) {
  return load_pipeline(options, device_named(options.device), callbacks);
}

std::vector<DeviceInfo> devices() {
  std::vector<DeviceInfo> out;
  for (DeviceListing& d : list_devices()) out.push_back({std::move(d.name), std::move(d.detail), d.usable});
  return out;
}

const ModelInfo& Pipeline::info() const { return state_->components.info; }

GenerateRequest Pipeline::default_request() const {
  GenerateRequest request;
  const SamplingProposal& proposal = info().proposal;
  request.steps = proposal.steps;
  request.cfg_scale = proposal.cfg_scale;
  request.sampler = proposal.sampler;
  request.schedule = proposal.schedule;
  return request;
}

// work(), again after each step of saving where the device's memory was not enough.
template <class Work>
auto Pipeline::State::with_savings(const Work& work) {
  for (;;) {
    std::string reason;
    try {
      return work();
    } catch (const OutOfMemoryError& e) {
      if (refused) throw;
      reason = e.what();
    }
    // Outside the handler: what the attempt held is gone by now.
    if (!save_memory(reason)) throw OutOfMemoryError(reason + memory_advice());
  }
}

void Pipeline::State::use_loras(const GenerateRequest& request) {
  const Clock::time_point begin = Clock::now();
  std::vector<ActiveAdapter> wanted = adapters.open(requested_loras(request), *components.checkpoint);
  if (wanted == components.adapters && !weights_unsure) return;
  refused = false;  // what a plan said of an earlier request
  with_savings([&] { merge_adapters(wanted); });
  components.device->synchronize();
  log().debug("loras: {} at work, opened and merged in {:.3f} s, {:.1f} MB of weights kept as they were",
              wanted.size(), seconds_since(begin), static_cast<double>(components.bases.bytes()) / 1e6);
}

void Pipeline::State::use_controls(const ResolvedRequest& r) {
  std::vector<std::shared_ptr<LoadedControl>> wanted, units;
  for (const ResolvedControl& control : r.controls) {
    const auto same = [&](const auto& known) { return known->path == control.model; };
    const auto listed = std::find_if(wanted.begin(), wanted.end(), same);
    units.push_back(listed != wanted.end() ? *listed : components.find_control(control.model));
    if (listed == wanted.end()) wanted.push_back(units.back());
  }
  controls.clear();
  const auto loaded = [&](const auto& control) {
    return std::find(components.controls.begin(), components.controls.end(), control) !=
           components.controls.end();
  };
  if (!std::all_of(wanted.begin(), wanted.end(), loaded)) with_savings([&] { set_controls(wanted); });
  controls = std::move(units);
  planned_controls = plan_controls(r, controls);
}

// Those that are not kept give their weights' memory back, whoever else holds them.
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
  at_work = Part::kUnet;
  unet.reset();
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

MemoryPlan Pipeline::plan(const GenerateRequest& request) {
  State& s = *state_;
  const ResolvedRequest resolved = resolve_request(request, s.components, s.schedule);
  const TokenRows rows = s.text.tokenise(resolved);
  s.use_loras(request);
  s.use_controls(resolved);
  return s.with_savings([&] { return s.plan(resolved, rows); });
}

GenerateResult Pipeline::generate(const GenerateRequest& request, const Callbacks& callbacks) {
  State& s = *state_;
  const ResolvedRequest resolved = resolve_request(request, s.components, s.schedule);
  s.use_loras(request);
  s.use_controls(resolved);
  return s.with_savings([&] { return s.generate(resolved, callbacks); });
}

void Pipeline::enable_profiling() {
  if (!state_->profiler) state_->profiler = std::make_unique<Profiler>();
}

std::string Pipeline::profile_table() const { return state_->profiler ? state_->profiler->table() : ""; }

void Pipeline::write_profile_trace(const std::string& path) const {
  require<UsageError>(state_->profiler != nullptr, "profile: enable_profiling was not called");
  state_->profiler->write_chrome_trace(path);
}

std::vector<std::string> sampler_names() {
  std::vector<std::string> out;
  for (const SamplerRow& row : samplers()) out.push_back(concat(row.name, " (", row.label, ")"));
  return out;
}

std::vector<std::string> schedule_names_list() { return schedule_names(); }

}  // namespace rocm_sd
