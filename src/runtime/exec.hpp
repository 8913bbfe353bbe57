// Exec: where an op runs and how. The same forward is planned (dry), run, and captured for replay.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/arena.hpp"
#include "runtime/gpu.hpp"
#include "runtime/profiler.hpp"

namespace rocm_sd {

enum class Mode { kRun, kPlan, kCapture };

// Asked between two launches, on the launching thread; true stops with CancelledError.
using CancelCheck = std::function<bool()>;

// A launch: touches device memory through pointers it captured by value; never holds a Tensor.
using LaunchBody = std::function<void()>;

class LaunchTimer;
class SideLaunches;

// Where a launch goes: the main stream, or beside it (beside.hpp), between a fork and the join.
struct LaunchPlace {
  enum class Kind { kMain, kFork, kBeside, kJoin };
  Kind kind = Kind::kMain;
  SideLaunches* side = nullptr;
  std::shared_ptr<void> point;  // kFork: marked; kBeside: waited for, or null; kJoin: of the side, for both
};

// What a plan knows of all launches with one problem.
struct PlannedWork {
  std::string op;  // "conv2d"
  int launches = 0;
  double flops = 0;  // of all of them together, as OpInfo counts
  double bytes = 0;
};
// By "op detail".
using PlannedProblems = std::map<std::string, PlannedWork>;

// The launches of one forward, in order. Valid while the arena keeps its generation and the weights live.
class Graph {
 public:
  // in_parts: a long one may become two graphs of the device, one behind the other. Not where launches leave
  // the stream and come back to it later.
  explicit Graph(bool in_parts = false) : in_parts_(in_parts) {}
  void add(OpInfo info, LaunchBody body, LaunchPlace place = {}) {
    nodes_.push_back({std::move(info), std::move(body), std::move(place)});
  }
  size_t size() const { return nodes_.size(); }
  // Throws CancelledError between two launches once *cancel says so. timer: of a GPU whose launches are to be
  // profiled, else null.
  void replay(Profiler* profiler, LaunchTimer* timer, const CancelCheck* cancel) const;

  // Starts all launches at once as graphs of the device, recorded at the first call. False, and nothing was
  // started, where the device makes no graphs of them; it is not asked again.
  bool replay_on(GpuDevice& device);

 private:
  struct Node {
    OpInfo info;
    LaunchBody body;
    LaunchPlace place;
  };
  size_t first_part() const;  // launches of it
  void record_on(GpuDevice& device);
  std::unique_ptr<GpuGraph> record_on(GpuDevice& device, size_t begin, size_t end) const;

  bool in_parts_;
  std::vector<Node> nodes_;
  std::vector<std::unique_ptr<GpuGraph>> device_parts_;  // in their order
  bool device_asked_ = false;
};

class Exec {
 public:
  // Eager by default: allocations are the arena's, launches run at once. The arena must outlive the Exec.
  explicit Exec(Arena& arena, Mode mode = Mode::kRun) : arena_(arena), mode_(mode) {}

  Device& device() const { return arena_.device(); }
  Arena& arena() const { return arena_; }
  Mode mode() const { return mode_; }
  bool planning() const { return mode_ == Mode::kPlan; }

  // Uninitialised tensors that live as long as the last handle.
  Tensor alloc(const Shape& shape, DType dtype) { return arena_.alloc(shape, dtype); }
  Tensor alloc_like(const Tensor& x) { return arena_.alloc(x.shape(), x.dtype()); }

  // Plan: notes the problem and does nothing. Run: runs the body. Capture: runs it and appends it to the
  // graph. Throws CancelledError where cancellation was asked for.
  void launch(OpInfo info, LaunchBody body);
  // That launches go there from now on; a fork and a join take place here. For Beside.
  void place(LaunchPlace place);
  bool is_beside() const { return place_.kind == LaunchPlace::Kind::kBeside; }

  // Problems met while planning: what a tuner works on and a prediction adds up.
  const PlannedProblems& problems() const { return problems_; }
  double planned_flops() const { return planned_flops_; }

  Profiler* profiler = nullptr;         // may be null
  const CancelCheck* cancel = nullptr;  // may be null
  Graph* graph = nullptr;               // the target in Mode::kCapture
  LaunchTimer* timer = nullptr;         // of a GPU whose launches the profiler wants; one per launch if null

 private:
  Arena& arena_;
  Mode mode_;
  PlannedProblems problems_;
  double planned_flops_ = 0;
  LaunchPlace place_;
};

// A forward that is planned once and then replayed: the unit that the pipeline runs.
// The function reads and writes persistent tensors only and leaves no Tensor of the arena behind.
class Program {
 public:
  using Forward = std::function<void(Exec&)>;
  Program(std::string name, Arena& arena, Forward forward);

  // Dry run; prepares weights and packs the arena. Called by run() if need be.
  void plan();
  bool planned() const { return planned_; }
  size_t arena_bytes() const { return plan_.bytes; }
  size_t arena_lower_bound() const { return plan_.lower_bound; }
  double flops() const { return flops_; }
  const PlannedProblems& problems() const { return problems_; }

  // First call after planning (or after the arena moved) captures; later calls replay, on a GPU as one graph
  // unless a profiler asks for the time of each launch. On a GPU the work may be under way when this returns.
  void run(Profiler* profiler = nullptr, const CancelCheck* cancel = nullptr);

 private:
  void capture(Profiler* profiler, LaunchTimer* timer, const CancelCheck* cancel);
  void replay(Profiler* profiler, LaunchTimer* timer, const CancelCheck* cancel);

  std::string name_;
  Arena& arena_;
  Forward forward_;
  bool planned_ = false;
  ArenaPlan plan_;
  double flops_ = 0;
  PlannedProblems problems_;
  Graph graph_;
  bool captured_ = false;
  uint64_t captured_generation_ = 0;
};

}  // namespace rocm_sd
