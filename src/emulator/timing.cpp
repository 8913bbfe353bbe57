#include "emulator/timing.hpp"

#include <algorithm>
#include <deque>
#include <limits>
#include <memory>
#include <unordered_map>

#include "base/error.hpp"
#include "emulator/instruction_cost.hpp"
#include "emulator/memory_side.hpp"

namespace rocm_sd::emu {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr size_t kRemembered = 64;  // as far as the counters of outstanding operations reach

// When registers may be read, and what makes them.
struct Scoreboard {
  std::array<double, kSpareRow> vector{}, chain{};
  std::array<double, kScalars> scalar{};
  std::array<bool, kSpareRow> by_matrix{};
};

struct Group;
struct Runner {  // a wave under way
  const std::vector<Step>* steps = nullptr;
  size_t at = 0;
  Group* group = nullptr;
  uint32_t index = 0, simd = 0;
  double start = 0, next = 0;  // next: when it could issue if nothing held it up
  bool jumped = false;         // the last instruction was a branch that was taken
  double ready = 0;            // kNever: waits for a barrier
  Stall why = Stall::kNone;
  uint32_t arrived = 0, joined = 0;  // barriers
  bool done = false;
  std::array<std::deque<double>, kCounters> open;  // ends of memory operations, ascending
  std::unique_ptr<Scoreboard> registers;
};
struct Group {
  const GroupRecord* record = nullptr;
  uint32_t order = 0, place = 0;
  std::vector<Runner> waves;
  std::vector<double> released;  // barriers that are complete: when waves go on
  uint32_t left = 0;
};

struct Simd {
  double vector = 0, trans = 0, matrix = 0, scalar = 0;  // free from this cycle on
  uint32_t waves = 0;
};

class Processor {
 public:
  Processor(const Program& program, const Machine& machine, const CardRates& rates,
            std::span<const GroupRecord* const> groups, const ProcessorPlan& plan, const MemoryShare& share,
            const IssueWatch& watch)
      : program_(program),
        machine_(machine),
        rates_(rates),
        records_(groups),
        plan_(plan),
        watch_(watch),
        costs_(instruction_costs(program, machine, rates, plan.lanes)),
        simds_(plan.units * static_cast<size_t>(machine.simds)),
        lds_(plan.units, 0.0),
        lanes_cycles_(program.target.gfx9 ? plan.lanes / 16.0 : plan.lanes / 32.0),
        l2_latency_(share.l2_latency) {
    for (uint32_t u = 0; u < plan.units; ++u)
      memory_.emplace_back(machine, share, plan.has_last_level, queues_);
  }

  ProcessorTime run() {
    const uint32_t places = plan_.spans ? 1 : plan_.units;
    for (uint32_t n = 0; n < plan_.resident; ++n)
      for (uint32_t p = 0; p < places; ++p) begin_group(p, 0);
    while (!running_.empty()) step();
    for (const MemorySide& m : memory_) {
      out_.l0 += m.busy;
      out_.lines += m.asked;
      out_.missed += m.missed;
      out_.stored += m.stored;
    }
    out_.from_memory = queues_.from_memory;
    std::sort(out_.ends.begin(), out_.ends.end());
    return std::move(out_);
  }

 private:
  uint32_t unit_of(uint32_t simd) const { return simd / static_cast<uint32_t>(machine_.simds); }

  void begin_group(uint32_t place, double at) {
    if (next_ >= records_.size()) return;
    auto group = std::make_unique<Group>();
    group->record = records_[next_];
    group->order = static_cast<uint32_t>(next_++);
    group->place = place;
    group->waves.resize(group->record->waves.size());
    group->left = static_cast<uint32_t>(group->waves.size());
    const size_t each = simds_.size() / (plan_.spans ? 1 : plan_.units), first = place * each;
    for (size_t i = 0; i < group->waves.size(); ++i) {
      Runner& r = group->waves[i];
      r.steps = &group->record->waves[i];
      r.group = group.get();
      r.index = static_cast<uint32_t>(i);
      size_t best = first;  // the SIMD with the fewest waves
      for (size_t s = first; s < first + each; ++s)
        if (simds_[s].waves < simds_[best].waves) best = s;
      r.simd = static_cast<uint32_t>(best);
      ++simds_[best].waves;
      r.start = r.next = at;
      r.registers = std::make_unique<Scoreboard>();
      prepare(r);
      running_.push_back(&r);
    }
    groups_.push_back(std::move(group));
  }

