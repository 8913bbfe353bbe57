#include "emulator/observers.hpp"

#include <algorithm>

namespace rocm_sd::emu {

void LdsShadow::start_group() {
  std::fill(bytes_.begin(), bytes_.end(), Byte{});
  std::fill(reads_.begin(), reads_.end(), 0u);
  std::fill(arrived_.begin(), arrived_.end(), LdsOperations{});
  std::fill(settled_.begin(), settled_.end(), LdsOperations{});
  epoch_ = 1;
  ended_ = 0;
  rewrites_.clear();
  suspects_.clear();
}

void LdsShadow::race(const Wave& w, const Inst& in, uint32_t lane, bool writes, uint32_t at,
                     uint32_t writer) {
  fault(w, in,
        concat("lane ", lane, (writes ? " writes" : " reads"), " byte ", at, " of LDS, which wave ", writer,
               " wrote since the last barrier"));
}

void LdsShadow::done(const Wave& w, const Inst& in) {
  for (const Rewrite& r : rewrites_)
    if (w.lds[r.at] != r.value) race(w, in, r.lane, true, r.at, r.writer);
  rewrites_.clear();
}

void LdsShadow::suspect(Byte& b, const Suspect& who) {
  b.suspects |= 1u << who.wave;
  // What has been cleared since goes now and then, so that a loop does not fill the memory.
  if (suspects_.size() >= 4 * bytes_.size() + 64)
    std::erase_if(suspects_, [&](const Suspect& s) { return !(bytes_[s.at].suspects >> s.wave & 1); });
  suspects_.push_back(who);
}

void LdsShadow::settle(const Wave& w) {
  for (const Suspect& s : suspects_)
    if (s.wave == w.index && bytes_[s.at].suspects >> s.wave & 1)
      fault(w, *s.by,
            concat("lane ", static_cast<int>(s.lane), " reads byte ", s.at,
                   " of LDS, which an atomic of wave ", static_cast<int>(s.other),
                   " changes between the same barriers; wave ", w.index, " does none there itself"));
}

void LdsShadow::end(const Wave& w) {
  settle(w);
  ended_ |= 1u << w.index;
}

void LdsShadow::barrier(const std::vector<Wave>& waves) {
  if (!suspects_.empty())
    for (const Wave& w : waves) settle(w);
  suspects_.clear();
  ++epoch_;
  settled_ = arrived_;
}

// own_loads: how many of the wave's own loads to LDS have ended.
void LdsShadow::touch(const Wave& w, const Inst& in, uint32_t at, uint32_t lane, uint32_t operation,
                      uint32_t own_loads) {
  Byte& b = bytes_[at];
  const bool writes = in.flags & (kStores | kToLds), atomic = in.flags & kAtomic;
  const auto me = static_cast<uint8_t>(w.index);
  const uint32_t bit = 1u << me;
  if (b.atomic_epoch != epoch_) b.atomics = 0;
  if (b.read_epoch != epoch_) b.readers = 0;
  const bool mine = atomic || b.atomics & bit;  // this wave has synchronised here
  if ((!writes || atomic) && !b.written)
    fault(w, in, concat("lane ", lane, " reads byte ", at, " of LDS, which nothing has written"));
  if (b.write_epoch == epoch_ && b.writer != me && !(atomic && b.by_atomic)) {
    const bool theirs = b.by_atomic || b.atomics >> b.writer & 1;
    if (!theirs && writes && !atomic)
      rewrites_.push_back({at, lane, b.writer, w.lds[at]});
    else if (!theirs || (writes && !mine))
      race(w, in, lane, writes, at, b.writer);
    else if (!mine)
      suspect(b, {at, me, static_cast<uint8_t>(lane), b.writer, &in});
  }
  const LdsOperations& settled = settled_[b.writer];
  if (b.written && b.writer != me && b.write_epoch < epoch_ &&
      b.operation > (b.by_load ? settled.loads : settled.lds))
    fault(w, in,
          concat("lane ", lane, (writes ? " writes" : " reads"), " byte ", at, " of LDS: wave ",
                 static_cast<int>(b.writer), " came to the barrier without a wait for its ",
                 (b.by_load ? "load to there" : "store there")));
  // Loads to LDS end in their order; what LDS instructions do does not wait for them.
  if (b.written && b.by_load && b.writer == me && b.operation > own_loads && !(in.flags & kToLds))
    fault(w, in,
          concat("lane ", lane, (writes ? " writes" : " reads"), " byte ", at,
                 " of LDS without a wait for the wave's own load to there"));
  if (const uint32_t others = writes ? b.readers & ~bit & ~b.atomics : 0) {
    if (!mine || others & ended_)
      fault(w, in,
            concat("lane ", lane, " writes byte ", at,
                   " of LDS, which another wave read since the last barrier"));
    for (uint32_t left = others; left; left &= left - 1)
      suspect(b, {at, static_cast<uint8_t>(__builtin_ctz(left)), b.reading_lane, me, b.read_by});
  }
  if (in.flags & kToLds)
    for (uint32_t v = 0; v < settled_.size(); ++v)
      if (v != me && reads_[at * settled_.size() + v] > settled_[v].lds)
        fault(w, in,
              concat("lane ", lane, " loads to byte ", at, " of LDS: wave ", v,
                     " came to the barrier without a wait for its read of there"));
  if (!reads_.empty() && (!writes || atomic)) reads_[at * settled_.size() + me] = operation;
  if (atomic) {
    b.atomics |= bit;
    b.atomic_epoch = epoch_;
    b.suspects &= ~bit;
  }
  if (writes) {
    b.write_epoch = epoch_;
    b.writer = me;
    b.operation = operation;
    b.by_atomic = atomic;
    b.by_load = in.flags & kToLds;
    b.written = true;
  } else {
    b.readers |= bit;
    b.read_epoch = epoch_;
    b.read_by = &in;
    b.reading_lane = static_cast<uint8_t>(lane);
  }
}

void LdsShadow::access(const Wave& w, const Inst& in, const Pointers& p, uint32_t bytes, LdsOperations issued,
                       LdsOperations ended) {
  const uint32_t operation = (in.flags & kToLds ? issued.loads : issued.lds) + 1;
  for (uint32_t h = 0; h < w.halves; ++h)
    for_active(p.active[h], [&](uint32_t l) {
      const uint8_t* at = p.at[h * kRow + l];
      if (at < w.lds || at >= w.lds + w.lds_bytes) return;  // a flat access elsewhere
      for (uint32_t i = 0; i < bytes; ++i)
        touch(w, in, static_cast<uint32_t>(at - w.lds) + i, h * kRow + l, operation, ended.loads);
    });
}

}  // namespace rocm_sd::emu
