// Flash attention over few keys by NVIDIA's warpgroup products (sm_90a): all keys and values of a head lie in
// LDS at once, as those of a text do, and warpgroups take tiles of queries from registers to registers.
// Problem   y = softmax(scale q k^T) v for each head; 16-bit in and out
// Mapping   workgroups take equal runs of tiles of 64 queries, over the ends of heads; the warpgroups of one
//           take the tiles of its run in turn, each on its own after one barrier. Q, P and O lie in registers
// Traffic   q and y once, in pieces of 16 bytes between memory and registers: lanes hold channels in another
//           order than the products', so those of K and V are dealt alike on their way to LDS. k and v once
//           per workgroup, while the kernel ahead is still at work where it cannot be writing them; the next
//           tile's q while this one's scores are weighed
// Numerics  FlashWgmmaRows, with the true maximum
// Limits    no mask; scale > 0; keys of one tile; a run touches two heads; kDim % 8 == 0, kDim <= 80, and
//           kDim % 32 other than 24
#pragma once

#include "composable_kernels/arch/hopper_tma.hpp"
#include "composable_kernels/hopper/flash_wgmma_rows.hpp"

namespace rocm_sd {

// Channels come in groups of 4, 2 or 1 pieces of 8. The products' order of a group of g pieces gives word
// (pair of channels) 4 j + t to the lanes with lane % 4 == t, for j = 0 .. g - 1; here it is the group's word
// g t + j in memory, so that a lane's words are neighbours there.

// Cfg: T; kDim; kKeys, all that there may be; kWarpgroups, warpgroups of a workgroup.
template <class Cfg>
struct FlashSingleTileKv : FlashWgmmaRows<typename Cfg::T, Cfg::kDim, Cfg::kKeys, Cfg::kWarpgroups> {
  using Rows = FlashWgmmaRows<typename Cfg::T, Cfg::kDim, Cfg::kKeys, Cfg::kWarpgroups>;
  using Arch = Nvidia;
  using T = typename Cfg::T;
  using Rows::kDim, Rows::kKeys, Rows::kTile, Rows::kThreads;
  static constexpr int kPieces = kDim / 8, kSpare = (Rows::kPadded - kDim) / 8;
  static constexpr int kHeads = kFlashSingleTileKvHeads,
                       kItems = kKeys * kPieces;  // pieces of a head's keys, or values
  static constexpr int kEach = (kItems + kThreads - 1) / kThreads;
  // Registers are short: the next queries wait in the cache, and outputs take the registers of the scores.
  // Where registers are not short, compilers do worse with the latter, unless both are equally many.
  static constexpr bool kFull = Cfg::kWarpgroups > 4, kTight = kFull || kDim == kKeys;
  static constexpr int kLdsBytes = flash_single_tile_kv_lds_bytes(kDim, kKeys);
  static_assert(kPieces % 4 != 3 && kDim <= kKeys);

  const FlashSingleTileKvParams<T>& once;
  T* tiles;
  int first_tile, count, within;  // of the run; within: its first tile in its first head
  int image_at, head_at;          // of the run's first head

  ROCM_SD_DEVICE FlashSingleTileKv(const FlashSingleTileKvParams<T>& params, char* lds, int run)
      : Rows(params.flash, {0, 0, 0}), once(params) {
    const auto misplaced = static_cast<uint32_t>(__cvta_generic_to_shared(lds)) % 1024;
    tiles = reinterpret_cast<T*>(lds + (1024 - misplaced) % 1024);
    first_tile = run * params.run_tiles;
    const int left = params.tiles - first_tile;
    count = left < params.run_tiles ? left : params.run_tiles;
    const int head = first_tile / params.head_tiles;
    within = first_tile - head * params.head_tiles;
    image_at = head / params.flash.heads;
    head_at = head - image_at * params.flash.heads;
  }

  // The run's head `nth`. No arrays: all that the thread holds would lie in memory for an index unknown to
  // the compiler.
  struct Head {
    int image, head;
  };
  ROCM_SD_DEVICE Head head_of(int nth) const {
    const int next = head_at + nth;
    const bool wraps = next == this->p.heads;
    return {image_at + wraps, wraps ? 0 : next};
  }
  ROCM_SD_DEVICE int heads_of_run() const { return within + count > once.head_tiles ? 2 : 1; }
  ROCM_SD_DEVICE T* keys_of(int nth) const { return tiles + 2 * nth * kTile; }
  ROCM_SD_DEVICE T* values_of(int nth) const { return tiles + (2 * nth + 1) * kTile; }