  // When the next instruction could issue by what its own wave has to wait for.
  void prepare(Runner& r) {
    r.ready = r.next;
    r.why = r.jumped ? Stall::kBranch : Stall::kNone;
    const auto later = [&](double t, Stall why) {
      if (t > r.ready) r.ready = t, r.why = why;
    };
    if (r.joined > 0) {
      const auto& released = r.group->released;
      later(r.joined <= released.size() ? released[r.joined - 1] : kNever, Stall::kBarrier);
    }
    size_t at = r.at;
    do {
      const InstructionCost& c = costs_[(*r.steps)[at].inst];
      for (size_t k = 0; k < kCounters; ++k) {
        if (c.uses.waits[k] < 0) continue;
        const auto left = static_cast<size_t>(c.uses.waits[k]);
        const auto& open = r.open[k];
        constexpr Stall kWhy[] = {Stall::kWaitLoad, Stall::kWaitStore, Stall::kWaitLds, Stall::kWaitScalar};
        if (open.size() > left) later(open[open.size() - 1 - left], kWhy[k]);
      }
      const Scoreboard& s = *r.registers;
      for (const auto& v : c.uses.vector_reads) {
        const bool addend = v.first == c.addend.first && v.count == c.addend.count && c.addend.count > 0;
        for (uint32_t i = v.first; i < uint32_t{v.first} + v.count && i < kSpareRow; ++i)
          later(addend && s.by_matrix[i] ? s.chain[i] : s.vector[i],
                s.by_matrix[i] ? Stall::kMatrixResult : Stall::kResult);
      }
      for (const auto& v : c.uses.scalar_reads)
        for (uint32_t i = v.first; i < uint32_t{v.first} + v.count && i < kScalars; ++i)
          later(s.scalar[i], Stall::kResult);
      ++at;
    } while (at < r.steps->size() && costs_[(*r.steps)[at].inst].second);
  }

  // From when on the unit takes the instruction.
  std::pair<double, Stall> unit_free(const Runner& r) const {
    const InstructionCost& c = costs_[(*r.steps)[r.at].inst];
    const Simd& s = simds_[r.simd];
    switch (c.engine) {
      case Engine::kVector: return {s.vector, Stall::kVectorBusy};
      case Engine::kTrans:
        return s.trans > s.vector ? std::pair{s.trans, Stall::kTransBusy}
                                  : std::pair{s.vector, Stall::kVectorBusy};
      case Engine::kMatrix:
        return s.matrix > s.vector || !rates_.own_matrix
                   ? std::pair{std::max(s.matrix, s.vector), Stall::kMatrixBusy}
                   : std::pair{s.vector, Stall::kVectorBusy};
      case Engine::kScalar:
      case Engine::kBranch:
      case Engine::kScalarLoad: return {s.scalar, Stall::kScalarBusy};
      case Engine::kLds: return {lds_[unit_of(r.simd)] - machine_.queue, Stall::kLdsBusy};
      case Engine::kMemory: return {memory_[unit_of(r.simd)].free() - machine_.queue, Stall::kMemoryBusy};
      default: return {0, Stall::kNone};
    }
  }

  // Issues the instruction that can issue first; of several, that of the oldest wave.
  void step() {
    Runner* first = nullptr;
    double at = kNever;
    Stall busy = Stall::kNone;
    for (Runner* r : running_) {
      if (r->ready >= at) continue;
      const auto [free, unit] = unit_free(*r);
      const double t = std::max(r->ready, free);
      if (t < at) first = r, at = t, busy = unit;
    }
    require<InternalError>(first != nullptr, "time model: every wave waits for a barrier");
    // First what the wave itself waited for, then the unit.
    const double own = first->ready - first->next, other = at - first->ready;
    out_.stalls[static_cast<size_t>(first->why)] += own;
    out_.stalls[static_cast<size_t>(busy)] += other;
    issue(*first, at, own >= other ? first->why : busy);
  }

