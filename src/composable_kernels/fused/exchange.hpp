// Messages between the GPUs that draw one image: pieces of maps that kernels store into another GPU's memory.
// Problem   put: pieces of own tensors -> the windows of other ranks, and to other own tensors; take: pieces
//           of windows -> own tensors; pass: both at once, of calls that read what came in the call before
// Mapping   a grid's threads take the units of a piece in turn; a unit is 16, 4 or 1 bytes
// Traffic   each piece read and written once, what goes out over the link, what came in own memory
// Numerics  bytes as they are
// Limits    8 ranks; a piece has rows of one length, in blocks of one distance
//
// The protocol. Each rank has a window for each other one: a flag and two buffers, in memory that the other's
// kernels reach. The messages of an ordered pair of ranks are numbered from 1 on; message m lies in buffer m
// % 2.
// - put stores message m = put + 1, and when all its workgroups have done so, the last one stores m to the
//   flag with a system-wide release, and the number to `put`. take, a later kernel of the same stream, waits
//   until the flag is m = taken + 1 or more, with a system-wide acquire; its last workgroup stores m to
//   `taken`. The numbers lie in the rank's own memory, so that a graph that is replayed counts on by itself.
// - Every exchange goes both ways between the ranks that take part, if need be without bytes: where one of a
//   pair signals, it also waits for the other. So when a rank has taken message m of the other, the other has
//   put m, and has therefore taken m - 1 (its stream runs in order): buffer (m + 1) % 2 is free for message
//   m + 1. Nobody is ahead by more than one message, and two buffers suffice.
// - put waits for nobody, and take for other devices alone, whose put does not wait for this take. So a
//   device that runs workgroups one after the other (the emulator, the scalar one) gets through, too.
// - A wait ends without the message where *stop is not 0 (another rank has failed, or begins anew), and where
//   `patience` is over: then the number of the rank, from 1 on, stands in *late. What is taken then is of no
//   use; the host looks before it uses it.
//
// Kept messages, of displaced rows: those of one call of a model do not lie in the two buffers but in the
// window's kept part, each at a place of its own, so that the next call finds them all. The kept part has two
// halves; call c uses half c % 2, and its first exchange counts `call` up.
// - In an exact call put and take do as above: only the place differs.
// - In a stale call pass stores this call's parts into half c % 2 of the others and takes those that came in
//   call c - 1 out of half (c - 1) % 2 of its own. It waits for nobody and tells nobody: after every call all
//   ranks exchange something by put and take. Who has taken the other's message there sees all that the other
//   has passed before (its flag is a release, behind passes that have each ended with a fence), and knows
//   that the other has read what it wanted of the half that the next call will overwrite.
#pragma once

#include "composable_kernels/arch/system_target.hpp"
#include "composable_kernels/block.hpp"
#include "composable_kernels/chunk16.hpp"
#include "composable_kernels/tile/unrolled.hpp"