  // A thread's item: a piece of 8 channels of a key, and that of its value.
  struct Item {
    uint32_t number, row, piece;
    ROCM_SD_DEVICE explicit Item(int n)
        : number(static_cast<uint32_t>(Arch::thread() + n * kThreads)),
          row(number / kPieces),
          piece(number % kPieces) {}
    ROCM_SD_DEVICE bool exists() const { return kItems % kThreads == 0 || number < kItems; }
    // Where word i of it goes in a tile.
    ROCM_SD_DEVICE int place(int i) const {
      const int first = static_cast<int>(piece) / 4 * 4, pieces = kPieces - first >= 4 ? 4 : kPieces % 4;
      const int word = (static_cast<int>(piece) - first) * 4 + i;
      return Rows::place(static_cast<int>(row), first + word % pieces) + word / pieces * 2;
    }
  };
  // Keys and values of all heads of the run, all under way before the first has come. Rows behind the last
  // key are zeros, which no weight makes anything of.
  struct Staged {
    Chunk16 chunks[kHeads][kEach][2];
  };
  ROCM_SD_DEVICE void issue(Staged& staged) const {
    const int used = heads_of_run();
    ROCM_SD_UNROLL
    for (int nth = 0; nth < kHeads; ++nth) {
      const Head at = head_of(nth);
      const T* const k = this->p.k.data + at.image * this->p.k.image + at.head * kDim;
      const T* const v = this->p.v.data + at.image * this->p.v.image + at.head * kDim;
      ROCM_SD_UNROLL
      for (int n = 0; n < kEach; ++n) {
        const Item item(n);
        const int row = static_cast<int>(item.row), column = static_cast<int>(item.piece) * 8;
        Chunk16(&chunks)[2] = staged.chunks[nth][n];
        chunks[0] = chunks[1] = Chunk16{};
        if (nth < used && item.exists() && row < this->p.keys) {
          chunks[0] = *reinterpret_cast<const Chunk16*>(k + row * this->p.k.row + column);
          chunks[1] = *reinterpret_cast<const Chunk16*>(v + row * this->p.v.row + column);
        }
      }
    }
  }
  ROCM_SD_DEVICE void land(const Staged& staged) const {
    ROCM_SD_UNROLL
    for (int nth = 0; nth < kHeads; ++nth) {
      if (nth < heads_of_run()) put(nth, staged.chunks[nth]);
    }
  }
  ROCM_SD_DEVICE void put(int nth, const Chunk16 (&chunks)[kEach][2]) const {
    ROCM_SD_UNROLL
    for (int n = 0; n < kEach; ++n) {
      const Item item(n);
      if (!item.exists()) continue;
      ROCM_SD_UNROLL
      for (int which = 0; which < 2; ++which) {
        const Chunk16& chunk = chunks[n][which];
        const uint32_t words[] = {chunk.x, chunk.y, chunk.z, chunk.w};
        T* const tile = which ? values_of(nth) : keys_of(nth);
        ROCM_SD_UNROLL
        for (int i = 0; i < 4; ++i) *reinterpret_cast<uint32_t*>(tile + item.place(i)) = words[i];
      }
      // Channels of keys that the products read beyond the head's.
      if (kSpare > 0 && item.piece == 0)
        *reinterpret_cast<Chunk16*>(keys_of(nth) + Rows::place(static_cast<int>(item.row), kPieces)) =
            Chunk16{};
    }
  }

  static ROCM_SD_DEVICE void publish() {
    Warpgroup::publish();
    Arch::barrier();
  }

  // A warpgroup's place: tile `at` of the run, in head `nth` of it.
  struct Place {
    int at, nth, query;  // query: the thread's first, its second is 8 further
  };
  ROCM_SD_DEVICE Place place_of(int at) const {
    const int tile = within + at, nth = tile >= once.head_tiles;
    const int thread = WarpgroupRows::unknown(Arch::thread()) % 128;
    return {at, nth, (tile - nth * once.head_tiles) * 64 + thread / 32 * 16 + thread % 32 / 4};
  }

