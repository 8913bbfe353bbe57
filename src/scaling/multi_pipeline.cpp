// MultiPipeline: groups of devices behind one queue.
#include "rocm_sd/multi.hpp"

#include <omp.h>

#include <algorithm>
#include <exception>
#include <random>
#include <thread>

#include "base/error.hpp"
#include "base/log.hpp"
#include "pipeline/options.hpp"
#include "runtime/devices.hpp"
#include "scaling/device_list.hpp"
#include "scaling/drawer_queue.hpp"
#include "scaling/group.hpp"
#include "scaling/in_order.hpp"
#include "scaling/launched.hpp"
#include "scaling/load_multi.hpp"
#include "scaling/patience.hpp"

namespace rocm_sd {
namespace {

std::vector<std::string> names_of(const std::vector<std::unique_ptr<Group>>& groups) {
  std::vector<std::string> names;
  for (const auto& group : groups) names.push_back(group->name());
  return names;
}

// Seeds of 32 bits, as a Pipeline draws them: here, so that all ranks draw the same image, and a request that
// went to another device its own.
void draw_seeds(GenerateRequest& request) {
  std::random_device random;
  if (request.seed < 0) request.seed = static_cast<int64_t>(random());
  if (request.variation_strength > 0 && request.variation_seed < 0)
    request.variation_seed = static_cast<int64_t>(random());
}

}  // namespace

struct MultiPipeline::State {
  explicit State(std::vector<std::unique_ptr<Group>> loaded, std::unique_ptr<Launched> ranks = nullptr)
      : launched(std::move(ranks)), groups(std::move(loaded)), queue(names_of(groups)) {}

  bool several() const { return groups.size() > 1 || groups.front()->ranks() > 1; }

  std::unique_ptr<Launched> launched;  // null: this process is alone
  std::vector<std::unique_ptr<Group>> groups;
  DrawerQueue queue;
};

// Divides the devices into groups and loads them.
class MultiLoader {
 public:
  MultiLoader(const LoadOptions& options, const RankPatience& patience, const Callbacks& callbacks)
      : options_(options), patience_(patience), callbacks_(callbacks) {}

  MultiPipeline load(const std::vector<RankDevice>& devices) {
    const size_t each = parse_split(options_.split).group_size(devices.size());
    groups_.resize(devices.size() / each);
    errors_.resize(groups_.size());
    // The first one says what is wrong with the files, and brings them to the host's memory for the others.
    std::vector<std::thread> threads;
    const auto group_devices = [&](size_t i) {
      const auto first = devices.begin() + static_cast<ptrdiff_t>(i * each);
      return std::vector<RankDevice>(first, first + static_cast<ptrdiff_t>(each));
    };
    load_group(0, group_devices(0), callbacks_);
    if (errors_[0]) std::rethrow_exception(errors_[0]);
    Callbacks others;
    others.cancelled = callbacks_.cancelled;
    for (size_t i = 1; i < groups_.size(); ++i)
      threads.emplace_back([&, i] { load_group(i, group_devices(i), others); });
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& error : errors_)
      if (error) std::rethrow_exception(error);
    compare();
    if (groups_.size() > 1)
      for (const auto& group : groups_) group->watch();
    return MultiPipeline(std::make_unique<MultiPipeline::State>(std::move(groups_)));
  }

 private:
  void load_group(size_t i, const std::vector<RankDevice>& devices, const Callbacks& callbacks) {
    try {
      groups_[i] = std::make_unique<Group>(options_, devices, patience_, callbacks);
    } catch (...) {
      errors_[i] = std::current_exception();
    }
  }

  void compare() const {
    const ModelInfo& first = groups_.front()->first().info();
    bool alike = true;
    for (const auto& group : groups_) {
      const ModelInfo& other = group->first().info();
      require<FormatError>(first.weights_id == other.weights_id && first.parameters == other.parameters,
                           printable(options_.model), ": ", groups_.front()->name(), " and ", group->name(),
                           " have loaded different weights (", first.weights_id, " and ", other.weights_id,
                           "): a file changed meanwhile");
      alike = alike && first.dtype == other.dtype;
    }
    if (!alike)
      log().warn(
          "the devices compute in different types: an image differs in rounding by the device that draws it");
  }

  const LoadOptions& options_;
  const RankPatience& patience_;
  const Callbacks& callbacks_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::vector<std::exception_ptr> errors_;
};

MultiPipeline load_multi_pipeline(const LoadOptions& options, const std::vector<RankDevice>& devices,
                                  const RankPatience& patience, const Callbacks& callbacks) {
  return MultiLoader(options, patience, callbacks).load(devices);
}

MultiPipeline::MultiPipeline(std::unique_ptr<State> state) : state_(std::move(state)) {}
MultiPipeline::~MultiPipeline() = default;
MultiPipeline::MultiPipeline(MultiPipeline&&) noexcept = default;
MultiPipeline& MultiPipeline::operator=(MultiPipeline&&) noexcept = default;