namespace rocm_sd {

// Pieces: those of a norm and a convolution of divided rows come from seven ranks, with a row of each of two
// neighbours; and what goes there.
constexpr int kMaxExchangeRanks = 8, kMaxExchangePieces = 2 * kMaxExchangeRanks;
constexpr int kExchangeThreads = 256;

struct ExchangePeer {
  char *to, *from;  // the buffers of the other's window, and of the own one for the other's messages
  char *kept_to, *kept_from;  // likewise the halves of the kept part
  uint32_t *flag_there, *flag_here;
  uint32_t put, taken;  // messages
};

// What has passed since the host last wrote the control. waited: nanoseconds for which the first workgroup of
// each take stood still, in steps of the device's clock (10 ns on AMD, up to 1 us on NVIDIA).
struct ExchangeCounts {
  uint64_t messages, sent_bytes, received_bytes, waited;
};

// Lies in the rank's own device memory. The host writes it while no kernel runs.
struct ExchangeControl {
  ExchangePeer peers[kMaxExchangeRanks];  // by rank; the own one is not used
  int64_t slot_bytes, kept_bytes;         // of a buffer, of a half
  uint64_t patience;                      // nanoseconds; 0: for ever
  const uint32_t* stop;                   // of all ranks
  uint32_t* late;                         // of this one
  uint32_t put_ended, take_ended;         // workgroups of the kernel that runs
  uint32_t call;                          // of those whose messages are kept
  ExchangeCounts counts;
};

// Rows of `row` units, `inner` of them in each of `outer` blocks. In a window they lie without gaps, from
// `offset` on.
struct ExchangePiece {
  const char* from;                                    // null: the window of `ranks`
  char* to;                                            // null: the windows of `ranks`
  int64_t from_outer, from_inner, to_outer, to_inner;  // bytes from one to the next
  int64_t offset;
  uint32_t outer, inner, row;
  uint32_t ranks;  // a bit for each
};

// Where a kept message lies in a half, by the rank that it goes to or comes from.
struct KeptMessage {
  int64_t to[kMaxExchangeRanks], from[kMaxExchangeRanks];
  uint32_t is_kept, begins_call;  // of its call it is the first: put and pass count
};

struct ExchangeParams {
  ExchangePiece pieces[kMaxExchangePieces];
  KeptMessage kept;
  ExchangeControl* control;
  uint32_t count;  // of pieces
  uint32_t with;   // ranks that take part: put tells them, take waits for them; a bit for each
  uint32_t workgroups;
  uint32_t messages;                    // put, pass: to so many ranks something goes
  uint64_t sent_bytes, received_bytes;  // to all ranks together, from them
};

namespace exchanges {

template <int kBytes>
struct UnitOf;
template <>
struct UnitOf<16> {
  using Type = Chunk16;
};
template <>
struct UnitOf<4> {
  using Type = uint32_t;
};
template <>
struct UnitOf<1> {
  using Type = uint8_t;
};

// A thread's units of the piece, four under way at a time.
template <class Unit, class Arch>
ROCM_SD_DEVICE void copy_piece(const ExchangePiece& p, const char* from, char* to, const Block<Arch>& block) {
  constexpr int kAhead = 4;
  const auto units = static_cast<int64_t>(p.outer) * p.inner * p.row;
  const int64_t step = block.item_stride();
  const auto place = [&](int64_t i, int64_t outer_bytes, int64_t inner_bytes) {
    const auto unit = static_cast<uint32_t>(i);
    const uint32_t row = unit / p.row, outer = row / p.inner;
    return outer * outer_bytes + (row - outer * p.inner) * inner_bytes +
           (unit - row * p.row) * static_cast<int64_t>(sizeof(Unit));
  };
  for (int64_t i = block.first_item(); i < units; i += kAhead * step) {
    Unit values[kAhead];
    unrolled<kAhead>([&](int k) {
      const int64_t unit = i + k * step < units ? i + k * step : i;
      values[k] = *reinterpret_cast<const Unit*>(from + place(unit, p.from_outer, p.from_inner));
    });
    unrolled<kAhead>([&](int k) {
      if (i + k * step < units)
        *reinterpret_cast<Unit*>(to + place(i + k * step, p.to_outer, p.to_inner)) = values[k];
    });
  }
}

ROCM_SD_DEVICE int64_t slot_of(const ExchangeControl& control, uint32_t message) {
  return static_cast<int64_t>(message % 2) * control.slot_bytes;
}

ROCM_SD_DEVICE int64_t half_of(const ExchangeControl& control, uint32_t call) {
  return static_cast<int64_t>(call % 2) * control.kept_bytes;
}

// Where in the other's window the message goes that this kernel puts.
ROCM_SD_DEVICE char* place_to(const ExchangeParams& p, const ExchangeControl& control, int rank) {
  const ExchangePeer& peer = control.peers[rank];
  if (!p.kept.is_kept) return peer.to + slot_of(control, peer.put + 1);
  return peer.kept_to + half_of(control, control.call + p.kept.begins_call) + p.kept.to[rank];
}

// Where in the own window the message lies that this kernel takes. calls_ago: of kept ones.
ROCM_SD_DEVICE const char* place_from(const ExchangeParams& p, const ExchangeControl& control, int rank,
                                      uint32_t calls_ago) {
  const ExchangePeer& peer = control.peers[rank];
  if (!p.kept.is_kept) return peer.from + slot_of(control, peer.taken + 1);
  return peer.kept_from + half_of(control, control.call + p.kept.begins_call - calls_ago) + p.kept.from[rank];
}

// Called by one lane.
ROCM_SD_DEVICE void wait_for(const ExchangeControl& control, int rank, uint32_t message) {
  const uint32_t* flag = control.peers[rank].flag_here;
  uint64_t begin = 0;
  for (uint32_t turn = 1;; ++turn) {
    if (static_cast<int32_t>(SystemScope::load_acquire(flag) - message) >= 0) return;
    SystemScope::pause();
    if (turn % 32 != 0) continue;
    if (SystemScope::load_acquire(control.stop) != 0 || SystemScope::load_acquire(control.late) != 0) return;
    if (control.patience == 0) continue;
    const uint64_t now = SystemScope::nanoseconds();
    if (begin == 0) begin = now;
    if (now - begin > control.patience)
      return SystemScope::store_release(control.late, static_cast<uint32_t>(rank) + 1);
  }
}

// Whether this workgroup is the last to end; called by one lane of each.
ROCM_SD_DEVICE bool is_last(uint32_t* ended, uint32_t workgroups) {
  if (SystemScope::count_up(ended) + 1 != workgroups) return false;
  *ended = 0;
  return true;
}

// What lies in own memory already.
template <class Unit, class Arch>
ROCM_SD_DEVICE void copy_own(const ExchangeParams& p, const Block<Arch>& block) {
  rolled(static_cast<int>(p.count), [&](int i) {
    if (p.pieces[i].from && p.pieces[i].to)
      copy_piece<Unit>(p.pieces[i], p.pieces[i].from, p.pieces[i].to, block);
  });
}

template <class Unit, class Arch>
ROCM_SD_DEVICE void store_sent(const ExchangeParams& p, const ExchangeControl& control,
                               const Block<Arch>& block) {
  rolled(static_cast<int>(p.count), [&](int i) {
    if (p.pieces[i].to) return;
    rolled(kMaxExchangeRanks, [&](int rank) {
      if (p.pieces[i].ranks >> rank & 1)
        copy_piece<Unit>(p.pieces[i], p.pieces[i].from, place_to(p, control, rank) + p.pieces[i].offset,
                         block);
    });
  });
}

template <class Unit, class Arch>
ROCM_SD_DEVICE void take_received(const ExchangeParams& p, const ExchangeControl& control, uint32_t calls_ago,
                                  const Block<Arch>& block) {
  rolled(static_cast<int>(p.count), [&](int i) {
    if (p.pieces[i].from) return;
    int rank = 0;
    while (!(p.pieces[i].ranks >> rank & 1)) ++rank;
    copy_piece<Unit>(p.pieces[i], place_from(p, control, rank, calls_ago) + p.pieces[i].offset,
                     p.pieces[i].to, block);
  });
}

}  // namespace exchanges

template <class Arch, int kUnit>
ROCM_SD_DEVICE void exchange_put_body(const ExchangeParams& p, const Block<Arch>& block) {
  using Unit = typename exchanges::UnitOf<kUnit>::Type;
  ExchangeControl& control = *p.control;
  exchanges::store_sent<Unit>(p, control, block);
  SystemScope::fence();  // every lane its own stores
  block.barrier();
  if (block.thread() == 0 && exchanges::is_last(&control.put_ended, p.workgroups)) {
    SystemScope::fence();
    rolled(kMaxExchangeRanks, [&](int rank) {
      if (!(p.with >> rank & 1)) return;
      ExchangePeer& peer = control.peers[rank];
      SystemScope::store_release(peer.flag_there, ++peer.put);
    });
    control.call += p.kept.begins_call;
    control.counts.messages += p.messages;
    control.counts.sent_bytes += p.sent_bytes;
  }
  // When the others have been told: they need not wait for it.
  exchanges::copy_own<Unit>(p, block);
}

template <class Arch, int kUnit>
ROCM_SD_DEVICE void exchange_take_body(const ExchangeParams& p, const Block<Arch>& block) {
  using Unit = typename exchanges::UnitOf<kUnit>::Type;
  ExchangeControl& control = *p.control;
  if (block.thread() == 0) {
    const bool counts = block.group() == 0;
    const uint64_t begin = counts ? SystemScope::nanoseconds() : 0;
    rolled(kMaxExchangeRanks, [&](int rank) {
      if (p.with >> rank & 1) exchanges::wait_for(control, rank, control.peers[rank].taken + 1);
    });
    if (counts) control.counts.waited += SystemScope::nanoseconds() - begin;
  }
  block.barrier();
  SystemScope::launch_next();
  exchanges::take_received<Unit>(p, control, 0, block);
  block.barrier();  // all lanes have read `taken`
  if (block.thread() != 0 || !exchanges::is_last(&control.take_ended, p.workgroups)) return;
  rolled(kMaxExchangeRanks, [&](int rank) {
    if (p.with >> rank & 1) ++control.peers[rank].taken;
  });
  control.counts.received_bytes += p.received_bytes;
}

template <class Arch, int kUnit>
ROCM_SD_DEVICE void exchange_pass_body(const ExchangeParams& p, const Block<Arch>& block) {
  using Unit = typename exchanges::UnitOf<kUnit>::Type;
  ExchangeControl& control = *p.control;
  // What an earlier kernel has seen the flag of is behind caches that are this workgroup's own.
  SystemScope::fence();
  exchanges::store_sent<Unit>(p, control, block);  // first, for it has the longer way
  exchanges::copy_own<Unit>(p, block);
  exchanges::take_received<Unit>(p, control, 1, block);
  SystemScope::fence();  // every lane its own stores
  block.barrier();       // and all have read `call`
  if (block.thread() != 0 || !exchanges::is_last(&control.put_ended, p.workgroups)) return;
  control.call += p.kept.begins_call;
  control.counts.messages += p.messages;
  control.counts.sent_bytes += p.sent_bytes;
  control.counts.received_bytes += p.received_bytes;
}

}  // namespace rocm_sd