  // use(first piece, pieces) for every group of channels, both known to the compiler.
  template <int kFirst = 0, class Use>
  static ROCM_SD_DEVICE void for_groups(const Use& use) {
    if constexpr (kFirst < kPieces) {
      constexpr int kCount = kPieces - kFirst >= 4 ? 4 : kPieces - kFirst;
      use(std::integral_constant<int, kFirst>{}, std::integral_constant<int, kCount>{});
      for_groups<kFirst + kCount>(use);
    }
  }
  // Where in q the thread's words of its two rows begin: known before q is there.
  struct QueryRows {
    int64_t first, second;
  };
  ROCM_SD_DEVICE QueryRows rows_of(const Place& place) const {
    const Head at = head_of(place.nth);
    const int last = this->p.queries - 1, next = place.query + 8;
    const int64_t from = at.image * this->p.q.image + (at.head * kDim + Arch::lane() % 4 * 8);
    return {from + (place.query < last ? place.query : last) * this->p.q.row,
            from + (next < last ? next : last) * this->p.q.row};
  }
  ROCM_SD_DEVICE void load_queries(const QueryRows& rows) {
    ROCM_SD_UNROLL
    for (int h = 0; h < 2; ++h) {
      const T* const row = this->p.q.data + (h ? rows.second : rows.first);
      if constexpr (kSpare > 0) this->q.x[kPieces / 2][2 + h] = 0;
      for_groups([&](auto first, auto pieces) {
        using Words = Pack<uint32_t, decltype(pieces)::value>;
        const T* const from = row + Arch::lane() % 4 * (2 * pieces - 8) + first * 8;
        const Words words = *reinterpret_cast<const Words*>(from);
        ROCM_SD_UNROLL
        for (int j = 0; j < pieces; ++j) this->q.x[(first + j) / 2][(first + j) % 2 * 2 + h] = words.x[j];
      });
    }
  }

  ROCM_SD_DEVICE void prefetch_queries(const QueryRows& rows) const {
    static_assert(!kFull || kDim == 64);  // a row is a line
    const int lane = Arch::lane() % 4;
    if (lane < 2) Tma::prefetch_line(this->p.q.data + (lane ? rows.second : rows.first));
  }

  // Of a weight in the query's total, whose parts four lanes hold.
  static ROCM_SD_DEVICE RowPair shares_of(RowPair total) {
    sum_lanes(total);
    for_rows([&](int h) { total.x[h] = total.x[h] == 0 ? 0.0f : Arch::reciprocal(total.x[h]); });
    return total;
  }
  ROCM_SD_DEVICE void write(const Place& place, const WgmmaTile<kDim>& o, const RowPair& shares) const {
    const Head at = head_of(place.nth);
    ROCM_SD_UNROLL
    for (int h = 0; h < 2; ++h) {
      const int query = place.query + 8 * h;
      if (query >= this->p.queries) continue;
      const float share = shares.x[h];
      const int64_t row = static_cast<int64_t>(at.image) * this->p.queries + query;
      T* const y = this->p.y + (row * this->p.heads + at.head) * kDim;
      for_groups([&](auto first, auto pieces) {
        using Words = Pack<uint32_t, decltype(pieces)::value>;
        Words words;
        ROCM_SD_UNROLL
        for (int j = 0; j < pieces; ++j) {
          const int i = 4 * (first + j) + 2 * h;
          words.x[j] = Atom<Nvidia, T>::pack(o.x[i] * share, o.x[i + 1] * share);
        }
        *reinterpret_cast<Words*>(y + first * 8 + Arch::lane() % 4 * 2 * pieces) = words;
      });
    }
  }

  ROCM_SD_DEVICE void run_tiles(Place place) {
    for (;;) {
      const bool more = place.at + Cfg::kWarpgroups < count;
      const Place next = more ? place_of(place.at + Cfg::kWarpgroups) : place;
      if (more && kFull) prefetch_queries(rows_of(next));
      typename Rows::Scores s;
      typename Rows::Weights weights;
      this->multiply_keys(s, keys_of(place.nth));  // S = Q K^T
      wait<0>(s);
      if (more && !kFull) load_queries(rows_of(next));
      this->weigh_only(s);
      convert(weights, s);  // P
      pin(weights);         // or the compiler would finish them between the products
      [[maybe_unused]] WgmmaTile<kDim> own{};
      WgmmaTile<kDim>& o = kTight ? reinterpret_cast<WgmmaTile<kDim>&>(s) : own;
      start_mma_AB<Rows::kPanel, Accumulation::kReplace>(o, weights, values_of(place.nth));  // O = P V
      const RowPair shares = shares_of(this->total);
      wait<0>(o);
      write(place, o, shares);
      if (!more) return;
      if (kFull) load_queries(rows_of(next));
      place = next;
    }
  }

  ROCM_SD_DEVICE void run() {
    const int consumer = WarpgroupRows::consumer();
    const bool idle = consumer >= count;
    const Place place = place_of(idle ? 0 : consumer);
    QueryRows rows = rows_of(place);
    asm volatile("" : "+l"(rows.first), "+l"(rows.second)::"memory");  // now, not after the wait
    Staged staged;
    if (!once.pdl_wait_keys) {
      issue(staged);
      land(staged);
      publish();
    }
    Arch::pdl_wait();
    Arch::pdl_launch_next();
    if (once.pdl_wait_keys) issue(staged);
    if (!idle) load_queries(rows);
    if (once.pdl_wait_keys) {
      land(staged);
      publish();
    }
    if (!idle) run_tiles(place);
  }
};

}  // namespace rocm_sd
