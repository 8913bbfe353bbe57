#include "emulator/executor.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>

#include "base/format.hpp"
#include "emulator/checker.hpp"
#include "emulator/resident.hpp"

namespace rocm_sd::emu {

namespace {

// What stops every thread of a launch at the first fault.
struct Shared {
  std::atomic<uint64_t> next{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::exception_ptr error;
  std::string exceeded;             // the limit that was reached
  std::vector<std::string> stands;  // where waves stood then
};
struct Exceeded {
  std::string limit;
};

// One host thread. It runs group after group; one that gets nowhere for a while, because it waits for another
// (a barrier of the whole grid), is put aside for the next.
class Worker {
 public:
  Worker(const LaunchPlan& plan, const Options& options, Shared& shared, size_t most_residents)
      : plan_(plan), options_(options), shared_(shared), most_residents_(most_residents) {
    if (options.count) {
      counters.executed.resize(plan.program.code.size());
      meter_ = std::make_unique<AccessMeter>(plan.program, plan.ranges);
    }
    if (options.seconds_limit > 0)
      deadline_ =
          std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                                 std::chrono::duration<double>(options.seconds_limit));
  }

  void work() {
    bool more = true;  // groups that nobody has begun
    while (!shared_.stop) {
      Resident* r = nullptr;
      if (more && (!idle_.empty() || residents_.size() < most_residents_)) {
        const uint64_t i = shared_.next.fetch_add(1);
        more = i < plan_.groups();
        if (more) r = begin(i);
      }
      if (!r) {
        if (waiting_.empty()) {
          if (!more) return;
          continue;
        }
        r = waiting_.front();
        waiting_.pop_front();
      }
      running_ = r;
      (run_group(*r) ? idle_ : waiting_).push_back(r);
      running_ = nullptr;
    }
  }

  // Where waves stand that have not ended.
  void stands(std::vector<std::string>& out) const {
    const auto add = [&](const Resident& r) {
      for (const Wave& w : r.waves)
        if (w.state != State::kDone) out.push_back(r.stand(w));
    };
    if (running_) add(*running_);
    for (const Resident* r : waiting_) add(*r);
  }
  std::unique_ptr<AccessMeter> take_meter() { return std::move(meter_); }

  Counters counters;

 private:
  static constexpr int kPatience = 16;  // turns of its waves without an end until a group is put aside

  Resident* begin(uint64_t index) {
    if (idle_.empty()) {
      residents_.push_back(std::make_unique<Resident>(plan_, options_, meter_.get()));
      idle_.push_back(residents_.back().get());
    }
    Resident* r = idle_.back();
    idle_.pop_back();
    r->start(index);
    counters.waves += plan_.waves;
    return r;
  }

  // False: it has not ended.
  bool run_group(Resident& r) {
    check_ = r.check.get();
    uint32_t alive = plan_.waves;
    for (int turns = 0; alive > 0 && turns < kPatience;) {
      uint32_t waiting = 0;
      alive = 0;
      for (Wave& w : r.waves) {
        if (w.state == State::kYield) turn(w);
        if (w.state != State::kDone) ++alive;
        if (w.state == State::kBarrier) ++waiting;
      }
      if (shared_.stop) return false;
      if (waiting < alive) {
        ++turns;
        continue;
      }
      if (waiting > 0 && check_) check_->barrier(r.waves);
      for (Wave& w : r.waves)
        if (w.state == State::kBarrier) w.state = State::kYield;
    }
    return alive == 0;
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
  // Loops end a turn after 1024 times back, so that this is reached by waves that never end.
  void finish_turn(Wave& w, uint64_t n) {
    counters.instructions += n;
    w.instructions += n;
    if (w.state == State::kDone) return;
    if (options_.instruction_limit && w.instructions > options_.instruction_limit)
      throw Exceeded{concat("no end after ", options_.instruction_limit, " instructions of a wave")};
    if (options_.seconds_limit > 0 && std::chrono::steady_clock::now() > deadline_)
      throw Exceeded{fmt::format("no end after {:g} seconds", options_.seconds_limit)};
  }

  const LaunchPlan& plan_;
  const Options& options_;
  Shared& shared_;
  size_t most_residents_;
  std::chrono::steady_clock::time_point deadline_;
  std::unique_ptr<AccessMeter> meter_;
  std::vector<std::unique_ptr<Resident>> residents_;
  std::deque<Resident*> idle_, waiting_;  // without a group; with one that was put aside
  Resident* running_ = nullptr;
  Checker* check_ = nullptr;  // of the group that runs
};

// How many groups a host thread may have under way: as many as a large card, within a GiB for all threads.
size_t most_residents(const LaunchPlan& plan, int threads) {
  const size_t bytes =
      size_t{plan.waves} * plan.lanes * (Resident::kRows * sizeof(uint32_t) + plan.scratch_bytes) +
      plan.lds_bytes;
  const size_t all = std::clamp<size_t>((size_t{1} << 30) / bytes, 1, 2048);
  return std::max<size_t>(all / static_cast<size_t>(threads), 1);
}

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
  const size_t residents = most_residents(plan, threads);
  const auto body = [&] {
    try {
      Worker worker(plan, options, shared, residents);
      try {
        worker.work();
      } catch (const Exceeded& e) {
        const std::lock_guard lock(shared.mutex);
        if (shared.exceeded.empty()) shared.exceeded = e.limit;
        shared.stop = true;
      }
      const std::lock_guard lock(shared.mutex);
      if (!shared.exceeded.empty()) worker.stands(shared.stands);
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
  if (!shared.exceeded.empty()) {
    constexpr size_t kShown = 16;
    std::string message = concat("kernel ", plan.kernel.name, ": ", shared.exceeded, "; its waves stand at");
    for (size_t i = 0; i < std::min(kShown, shared.stands.size()); ++i) message += "\n  " + shared.stands[i];
    if (shared.stands.size() > kShown) message += concat("\n  and ", shared.stands.size() - kShown, " more");
    throw KernelFault(message);
  }
  if (whole) {
    total.distinct = whole->distinct();
    total.memory = std::move(whole->counts);
    total.instructions = std::accumulate(total.by_class.begin(), total.by_class.end(), uint64_t{0});
  }
  return total;
}

void fault(const Wave& w, const Inst& in, std::string_view what) {
  throw KernelFault(concat("kernel ", w.group->kernel, ", ", place_of(w, in), ": ", what));
}

std::span<const HostService> host_services() {
  static constexpr HostService kAll[] = {
      {"hidden_hostcall_buffer", "printf, assert or another call of the host"},
      {"hidden_printf_buffer", "printf"},
      {"hidden_heap_v1", "malloc in a kernel"},
      {"hidden_multigrid_sync_arg", "a barrier of several GPUs"},
      {"hidden_default_queue", "launches by a kernel"},
      {"hidden_completion_action", "launches by a kernel"}};
  return kAll;
}

uint8_t* check_access(Wave& w, const Inst& in, uint64_t address, uint32_t bytes, uint32_t lane) {
  if (address >> 48 == kServiceWindow >> 48 && (address >> 32 & 0xffff) < host_services().size()) {
    const HostService& service = host_services()[address >> 32 & 0xffff];
    fault(w, in,
          concat("asks the host for ", service.what, " (", service.argument, "), which is not emulated"));
  }
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
