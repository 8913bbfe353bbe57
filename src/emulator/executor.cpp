#include "emulator/executor.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>

#include "base/format.hpp"
#include "emulator/checker.hpp"

namespace rocm_sd::emu {

namespace {

constexpr uint32_t kRows = kSpareRow + 1;

struct Free {
  void operator()(void* p) const { std::free(p); }
};
template <class T>
using Block = std::unique_ptr<T, Free>;
template <class T>
Block<T> aligned_block(size_t count) {
  const size_t bytes = (std::max<size_t>(count, 1) * sizeof(T) + 63) / 64 * 64;
  Block<T> out(static_cast<T*>(std::aligned_alloc(64, bytes)));
  require<OutOfMemoryError>(out != nullptr, "emulated GPU: no memory for ", bytes, " bytes of registers");
  return out;
}

// What stops every thread of a launch at the first fault.
struct Shared {
  std::atomic<uint64_t> next{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::exception_ptr error;
};

// One host thread's place to run groups in.
class Worker {
 public:
  Worker(const LaunchPlan& plan, const Options& options, Shared& shared)
      : plan_(plan), options_(options), shared_(shared), waves_(plan.waves), halves_(plan.lanes / kRow) {
    rows_ = aligned_block<uint32_t>(size_t{plan.waves} * halves_ * kRows * kRow);
    lds_ = aligned_block<uint8_t>(plan.lds_bytes);
    scratch_ = aligned_block<uint8_t>(size_t{plan.waves} * plan.lanes * plan.kernel.scratch_bytes);
    if (options.count) counters.executed.resize(plan.program.code.size());
    if (options.count) {
      meter_ = std::make_unique<AccessMeter>(plan.program, plan.ranges);
      group_.meter = meter_.get();
    }
    if (options.check) {
      check_ = std::make_unique<Checker>(plan.program, plan.waves, plan.lanes, plan.lds_bytes,
                                         plan.kernel.scratch_bytes);
      group_.check = check_.get();
    }
    group_.ranges = plan.ranges;
    group_.kernel = plan.kernel.name;
    group_.image = plan.base;
    for (uint32_t i = 0; i < plan.waves; ++i) {
      Wave& w = waves_[i];
      w.halves = halves_;
      w.lanes = plan.lanes;
      w.half_stride = kRows * kRow;
      w.rows = rows_.get() + size_t{i} * halves_ * kRows * kRow;
      w.program = &plan.program;
      w.group = &group_;
      w.lds = lds_.get();
      w.lds_bytes = plan.lds_bytes;
      w.scratch_bytes = plan.kernel.scratch_bytes;
      w.scratch = scratch_.get() + size_t{i} * plan.lanes * w.scratch_bytes;
    }
  }

  void work() {
    const Dim3& g = plan_.launch.grid;
    for (uint64_t i; !shared_.stop && (i = shared_.next.fetch_add(1)) < plan_.groups();) {
      group_.id[0] = static_cast<uint32_t>(i % g.x);
      group_.id[1] = static_cast<uint32_t>(i / g.x % g.y);
      group_.id[2] = static_cast<uint32_t>(i / g.x / g.y);
      if (!run_group()) return;
    }
  }
  std::unique_ptr<AccessMeter> take_meter() { return std::move(meter_); }

  Counters counters;

 private:
  // False: another thread met a fault.
  bool run_group() {
    // LDS and scratch hold a pattern, not zeros: what reads them unwritten shows.
    std::fill_n(lds_.get(), plan_.lds_bytes, uint8_t{0xcd});
    std::fill_n(scratch_.get(), size_t{plan_.waves} * plan_.lanes * plan_.kernel.scratch_bytes,
                uint8_t{0xcd});
    for (uint32_t i = 0; i < plan_.waves; ++i) plan_.start_wave(waves_[i], i);
    if (check_) check_->start_group(waves_);
    counters.waves += plan_.waves;
    uint32_t alive = plan_.waves;
    while (alive > 0) {
      uint32_t waiting = 0;
      alive = 0;
      for (Wave& w : waves_) {
        if (w.state == State::kYield) turn(w);
        if (w.state != State::kDone) ++alive;
        if (w.state == State::kBarrier) ++waiting;
      }
      if (shared_.stop) return false;
      if (waiting == alive && waiting > 0 && check_) check_->barrier(waves_);
      if (waiting == alive)
        for (Wave& w : waves_)
          if (w.state == State::kBarrier) w.state = State::kYield;
    }
    return true;
  }

  void turn(Wave& w) {
    w.state = State::kRunning;
    if (options_.trace || options_.before || check_)
      watched(w);
    else if (options_.count)
      counted(w);
    else
      plain(w);
  }

