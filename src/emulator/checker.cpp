#include "emulator/checker.hpp"
#include "base/format.hpp"

#include <algorithm>
#include <bit>

namespace rocm_sd::emu {

namespace {

uint64_t exec_mask(const Wave& w) {
  return w.sgpr[kExec] | (w.halves == 2 ? static_cast<uint64_t>(w.sgpr[kExec + 1]) << 32 : 0);
}

std::string where(const Wave& w, const Inst& in) {
  return concat("`", printable(w.program->texts[in.text]), "` at 0x",
                fmt::format("{:x}", in.address - w.group->image));
}

}  // namespace

Checker::Checker(const Program& program, uint32_t waves, uint32_t lanes, uint32_t lds_bytes,
                 uint32_t scratch_bytes)
    : program_(program),
      use_index_(program.code.size(), -1),
      states_(waves),
      shadow_(lds_bytes, waves,
              std::ranges::any_of(program.code, [](const Inst& in) { return (in.flags & kToLds) != 0; })),
      scratch_(size_t{waves} * lanes * scratch_bytes),
      lanes_(lanes),
      scratch_bytes_(scratch_bytes) {}

const Uses& Checker::uses(const Inst& in) {
  int32_t& index = use_index_[static_cast<size_t>(&in - program_.code.data())];
  if (index < 0) {
    index = static_cast<int32_t>(uses_.size());
    uses_.push_back(uses_of(in, program_.texts[in.text], program_.target));
  }
  return uses_[static_cast<size_t>(index)];
}

void Checker::start_group(const std::vector<Wave>& waves) {
  shadow_.start_group();
  std::fill(scratch_.begin(), scratch_.end(), uint8_t{0});
  for (size_t i = 0; i < waves.size(); ++i) {
    Watched& s = states_[i];
    s.waits.start();
    s.hazards.start();
    s.lanes = exec_mask(waves[i]);
    s.absent = 0;
    s.partial = s.at_barrier = nullptr;
    s.signalled = false;
    s.unwritten.clear();
  }
}

void Checker::before(Wave& w, const Inst& in) {
  Watched& s = states_[w.index];
  if (s.partial) {
    if (const uint64_t back = s.absent & exec_mask(w)) {
      const Inst& barrier = *s.partial;
      fault(w, barrier,
            concat("a barrier in divergent code: lane ", std::countr_zero(back),
                   " did not come to it and runs ", where(w, in), " after it"));
    }
  }
  const Uses& u = uses(in);
  s.in_lds = false;
  s.waits.before(w, in, u);
  if (u.unit != Unit::kOther) s.hazards.before(w, in, u, program_.target);
}

void Checker::after(Wave& w, const Inst& in) {
  Watched& s = states_[w.index];
  const Uses& u = uses(in);
  s.waits.after(in, u, program_.target, s.in_lds);
  s.hazards.after(in, u, program_.target);
  if (in.cls == Class::kLds || u.unit == Unit::kFlat || in.flags & kToLds) shadow_.done(w, in);
  if (w.state == State::kDone) shadow_.end(w);
  if (w.state == State::kDone && !s.unwritten.empty()) {
    const Unwritten& first = s.unwritten.front();
    fault(w, *first.by,
          concat("lane ", first.lane, " reads byte ", first.first,
                 " of its scratch, which nothing has written"));
  }
  const bool signals = w.signalled && !s.signalled, waits = w.state == State::kBarrier;
  // What a wave stored before its barrier is there for the others if it had waited for it.
  if (signals || (waits && !s.signalled)) shadow_.arrive(w.index, s.waits.lds_ended());
  s.signalled = w.signalled;
  if (!waits) return;
  s.at_barrier = &in;
  if (const uint64_t absent = s.lanes & ~exec_mask(w)) {
    s.partial = &in;
    s.absent = absent;
  }
}

void Checker::barrier(const std::vector<Wave>& waves) {
  const Wave* first = nullptr;
  for (const Wave& w : waves) {
    if (w.state != State::kBarrier) continue;
    const Inst* at = states_[w.index].at_barrier;
    if (first && at != states_[first->index].at_barrier)
      fault(w, *at,
            concat("a barrier in divergent code: wave ", first->index, " waits at ",
                   where(*first, *states_[first->index].at_barrier)));
    if (!first) first = &w;
  }
  shadow_.barrier(waves);
}

void Checker::lds(Wave& w, const Inst& in, const Pointers& p, uint32_t bytes) {
  Watched& s = states_[w.index];
  // HSA runs LDS in its unaligned mode, in which loads and stores are slow at odd addresses but right;
  // atomics are not.
  const uint32_t alignment = in.flags & kAtomic ? bytes : 1;
  for (uint32_t h = 0; h < w.halves; ++h)
    for_active(p.active[h], [&](uint32_t l) {
      const uint8_t* at = p.at[h * kRow + l];
      if (at < w.lds || at >= w.lds + w.lds_bytes) return;
      s.in_lds = true;
      const auto offset = static_cast<uint32_t>(at - w.lds);
      if (offset % alignment)
        fault(w, in,
              concat("lane ", h * kRow + l, ": ", bytes, " bytes at ", offset, " of LDS are misaligned"));
    });
  shadow_.access(w, in, p, bytes, s.waits.lds_issued(), s.waits.lds_ended());
}

// A load that finds no byte written in any lane is suspect: it is a fault when its wave ends, unless the lane
// stores there in between. Compilers fill vectors element by element, and load all of one to change a part;
// and registers saved by some lanes come back in all.
void Checker::scratch(Wave& w, const Inst& in, const Pointers& p, uint32_t bytes) {
  Watched& s = states_[w.index];
  uint8_t* written = scratch_.data() + size_t{w.index} * lanes_ * scratch_bytes_;
  const uint8_t* end = w.scratch + size_t{lanes_} * scratch_bytes_;
  const bool writes = in.flags & kStores;
  bool any = false;
  Unwritten suspect{nullptr, 0, 0, bytes};
  for (uint32_t h = 0; h < w.halves; ++h)
    for_active(p.active[h], [&](uint32_t l) {
      const uint8_t* at = p.at[h * kRow + l];
      if (at < w.scratch || at >= end) return;
      const auto offset = static_cast<size_t>(at - w.scratch);
      const uint32_t lane = h * kRow + l,
                     first = static_cast<uint32_t>(offset - size_t{lane} * scratch_bytes_);
      if (writes) {
        std::fill_n(written + offset, bytes, uint8_t{1});
        std::erase_if(s.unwritten, [&](const Unwritten& u) {
          return u.lane == lane && u.first < first + bytes && first < u.first + u.bytes;
        });
      } else if (std::find(written + offset, written + offset + bytes, uint8_t{1}) !=
                 written + offset + bytes) {
        any = true;
      } else if (!suspect.by) {
        suspect = {&in, lane, first, bytes};
      }
    });
  const auto same = [&](const Unwritten& u) { return u.by == &in && u.first == suspect.first; };
  if (suspect.by && !any && std::none_of(s.unwritten.begin(), s.unwritten.end(), same))
    s.unwritten.push_back(suspect);
}

void Checker::global_bytes(Wave& w, const Inst& in, uint64_t address, uint32_t bytes, uint32_t lane) {
  const auto ranges = w.group->ranges;
  if (last_range_ >= ranges.size() || address < ranges[last_range_].begin ||
      address >= ranges[last_range_].end) {
    const auto after = std::upper_bound(ranges.begin(), ranges.end(), address,
                                        [](uint64_t a, const Range& r) { return a < r.begin; });
    if (after == ranges.begin()) return;
    last_range_ = static_cast<size_t>(after - 1 - ranges.begin());
  }
  const Range& r = ranges[last_range_];
  if (!r.written || address + bytes > r.end) return;
  uint8_t* first = r.written + (address - r.begin);
  if (!(in.flags & kStores) || in.flags & kAtomic)
    for (uint32_t i = 0; i < bytes; ++i)
      if (!__atomic_load_n(first + i, __ATOMIC_RELAXED))
        fault(w, in,
              fmt::format(
                  "lane {} reads {} bytes at {:#x}, of which byte {} of a buffer of {} was never written",
                  lane, bytes, address, address + i - r.begin, r.end - r.begin));
  if (in.flags & kStores)  // groups on other threads may do the same
    for (uint32_t i = 0; i < bytes; ++i) __atomic_store_n(first + i, uint8_t{1}, __ATOMIC_RELAXED);
}

void Checker::global(Wave& w, const Inst& in, const Pointers& p, uint32_t bytes) {
  const uint8_t* scratch_end = w.scratch + size_t{w.lanes} * w.scratch_bytes;
  for (uint32_t h = 0; h < w.halves; ++h)
    for_active(p.active[h], [&](uint32_t l) {
      const uint8_t* at = p.at[h * kRow + l];
      if ((at >= w.lds && at < w.lds + w.lds_bytes) || (at >= w.scratch && at < scratch_end)) return;
      global_bytes(w, in, reinterpret_cast<uint64_t>(at), bytes, h * kRow + l);
    });
}

void Checker::scalar(Wave& w, const Inst& in, const uint8_t* at, uint32_t bytes) {
  global_bytes(w, in, reinterpret_cast<uint64_t>(at), bytes, 0);
}

}  // namespace rocm_sd::emu
