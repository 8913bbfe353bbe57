#include "runtime/exec.hpp"

#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "runtime/launch_timer.hpp"
#include "runtime/side_launches.hpp"
#include "runtime/stop_request.hpp"
#include "runtime/trace_range.hpp"
#include "runtime/weight_stream.hpp"

namespace rocm_sd {
namespace {

GpuDevice* gpu_of(Device& device) {
  return device.kind() == DeviceKind::kHost ? nullptr : static_cast<GpuDevice*>(&device);
}

void run_body(const OpInfo& info, const LaunchBody& body, Profiler* profiler, LaunchTimer* timer,
              const CancelCheck* cancel) {
  const auto go_on = [cancel] { require<CancelledError>(!cancel || !*cancel || !(*cancel)(), "cancelled"); };
  go_on();
  std::optional<TraceRange> range;
  if (TraceRange::enabled()) range.emplace(concat(info.op, " ", info.detail));
  if (timer) return timer->run(info, body);
  const StopScope stoppable(cancel);
  const auto begin = profiler ? Profiler::Clock::now() : Profiler::Clock::time_point();
  body();
  go_on();  // a body that was asked to stop has left its work undone
  if (profiler) profiler->record(info, begin, Profiler::Clock::now());
}

// Launches of the side, until this ends.
class OnTheSide {
 public:
  OnTheSide(SideLaunches& side, void* point) : side_(side) { side_.begin_beside(point); }
  ~OnTheSide() { side_.end_beside(); }
  OnTheSide(const OnTheSide&) = delete;
  OnTheSide& operator=(const OnTheSide&) = delete;

 private:
  SideLaunches& side_;
};

// Starts what the place asks for. Where each launch's time is asked for, all are in their order.
template <class Run>
void run_at(const LaunchPlace& place, bool in_order, const Run& run) {
  using Kind = LaunchPlace::Kind;
  if (place.kind == Kind::kMain || (in_order && place.kind == Kind::kBeside)) return run();
  if (in_order) return;
  if (place.kind == Kind::kBeside) {
    const OnTheSide there(*place.side, place.point.get());
    return run();
  }
  if (place.kind == Kind::kFork) return place.side->mark_launches(place.point.get());
  {
    const OnTheSide there(*place.side, nullptr);
    place.side->mark_launches(place.point.get());
  }
  place.side->launches_wait(place.point.get());
}

// Ends the arena's replay also when a launch throws.
class Replaying {
 public:
  Replaying(Arena& arena, const ArenaPlan& plan) : arena_(arena) { arena_.begin_replay(plan); }
  ~Replaying() { arena_.end_replay(); }

 private:
  Arena& arena_;
};

}  // namespace

void Graph::replay(Profiler* profiler, LaunchTimer* timer, const CancelCheck* cancel) const {
  for (const Node& node : nodes_)
    run_at(node.place, timer != nullptr, [&] { run_body(node.info, node.body, profiler, timer, cancel); });
}

bool Graph::replay_on(GpuDevice& device) {
  if (!device_asked_) {
    device_asked_ = true;
    record_on(device);
  }
  for (const auto& part : device_parts_) part->replay();
  return !device_parts_.empty();
}

size_t Graph::first_part() const {
  constexpr size_t kFirstPart = 96;
  if (!in_parts_ || nodes_.size() <= 3 * kFirstPart) return nodes_.size();
  bool forked = false;  // a part ends where the streams have met
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (i >= kFirstPart && !forked) return i;
    if (nodes_[i].place.kind == LaunchPlace::Kind::kFork) forked = true;
    if (nodes_[i].place.kind == LaunchPlace::Kind::kJoin) forked = false;
  }
  return nodes_.size();
}

// A launch that cannot be recorded (one that waits, say) costs the graph, not the forward: it is then
// replayed launch by launch, where an error of its own will show. Drivers take a microsecond of the
// processor's time for each launch of a graph before its first one runs: the device begins with a short part
// while the processor starts the long one.
void Graph::record_on(GpuDevice& device) {
  const size_t first = first_part();
  for (const auto [begin, end] : {std::pair(size_t{0}, first), std::pair(first, nodes_.size())}) {
    if (begin == end) continue;
    std::unique_ptr<GpuGraph> part = record_on(device, begin, end);
    if (!part) return device_parts_.clear();
    device_parts_.push_back(std::move(part));
  }
}