  void issue(Runner& r, double t, Stall why) {
    const Step step = (*r.steps)[r.at];
    const InstructionCost& c = costs_[step.inst];
    const double busy = occupy(r, c, step, t);
    if (watch_) watch_({r.group->order, r.index, r.simd, step.inst, r.next, t, busy, why});
    results(r, c, t);
    r.next = t + c.pause;
    ++r.at;
    while (r.at < r.steps->size() && costs_[(*r.steps)[r.at].inst].second)
      results(r, costs_[(*r.steps)[r.at++].inst], t);
    r.jumped = false;
    if (c.engine == Engine::kBranch && r.at < r.steps->size()) {
      r.jumped = (*r.steps)[r.at].inst != step.inst + 1;
      r.next = t + std::max(c.pause, r.jumped ? machine_.branch_latency : machine_.branch_latency / 4);
    }
    if (c.engine == Engine::kBarrier || c.engine == Engine::kSignal) ++r.arrived;
    if (c.engine == Engine::kBarrier || c.engine == Engine::kJoin) r.joined = r.arrived;
    if (r.at >= r.steps->size()) return end(r, t + c.pause);
    if (c.engine == Engine::kBarrier || c.engine == Engine::kSignal) arrivals(*r.group, t);
    prepare(r);
  }

  // The units' part of an instruction; cycles that its unit is busy.
  double occupy(Runner& r, const InstructionCost& c, const Step& step, double t) {
    Simd& s = simds_[r.simd];
    switch (c.engine) {
      case Engine::kVector:
        s.vector = t + c.busy;
        out_.vector += c.busy;
        return c.busy;
      case Engine::kTrans:
        s.vector = t + c.vector;
        out_.vector += c.vector;
        if (rates_.own_transcendental) s.trans = t + c.busy;
        out_.transcendental += c.busy;
        return c.busy;
      case Engine::kMatrix:
        s.vector = t + c.vector;
        s.matrix = t + c.busy;
        out_.matrix += c.busy;
        if (rates_.own_matrix) out_.vector += c.vector;
        return c.busy;
      case Engine::kScalar:
      case Engine::kBranch:
        s.scalar = t + c.busy;
        out_.scalar += c.busy;
        return c.busy;
      case Engine::kScalarLoad: {
        s.scalar = t + rates_.scalar;
        out_.scalar += rates_.scalar;
        // The first time that a processor comes to it, the scalar cache does not hold the data.
        const auto held = scalar_lines_.try_emplace(step.inst, t + machine_.scalar_load + l2_latency_).first;
        finish(r, c.uses.counter, std::max(held->second, t + machine_.scalar_load));
        return rates_.scalar;
      }
      case Engine::kLds: return use_lds(r, c, step, t);
      case Engine::kMemory: return use_memory(r, c, step, t);
      default: return 1;
    }
  }

  double use_lds(Runner& r, const InstructionCost& c, const Step& step, double t) {
    double& free = lds_[unit_of(r.simd)];
    double cycles = c.busy;
    if (step.access)
      cycles += r.group->record->accesses[step.access - 1].lds_cycles * 128.0 / machine_.lds_bytes;
    cycles = std::max(cycles, 1.0);
    free = std::max(free, t) + cycles;
    out_.lds += cycles;
    finish(r, c.uses.counter, free + machine_.lds_latency);
    return cycles;
  }

  double use_memory(Runner& r, const InstructionCost& c, const Step& step, double t) {
    MemorySide& m = memory_[unit_of(r.simd)];
    if (!step.access) {  // no lane was active: it is counted all the same
      finish(r, c.uses.counter, t + 1);
      return 1;
    }
    const RecordedAccess& a = r.group->record->accesses[step.access - 1];
    const auto lines = std::span(r.group->record->lines).subspan(a.first, a.lines);
    const double before = m.busy;
    double done =
        c.stores ? m.store(t, lines, a.bytes, lanes_cycles_) : m.load(t, lines, a.bytes, lanes_cycles_);
    if (a.lds_cycles > 0) {  // to LDS, or a flat access there
      double& free = lds_[unit_of(r.simd)];
      const double cycles = a.lds_cycles * 128.0 / machine_.lds_bytes;
      free = std::max(free, t) + cycles;
      out_.lds += cycles;
      done = std::max(done, free + machine_.lds_latency);
    }
    finish(r, c.uses.counter, done);
    if (c.uses.unit == Unit::kFlat) finish(r, Counter::kLds, done);
    return m.busy - before;
  }

