// Pipeline: prompt -> tokens -> text states -> latents -> pictures.
#include "rocm_sd/pipeline.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/log.hpp"
#include "kernels/choice_record.hpp"
#include "pipeline/load.hpp"
#include "pipeline/state.hpp"
#include "runtime/devices.hpp"

namespace rocm_sd {

Pipeline::Pipeline(std::unique_ptr<State> state) : state_(std::move(state)) {}
Pipeline::~Pipeline() = default;
Pipeline::Pipeline(Pipeline&&) noexcept = default;
Pipeline& Pipeline::operator=(Pipeline&&) noexcept = default;

Pipeline load_pipeline(const LoadOptions& options, Device& device, const Callbacks& callbacks, Ranks* ranks) {
  require<UsageError>(options.place.empty() || !ranks,
                      "place: not with devices that draw one image together (--split); expected --device");
  const bool named = options.device != "auto";
  const Placement place(options.place, device, named ? options.device : device.name());
  const auto load = [&](const LoadOptions& how) {
    auto state =
        std::make_unique<Pipeline::State>(load_components(how, place, callbacks, ranks), options.vram_budget,
                                          options.lora_dir, options.embedding_dir, ranks);
    if (options.stream_weights) state->stream_weights();
    return Pipeline(std::move(state));
  };
  const auto on_host = [](const Device* d) { return d == &host_device(); };
  if (options.offload || options.stream_weights || std::ranges::all_of(place.devices(), on_host))
    return load(options);
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
  require<UsageError>(options.devices.empty(), "devices: \"", printable(options.devices),
                      "\": a Pipeline has one device (LoadOptions::device); a MultiPipeline has several");
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

MemoryPlan Pipeline::plan(const GenerateRequest& request) {
  const ChoiceRecord record;
  const MemoryPlan plan = state_->plan(request);
  state_->choices.add(record);
  return plan;
}

GenerateResult Pipeline::generate(const GenerateRequest& request, const Callbacks& callbacks) {
  const ChoiceRecord record;
  GenerateResult result = state_->generate(request, callbacks);
  state_->choices.add(record);
  result.kernel_choices = state_->choices.hash();
  result.kernel_code = state_->choices.code(*state_->components.device);
  return result;
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