std::unique_ptr<GpuGraph> Graph::record_on(GpuDevice& device, size_t begin, size_t end) const {
  device.begin_capture();
  try {
    for (size_t i = begin; i < end; ++i) run_at(nodes_[i].place, false, nodes_[i].body);
  } catch (const Error& error) {
    log().warn("no graph: a launch cannot be recorded: {}", error.what());
    device.end_capture();
    return nullptr;
  }
  return device.end_capture();
}

void Exec::launch(OpInfo info, LaunchBody body) {
  if (planning()) {
    PlannedWork& work = problems_[concat(info.op, " ", info.detail)];
    work.op = info.op;
    ++work.launches;
    work.flops += info.flops;
    work.bytes += info.bytes;
    planned_flops_ += info.flops;
    return;
  }
  const DeviceAccess access(device());
  GpuDevice* gpu = gpu_of(device());
  if (gpu && profiler && !timer) {
    LaunchTimer own(*gpu, *profiler);
    run_body(info, body, profiler, &own, cancel);
    own.collect();
  } else {
    run_at(place_, timer != nullptr, [&] { run_body(info, body, profiler, timer, cancel); });
  }
  if (mode_ == Mode::kCapture) graph->add(std::move(info), std::move(body), place_);
  place_.point.reset();  // the side's next launch is behind this one
}

void Exec::place(LaunchPlace place) {
  using Kind = LaunchPlace::Kind;
  if (place.kind == Kind::kMain || place.kind == Kind::kBeside) {
    place_ = std::move(place);
    return;
  }
  if (planning()) return;
  const DeviceAccess access(device());
  run_at(place, profiler != nullptr, [] {});
  if (mode_ == Mode::kCapture) graph->add({}, [] {}, std::move(place));
}

Program::Program(std::string name, Arena& arena, Forward forward)
    : name_(std::move(name)),
      arena_(arena),
      forward_([forward = std::move(forward), schedule = std::make_shared<StreamSchedule>()](Exec& ex) {
        if (WeightStream* stream = WeightStream::of(ex.arena())) return stream->run(ex, schedule, forward);
        forward(ex);
      }) {}

void Program::plan() {
  Exec ex(arena_, Mode::kPlan);
  arena_.begin_plan();
  try {
    forward_(ex);
  } catch (...) {
    arena_.end_plan();
    throw;
  }
  plan_ = arena_.end_plan();
  flops_ = ex.planned_flops();
  problems_ = ex.problems();
  planned_ = true;
  captured_ = false;
}

void Program::run(Profiler* profiler, const CancelCheck* cancel) {
  if (!planned_) plan();
  arena_.reserve(plan_.bytes);
  GpuDevice* gpu = gpu_of(arena_.device());
  std::optional<LaunchTimer> timer;
  if (gpu && profiler) timer.emplace(*gpu, *profiler);
  const TraceRange range(name_);
  const auto begin = Profiler::Clock::now();
  if (captured_ && captured_generation_ == arena_.generation())
    replay(profiler, timer ? &*timer : nullptr, cancel);
  else
    capture(profiler, timer ? &*timer : nullptr, cancel);
  if (timer) timer->collect();
  if (profiler) profiler->record_span(name_, begin, Profiler::Clock::now());
}

void Program::replay(Profiler* profiler, LaunchTimer* timer, const CancelCheck* cancel) {
  const DeviceAccess access(arena_.device());
  GpuDevice* gpu = gpu_of(arena_.device());
  if (gpu && !profiler) {
    require<CancelledError>(!cancel || !*cancel || !(*cancel)(), "cancelled");
    if (graph_.replay_on(*gpu)) return;
  }
  graph_.replay(profiler, timer, cancel);
}

void Program::capture(Profiler* profiler, LaunchTimer* timer, const CancelCheck* cancel) {
  // Copies of streamed weights run beside the launches from the first to the last.
  graph_ = Graph(/*in_parts=*/!WeightStream::of(arena_));
  captured_ = false;
  Exec ex(arena_, Mode::kCapture);
  ex.graph = &graph_;
  ex.profiler = profiler;
  ex.timer = timer;
  ex.cancel = cancel;
  const Replaying replaying(arena_, plan_);
  forward_(ex);
  captured_ = true;
  captured_generation_ = arena_.generation();
}

}  // namespace rocm_sd
