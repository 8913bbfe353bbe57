#include "emulator/observers.hpp"

#include <algorithm>

namespace rocm_sd::emu {

namespace {
constexpr uint8_t kMany = 255;
}

void LdsShadow::start_group() {
  std::fill(bytes_.begin(), bytes_.end(), Byte{});
  std::fill(arrived_.begin(), arrived_.end(), 0u);
  std::fill(settled_.begin(), settled_.end(), 0u);
  epoch_ = 1;
  rewrites_.clear();
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

void LdsShadow::touch(const Wave& w, const Inst& in, uint32_t at, uint32_t lane, uint32_t operation) {
  Byte& b = bytes_[at];
  const bool writes = in.flags & (kStores | kToLds), atomic = in.flags & kAtomic;
  const auto me = static_cast<uint8_t>(w.index);
  if ((!writes || atomic) && !b.written)
    fault(w, in, concat("lane ", lane, " reads byte ", at, " of LDS, which nothing has written"));
  if (b.write_epoch == epoch_ && b.writer != me && !(atomic && b.by_atomic)) {
    if (writes && !atomic && !b.by_atomic)
      rewrites_.push_back({at, lane, b.writer, w.lds[at]});
    else
      race(w, in, lane, writes, at, b.writer);
  }
  if (b.written && b.writer != me && b.write_epoch < epoch_ && b.operation > settled_[b.writer])
    fault(w, in,
          concat("lane ", lane, (writes ? " writes" : " reads"), " byte ", at, " of LDS: wave ",
                 static_cast<int>(b.writer), " came to the barrier without a wait for its store there"));
  if (writes && !atomic && b.read_epoch == epoch_ && b.reader != me)
    fault(w, in,
          concat("lane ", lane, " writes byte ", at,
                 " of LDS, which another wave read since the last barrier"));
  if (writes) {
    b.write_epoch = epoch_;
    b.writer = me;
    b.operation = operation;
    b.by_atomic = atomic;
    b.written = true;
  } else {
    b.reader = b.read_epoch == epoch_ && b.reader != me ? kMany : me;
    b.read_epoch = epoch_;
  }
}

void LdsShadow::access(const Wave& w, const Inst& in, const Pointers& p, uint32_t bytes, uint32_t operation) {
  for (uint32_t h = 0; h < w.halves; ++h)
    for_active(p.active[h], [&](uint32_t l) {
      const uint8_t* at = p.at[h * kRow + l];
      if (at < w.lds || at >= w.lds + w.lds_bytes) return;  // a flat access elsewhere
      for (uint32_t i = 0; i < bytes; ++i)
        touch(w, in, static_cast<uint32_t>(at - w.lds) + i, h * kRow + l, operation);
    });
}

}  // namespace rocm_sd::emu