  void plain(Wave& w) {
    uint64_t n = 0;
    do {
      const Inst& in = *w.pc++;
      in.run(w, in);
      ++n;
    } while (w.state == State::kRunning);
    finish_turn(w, n);
  }
  void counted(Wave& w) {
    uint64_t n = 0;
    const Inst* first = plan_.program.code.data();
    do {
      const Inst& in = *w.pc++;
      in.run(w, in);
      ++counters.executed[static_cast<size_t>(&in - first)];
      ++n;
    } while (w.state == State::kRunning);
    finish_turn(w, n);
  }
  // With callbacks or checks around each instruction.
  void watched(Wave& w) {
    uint64_t n = 0;
    do {
      const Inst& in = *w.pc;
      const std::string& text = plan_.program.texts[in.text];
      if (options_.before) options_.before(w, in, text);
      if (check_) check_->before(w, in);
      ++w.pc;
      in.run(w, in);
      if (check_) check_->after(w, in);
      ++n;
      if (options_.count) ++counters.executed[static_cast<size_t>(&in - plan_.program.code.data())];
      if (options_.trace) options_.trace(w, in, text);
    } while (w.state == State::kRunning);
    finish_turn(w, n);
  }
  void finish_turn(Wave& w, uint64_t n) {
    counters.instructions += n;
    // Loops count: a wave that never ends must turn back 1024 times between two looks.
    if (options_.instruction_limit && w.state != State::kDone && w.loops > options_.instruction_limit)
      fault(w, w.pc[0], concat("no end after ", w.loops, " turns of its loops"));
  }

  const LaunchPlan& plan_;
  const Options& options_;
  Shared& shared_;
  WorkGroup group_;
  std::unique_ptr<AccessMeter> meter_;
  std::unique_ptr<Checker> check_;
  std::vector<Wave> waves_;
  uint32_t halves_;
  Block<uint32_t> rows_;
  Block<uint8_t> lds_, scratch_;
};

void add(Counters& to, const Counters& from, const Program& program) {
  to.waves += from.waves;
  to.instructions += from.instructions;
  if (from.executed.empty()) return;
  to.executed.resize(from.executed.size());
  for (size_t i = 0; i < from.executed.size(); ++i) {
    to.executed[i] += from.executed[i];
    if (!(program.code[i].flags & kSecond))  // a dual instruction counts once
      to.by_class[static_cast<size_t>(program.code[i].cls)] += from.executed[i];
  }
}

}  // namespace

Counters run(const LaunchPlan& plan, const Options& options) {
  Shared shared;
  int threads = options.threads > 0 ? options.threads
                                    : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  if (options.trace || options.before) threads = 1;
  threads = static_cast<int>(std::min<uint64_t>(static_cast<uint64_t>(threads), plan.groups()));
  Counters total;
  std::unique_ptr<AccessMeter> whole;
  const auto body = [&] {
    try {
      Worker worker(plan, options, shared);
      worker.work();
      const std::lock_guard lock(shared.mutex);
      add(total, worker.counters, plan.program);
      if (auto meter = worker.take_meter()) {
        if (whole)
          whole->join(*meter);
        else
          whole = std::move(meter);
      }
    } catch (...) {
      shared.stop = true;
      const std::lock_guard lock(shared.mutex);
      if (!shared.error) shared.error = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    for (int i = 1; i < threads; ++i) others.emplace_back(body);
    body();
  }
  if (shared.error) std::rethrow_exception(shared.error);
  if (whole) {
    total.distinct = whole->distinct();
    total.memory = std::move(whole->counts);
    total.instructions = std::accumulate(total.by_class.begin(), total.by_class.end(), uint64_t{0});
  }
  return total;
}

void fault(const Wave& w, const Inst& in, std::string_view what) {
  const std::string& text = w.program->texts[in.text];
  const uint64_t offset = in.address - w.group->image;
  const SourceLine source = w.program->lines ? w.program->lines->at(offset) : SourceLine{};
  const std::string place = source.line ? concat(" (", printable(source.file), ":", source.line, ")") : "";
  throw KernelFault(concat("kernel ", w.group->kernel, ", `",
                           text.empty() ? "(no instruction)" : printable(text), "` at 0x",
                           fmt::format("{:x}", offset), place, ", group (", w.group->id[0], ", ",
                           w.group->id[1], ", ", w.group->id[2], ") wave ", w.index, ": ", what));
}

uint8_t* check_access(Wave& w, const Inst& in, uint64_t address, uint32_t bytes, uint32_t lane) {
  const auto ranges = w.group->ranges;
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), address,
                                      [](uint64_t a, const Range& r) { return a < r.begin; });
  if (after != ranges.begin()) {
    const Range& r = *(after - 1);
    if (address < r.end && bytes <= r.end - address) {
      w.hit_begin = r.begin;
      w.hit_end = r.end;
      return reinterpret_cast<uint8_t*>(address);
    }
    if (address < r.end + (1 << 16))
      fault(w, in,
            fmt::format("lane {}: {} bytes at {:#x}, {} bytes after the end of a buffer of {}", lane, bytes,
                        address, static_cast<int64_t>(address + bytes - r.end), r.end - r.begin));
  }
  fault(w, in, fmt::format("lane {}: {} bytes at {:#x}, which no buffer holds", lane, bytes, address));
}

void lds_fault(Wave& w, const Inst& in, uint32_t offset, uint32_t bytes, uint32_t lane) {
  fault(w, in,
        concat("lane ", lane, ": ", bytes, " bytes at ", offset, " of an LDS of ", w.lds_bytes, " bytes"));
}

}  // namespace rocm_sd::emu