MultiPipeline MultiPipeline::load(const LoadOptions& options, const Callbacks& callbacks) {
  require<UsageError>(
      options.devices.empty() || options.place.empty(),
      "devices, place: expected one of them: place divides the parts of one pipeline, devices "
      "has a whole one for each");
  if (options.devices.empty()) {
    const std::vector<RankDevice> one = {{options.device, &device_named(options.device), 0}};
    return load_multi_pipeline(options, one, {}, callbacks);
  }
  require<UsageError>(options.device == "auto", "device, devices: expected one of them");
  if (asks_for_ranks(options.devices)) {
    const Split split = parse_split(options.split);
    auto launched = std::make_unique<Launched>(options);
    if (split.division) split.group_size(static_cast<size_t>(launched->launch().count));
    std::vector<std::unique_ptr<Group>> groups;
    groups.push_back(launched->load(options, callbacks));
    return MultiPipeline(std::make_unique<State>(std::move(groups), std::move(launched)));
  }
  std::vector<RankDevice> devices;
  int on_host = 0;
  const bool all = options.devices == "all";
  for (const ListedDevice& listed :
       parse_devices(options.devices, all ? rocm_sd::devices() : std::vector<DeviceInfo>())) {
    devices.push_back({listed.name, &device_copy(listed.name, listed.copy), 0});
    on_host += devices.back().device->kind() == DeviceKind::kHost ? 1 : 0;
  }
  std::vector<DeviceKind> kinds;
  for (RankDevice& device : devices) {
    kinds.push_back(device.device->kind());
    if (kinds.back() == DeviceKind::kHost) device.threads = std::max(1, omp_get_max_threads() / on_host);
  }
  return load_multi_pipeline(options, devices, patience_of(kinds), callbacks);
}

const ModelInfo& MultiPipeline::info() const { return state_->groups.front()->first().info(); }

std::vector<DrawerInfo> MultiPipeline::drawers() const {
  std::vector<DrawerInfo> out;
  for (size_t i = 0; i < state_->groups.size(); ++i) {
    const Group& group = *state_->groups[i];
    out.push_back({group.name(), group.first().info(), state_->queue.drawn(i), state_->queue.taken_out(i),
                   group.traffic()});
  }
  return out;
}

GenerateRequest MultiPipeline::default_request() const {
  return state_->groups.front()->first().default_request();
}

GenerateResult MultiPipeline::generate(const GenerateRequest& request, const Callbacks& callbacks) {
  GenerateRequest own = request;
  draw_seeds(own);
  const bool several = state_->several();
  for (;;) {
    const size_t drawer = state_->queue.acquire(callbacks.cancelled);
    Group& group = *state_->groups[drawer];
    Callbacks named = callbacks;
    if (several && callbacks.progress)
      named.progress = [&](const Progress& p) {
        Progress with_name = p;
        with_name.device = group.name();
        return callbacks.progress(with_name);
      };
    try {
      GenerateResult result = group.generate(own, named);
      if (several) result.device = group.name();
      state_->queue.release(drawer, true);
      return result;
    } catch (const DeviceError& e) {
      if (state_->groups.size() == 1 && group.ranks() == 1) {
        state_->queue.release(drawer, false);
        throw;
      }
      log().warn("{} is taken out: {}", group.name(), e.what());
      state_->queue.take_out(drawer, e.what());
    } catch (...) {
      state_->queue.release(drawer, false);
      throw;
    }
  }
}

MemoryPlan MultiPipeline::plan(const GenerateRequest& request) {
  const size_t drawer = state_->queue.acquire({});
  try {
    MemoryPlan plan = state_->groups[drawer]->plan(request);
    state_->queue.release(drawer, false);
    return plan;
  } catch (...) {
    state_->queue.release(drawer, false);
    throw;
  }
}

std::vector<DevicePlan> MultiPipeline::plans(const GenerateRequest& request) {
  std::vector<DevicePlan> out;
  for (size_t i = 0; i < state_->groups.size(); ++i) {
    if (!state_->queue.acquire_this(i)) continue;
    try {
      out.push_back({state_->groups[i]->name(), state_->groups[i]->plan(request)});
    } catch (...) {
      state_->queue.release(i, false);
      throw;
    }
    state_->queue.release(i, false);
  }
  return out;
}

void MultiPipeline::generate_each(const RequestAt& request, const ResultTaker& take,
                                  const Callbacks& callbacks) {
  const size_t drawers = state_->groups.size();
  if (state_->launched && state_->groups.front()->ranks() == 1)
    return state_->launched->draw_each(request, take,
                                       [&](const GenerateRequest& one) { return generate(one, callbacks); });
  if (drawers == 1) {
    for (size_t i = 0;; ++i) {
      const std::optional<GenerateRequest> next = request(i);
      if (!next) return;
      take(i, generate(*next, callbacks));
    }
  }
  draw_in_order(
      drawers, request,
      [this](const GenerateRequest& one, const Callbacks& watch) { return generate(one, watch); }, take,
      callbacks);
}

void MultiPipeline::enable_profiling() {
  for (const auto& group : state_->groups) group->enable_profiling();
}
std::string MultiPipeline::profile_table() const { return state_->groups.front()->first().profile_table(); }
void MultiPipeline::write_profile_trace(const std::string& path) const {
  if (state_->groups.size() == 1 && !state_->groups.front()->divides())
    return state_->groups.front()->first().write_profile_trace(path);
  std::vector<std::vector<TracedRank>> groups;
  for (const auto& group : state_->groups) groups.push_back(group->traced());
  write_rank_trace(path, groups);
}

}  // namespace rocm_sd