  // A memory operation ends at `t`; those of one counter end in their order.
  void finish(Runner& r, Counter counter, double t) {
    auto& open = r.open[static_cast<size_t>(counter)];
    open.push_back(open.empty() ? t : std::max(t, open.back()));
    if (open.size() > kRemembered) open.pop_front();
  }

  void results(Runner& r, const InstructionCost& c, double t) {
    if (c.latency == 0) return;
    Scoreboard& s = *r.registers;
    for (const auto& v : c.uses.vector_writes)
      for (uint32_t i = v.first; i < uint32_t{v.first} + v.count && i < kSpareRow; ++i) {
        s.vector[i] = t + c.latency;
        s.by_matrix[i] = c.engine == Engine::kMatrix;
        s.chain[i] = t + c.chain;
      }
    for (const auto& v : c.uses.scalar_writes)
      for (uint32_t i = v.first; i < uint32_t{v.first} + v.count && i < kScalars; ++i)
        s.scalar[i] = t + c.latency;
  }

  // Completes barriers to which every wave has come that has not ended.
  void arrivals(Group& g, double t) {
    for (;;) {
      const auto wanted = static_cast<uint32_t>(g.released.size() + 1);
      bool any = false;
      for (const Runner& w : g.waves) {
        if (w.done) continue;
        if (w.arrived < wanted) return;
        any = true;
      }
      if (!any) return;
      g.released.push_back(t + machine_.barrier);
      for (Runner& w : g.waves)
        if (!w.done && w.joined == wanted && w.ready == kNever) prepare(w);
    }
  }

  void end(Runner& r, double t) {
    r.done = true;
    out_.wave_cycles += t - r.start;
    --simds_[r.simd].waves;
    std::erase(running_, &r);
    Group& g = *r.group;
    if (--g.left > 0) return arrivals(g, t);
    // The stores of its waves go on after them; its place is free.
    out_.ends.push_back(t);
    const uint32_t place = g.place;
    std::erase_if(groups_, [&](const auto& owned) { return owned.get() == &g; });
    begin_group(place, t + machine_.group_start);
  }

  const Program& program_;
  const Machine& machine_;
  const CardRates& rates_;
  std::span<const GroupRecord* const> records_;
  const ProcessorPlan& plan_;
  const IssueWatch& watch_;
  std::vector<InstructionCost> costs_;
  std::vector<Simd> simds_;
  std::vector<double> lds_;  // of each unit: free from this cycle on
  SharedQueues queues_;
  std::deque<MemorySide> memory_;  // of each unit
  double lanes_cycles_, l2_latency_;
  std::unordered_map<uint32_t, double> scalar_lines_;  // by scalar load: when the scalar cache has its data
  std::vector<std::unique_ptr<Group>> groups_;
  std::vector<Runner*> running_;  // the oldest first
  size_t next_ = 0;
  ProcessorTime out_;
};

}  // namespace

std::string_view stall_name(Stall stall) {
  constexpr std::string_view kNames[kStalls] = {"none",
                                                "result",
                                                "matrix result",
                                                "vector busy",
                                                "transcendental busy",
                                                "matrix busy",
                                                "scalar busy",
                                                "LDS busy",
                                                "vector cache busy",
                                                "wait for loads",
                                                "wait for stores",
                                                "wait for LDS",
                                                "wait for scalar loads",
                                                "barrier",
                                                "branch"};
  return kNames[static_cast<size_t>(stall)];
}

ProcessorTime run_processor(const Program& program, const Machine& machine, const CardRates& rates,
                            std::span<const GroupRecord* const> groups, const ProcessorPlan& plan,
                            const MemoryShare& share, const IssueWatch& watch) {
  return Processor(program, machine, rates, groups, plan, share, watch).run();
}

}  // namespace rocm_sd::emu
