#include "runtime/exec.hpp"

#include <utility>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

void run_body(Device& device, const OpInfo& info, const LaunchBody& body, Profiler* profiler,
              const CancelCheck* cancel) {
  require<CancelledError>(!cancel || !*cancel || !(*cancel)(), "cancelled");
  const DeviceAccess access(device);
  if (!profiler) return body();
  const auto begin = Profiler::Clock::now();
  body();
  profiler->record(info, begin, Profiler::Clock::now());
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

void Graph::replay(Device& device, Profiler* profiler, const CancelCheck* cancel) const {
  const DeviceAccess access(device);
  for (const Node& node : nodes_) run_body(device, node.info, node.body, profiler, cancel);
}

void Exec::launch(OpInfo info, LaunchBody body) {
  if (planning()) {
    ++problems_[concat(info.op, " ", info.detail)];
    planned_flops_ += info.flops;
    return;
  }
  run_body(device(), info, body, profiler, cancel);
  if (mode_ == Mode::kCapture) graph->add(std::move(info), std::move(body));
}

Program::Program(std::string name, Arena& arena, Forward forward)
    : name_(std::move(name)), arena_(arena), forward_(std::move(forward)) {}

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
  const auto begin = Profiler::Clock::now();
  if (captured_ && captured_generation_ == arena_.generation())
    graph_.replay(arena_.device(), profiler, cancel);
  else
    capture(profiler, cancel);
  if (profiler) profiler->record_span(name_, begin, Profiler::Clock::now());
}

void Program::capture(Profiler* profiler, const CancelCheck* cancel) {
  graph_ = Graph();
  captured_ = false;
  Exec ex(arena_, Mode::kCapture);
  ex.graph = &graph_;
  ex.profiler = profiler;
  ex.cancel = cancel;
  const Replaying replaying(arena_, plan_);
  forward_(ex);
  captured_ = true;
  captured_generation_ = arena_.generation();
}

}  // namespace rocm_sd
