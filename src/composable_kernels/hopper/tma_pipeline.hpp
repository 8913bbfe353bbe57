// The main loop by NVIDIA's warpgroup products with tiles fetched by TMA (sm_90): one thread of
// the workgroup does nothing but start copies, kStages steps ahead and across tiles; the others multiply.
// Mapping   two warpgroups multiply 64 rows each by all kBlockN channels; the workgroups of a
//           cluster take tiles below each other, for which one of them in turn fetches a step's weights, and
//           parts of k, which they sum through each other's LDS
// Traffic   tiles [rows][64] in the 128-byte swizzle; a stage's barriers count its bytes in (`full`) and its
//           readers out, of all workgroups that share weights (`empty`)
// Numerics  as tile/wave_tile.hpp; parts of k are summed from the owner's on, then in their order
#pragma once

#include "composable_kernels/arch/hopper_tma.hpp"
#include "composable_kernels/arch/hopper_wgmma.hpp"
#include "composable_kernels/tile/wave_tile.hpp"

namespace rocm_sd {

// Of 8-bit elements kBlockK counts pairs: maps, stages and steps are those of half as many of 16 bits.
template <class Storage, int kColumns, int kStageCount>
struct TmaCfg : ProductCfg<Storage, tma_shape(kColumns, kStageCount)> {
  using Base = ProductCfg<Storage, tma_shape(kColumns, kStageCount)>;
  static constexpr int kStageBytes = tma_stage_bytes(Base::kShape);
  static constexpr int kLdsBytes = tma_lds_bytes(Base::kShape);
  static constexpr int kConsumers = 32 * Base::kWaves;  // threads; a warpgroup more fetches
  static constexpr bool kPingPong = false, kHalo = false;
  static constexpr int kConsumerGroupThreads = kConsumers;  // threads that multiply a tile
  static constexpr int kParts = 1;  // of 64 rows, of a tile, that one of its threads has
  // A workgroup has a multiprocessor alone. Its threads begin with 65536 / kTmaThreads registers, in steps of
  // 8: 168.
  static constexpr int kFetchRegisters = kColumns > 160 ? 40 : 56;
  static constexpr int kMultiplyRegisters = (504 - kFetchRegisters) / 2;
  static_assert(kTmaThreads > kConsumers && kColumns % 32 == 0 && sizeof(Storage) <= 2);
};
// Two consumer warpgroups take whole tiles in turn: one multiplies while the other begins or ends.
template <class Storage, int kColumns, int kStageCount>
struct TmaPingPongCfg : TmaCfg<Storage, kColumns, kStageCount> {
  using Base = TmaCfg<Storage, kColumns, kStageCount>;
  static constexpr bool kPingPong = true;
  static constexpr int kConsumerGroupThreads = Base::kConsumers / 2, kParts = 2;
  static constexpr int kFetchRegisters = kColumns > 128 ? 40 : Base::kFetchRegisters;
  static constexpr int kMultiplyRegisters = (504 - kFetchRegisters) / 2;
  static_assert(kColumns <= 160);  // both parts' sums in registers
};

// Either of them with the pixels of all taps fetched at once.
template <class Base>
struct TmaHaloCfg : Base {
  static constexpr bool kHalo = true;
  static constexpr int kStageBytes = halo_stage_bytes(Base::kShape);
  static constexpr int kLdsBytes = halo_lds_bytes(Base::kShape);
};

// Pixels with all that the taps of a filter reach around them, in LDS as boxes have them: 128 bytes a pixel.
struct Halo {
  int taps, filter_w;
  int pitch;  // bytes from row to row of pixels, of which 8 are a tile's
  int part;   // bytes from the first 64 pixels of a tile to the others
  int bytes;
};

// Sums as floats: themselves, or a copy of those of integers.
template <class Cfg>
struct FloatSums {
  struct Atom {
    float x[8];
  } atoms[1][Cfg::kAtomsN];
};
template <class Cfg>
ROCM_SD_DEVICE decltype(auto) float_sums(Accumulators<Nvidia, Cfg>& acc) {
  if constexpr (std::is_same_v<decltype(AtomOf<Nvidia, typename Cfg::T>::C::x), float[8]>) {
    return (acc);
  } else {
    FloatSums<Cfg> out;
    ROCM_SD_UNROLL
    for (int n = 0; n < Cfg::kAtomsN; ++n) ROCM_SD_UNROLL
    for (int i = 0; i < 8; ++i) out.atoms[0][n].x[i] = static_cast<float>(acc.atoms[0][n].x[i]);
    return out;
  }
}

// n / d of what is not negative. Most divisors are powers of two, and several divisions on the way to the
// first copy would take as long as a step.
ROCM_SD_DEVICE int fast_quotient(int n, int d) { return (d & (d - 1)) == 0 ? n >> (31 - __clz(d)) : n / d; }

// How the workgroups of a cluster divide their work: `multicast_size` tiles below each other, each in `parts`
// of k.
struct TmaCluster {
  int multicast_size, parts;
  int tile, part;  // this workgroup's

  ROCM_SD_DEVICE TmaCluster(int group, int of_multicast, int of_parts)
      : multicast_size(of_multicast), parts(of_parts) {
    const int rank = group - fast_quotient(group, size()) * size();
    part = fast_quotient(rank, multicast_size);
    tile = rank - part * multicast_size;
  }
  ROCM_SD_DEVICE int size() const { return multicast_size * parts; }
  ROCM_SD_DEVICE int first_of_multicast() const { return part * multicast_size; }  // its rank
};

// One workgroup's view of the stages. Every thread makes one; then one thread of the last group of waves
// calls fetch_weights(), at the end drain(), one fetch_rows() or fetch_halo(), and the consumers multiply(),
// for the same steps in the same order.
template <class Cfg>
class TmaPipeline {
  using T = typename Cfg::T;
  using Sums = Accumulators<Nvidia, Cfg>;  // of 64 rows
  static constexpr int kStages = Cfg::kStages;
  static constexpr int kPairs = Cfg::kAtomsN / 2;  // of atoms: 32 channels

 public:
  ROCM_SD_DEVICE TmaPipeline(char* lds, const TmaCluster& cluster)
      : cluster_(cluster), owned_(fast_quotient(kPairs + cluster.parts - 1, cluster.parts)) {
    const auto misplaced = static_cast<uint32_t>(__cvta_generic_to_shared(lds)) % 1024;
    tiles_ = lds + (1024 - misplaced) % 1024;
    barriers_ = tiles_ + kStages * Cfg::kStageBytes + (Cfg::kHalo ? 2 * kHaloBytes : 0);
    if (Nvidia::thread() == 0) {
      for (int s = 0; s < kStages; ++s) {
        full(s).init(Cfg::kHalo ? 1 : 2);
        empty(s).init(Cfg::kConsumerGroupThreads / 32 * cluster.multicast_size);
      }
      for (int h = 0; Cfg::kHalo && h < 2; ++h) {
        halo_full(h).init(1);
        halo_empty(h).init(Cfg::kConsumerGroupThreads / 32);
      }
      if (cluster.parts > 1) {
        const int end = (cluster.part + 1) * owned_pairs(),
                  pairs = (end < kPairs ? end : kPairs) - end + owned_pairs();
        sums().init(1);
        sums().expect((cluster.parts - 1) * (pairs > 0 ? pairs : 0) * Cfg::kWaves * 2048);
      }
      Tma::publish_barriers();
    }
    Nvidia::wave_barrier();
    if (cluster_.size() > 1)
      Tma::cluster_barrier();
    else
      Nvidia::barrier();
  }
  // After the last fetch: waits until all stages are free, so that nobody arrives in LDS that is gone.
  ROCM_SD_DEVICE void drain() {
    for (int s = 0; s < kStages; ++s) {
      empty(stage_).wait(phase_ ^ 1);
      advance();
    }
  }

  // Starts the copies of a step's weights: the tile is `pieces` pieces of the map's box, piece i from block
  // of rows block(i) on.
  template <class Block>
  ROCM_SD_DEVICE void fetch_weights(const TensorMap& w, int k, int pieces, const Block& block) {
    empty(stage_).wait(phase_ ^ 1);
    full(stage_).expect(Cfg::kBlockN * 128);
    if (turn_ == cluster_.tile) {
      const int piece_bytes = Cfg::kBlockN / pieces * 128;
      for (int i = 0; i < pieces; ++i) {
        char* const to = tiles_ + stage_ * Cfg::kStageBytes + i * piece_bytes;
        if (cluster_.multicast_size > 1)
          Tma::fetch_permuted_to(
              static_cast<uint16_t>(((1 << cluster_.multicast_size) - 1) << cluster_.first_of_multicast()),
              to, w, full(stage_), k, block(i));
        else
          Tma::fetch_permuted(to, w, full(stage_), k, block(i));
      }
    }
    turn_ = turn_ + 1 == cluster_.multicast_size ? 0 : turn_ + 1;
    advance();
  }
  // Those of its rows, which fetch(to, barrier) starts.
  template <class FetchRows>
  ROCM_SD_DEVICE void fetch_rows(const FetchRows& fetch) {
    empty(stage_).wait(phase_ ^ 1);
    full(stage_).expect(Cfg::kBlockM * 128);
    fetch(tiles_ + stage_ * Cfg::kStageBytes + Cfg::kBlockN * 128, full(stage_));
    advance();
  }
  // Those of the rows of all taps, `bytes` of them.
  template <class FetchRows>
  ROCM_SD_DEVICE void fetch_halo(int bytes, const FetchRows& fetch) {
    halo_empty(halo_).wait(halo_phase_ ^ 1);
    halo_full(halo_).expect(bytes);
    fetch(halo_tile(), halo_full(halo_));
    advance_halo();
  }

  // Adds `steps` steps, at least one, to acc; calls midway() after the first few, if kMidway, and started()
  // when the last has been started. The first stands before the loop: in it, nothing but products may define
  // the sums, or they would wait for each other.
  template <bool kMidway, class Midway, class Started>
  ROCM_SD_DEVICE void multiply(Sums (&acc)[Cfg::kParts], int steps, const Midway& midway,
                               const Started& started) {
    settle_all(acc);
    start_step(acc);
    int last = stage_;
    advance();
    int step = 1;
    const auto go_on = [&] {
      start_step(acc);
      Warpgroup::wait<1>();
      release(last);
      last = stage_;
      advance();
    };
    if constexpr (kMidway) {
      constexpr int kFirstSteps = 5;
      const int first = steps < kFirstSteps ? steps : kFirstSteps;
      for (; step < first; ++step) go_on();
      midway();
    }
    for (; step < steps; ++step) go_on();
    started();
    Warpgroup::wait<0>();
    settle_all(acc);
    release(last);
  }
  // The same from a step of tap `tap` on, with halos.
  template <class Started>
  ROCM_SD_DEVICE void multiply(Sums (&acc)[Cfg::kParts], int steps, const Halo& halo, int tap,
                               const Started& started) {
    int right = tap % halo.filter_w, at = tap / halo.filter_w * halo.pitch + right * 128;
    settle_all(acc);
    start_step(acc, halo, at);
    int last = stage_;
    advance();
    for (int step = 1; step < steps; ++step) {
      const int halo_before = halo_;
      const bool next_block = ++tap == halo.taps;
      at += 128;
      if (++right == halo.filter_w) right = 0, at += halo.pitch - halo.filter_w * 128;
      if (next_block) {
        tap = at = 0;
        advance_halo();
      }
      start_step(acc, halo, at);
      Warpgroup::wait<1>();
      release(last);
      if (next_block) release_halo(halo_before);
      last = stage_;
      advance();
    }
    started();
    Warpgroup::wait<0>();
    settle_all(acc);
    release(last);
    release_halo(halo_);
    advance_halo();
  }
  // Leaves so many halos to the other consumer group.
  ROCM_SD_DEVICE void skip_halos(int halos) {
    const int to = halo_ + halos;
    halo_ = to & 1;
    halo_phase_ ^= static_cast<uint32_t>(to >> 1) & 1;
  }
  // Leaves so many steps to the other consumer group.
  ROCM_SD_DEVICE void skip(int steps) {
    const int to = stage_ + steps, rounds = to / kStages;
    stage_ = to - rounds * kStages;
    phase_ ^= static_cast<uint32_t>(rounds) & 1;
  }

  // Pairs of atoms that each part of k owns in the end.
  ROCM_SD_DEVICE int owned_pairs() const { return owned_; }
  ROCM_SD_DEVICE bool owns(int pair) const {
    return pair >= cluster_.part * owned_ && pair < (cluster_.part + 1) * owned_;
  }

  // After the last step: every workgroup of the tile gets the whole sums of the pairs that it owns.
  // Consumers only; the fetching group calls stand_by() meanwhile.
  template <class Floats>
  ROCM_SD_DEVICE void sum_parts(Floats& acc) {
    const int owned = owned_pairs();
    Tma::cluster_barrier();  // all tiles have been read
    ROCM_SD_UNROLL
    for (int pair = 0; pair < kPairs; ++pair) {
      const int owner = pair / owned;
      if (owner == cluster_.part) continue;
      float* const to =
          part_of(cluster_.part < owner ? cluster_.part : cluster_.part - 1, pair - owner * owned);
      ROCM_SD_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float* x = acc.atoms[0][2 * pair + i / 2].x + i % 2 * 4;
        Tma::store_at(owner * cluster_.multicast_size + cluster_.tile, to + 128 * i, sums(), x[0], x[1], x[2],
                      x[3]);
      }
    }
    sums().wait(0);
    ROCM_SD_UNROLL
    for (int pair = 0; pair < kPairs; ++pair) {
      if (pair / owned != cluster_.part) continue;
      for (int other = 0; other + 1 < cluster_.parts; ++other) {
        const float* const from = part_of(other, pair - cluster_.part * owned);
        ROCM_SD_UNROLL
        for (int i = 0; i < 4; ++i) {
          const float4 four = *reinterpret_cast<const float4*>(from + 128 * i);
          float* x = acc.atoms[0][2 * pair + i / 2].x + i % 2 * 4;
          x[0] += four.x;
          x[1] += four.y;
          x[2] += four.z;
          x[3] += four.w;
        }
      }
    }
  }
  ROCM_SD_DEVICE void stand_by() const {
    Nvidia::wave_barrier();
    Tma::cluster_barrier();
  }

 private:
  ROCM_SD_DEVICE TmaBarrier full(int stage) const { return TmaBarrier(barriers_ + 8 * stage); }
  ROCM_SD_DEVICE TmaBarrier empty(int stage) const { return TmaBarrier(barriers_ + 8 * (kStages + stage)); }
  // Starts the products of the stage, when it is there.
  ROCM_SD_DEVICE void start_step(Sums (&acc)[Cfg::kParts]) const {
    full(stage_).wait(phase_);
    const char* const at = tiles_ + stage_ * Cfg::kStageBytes;
    start_products(acc, at, Warpgroup::tile(at + Cfg::kBlockN * 128 + own_part(64 * 128)), 64 * 128);
  }
  // The same with the rows `tap` bytes further on in the halo.
  ROCM_SD_DEVICE void start_step(Sums (&acc)[Cfg::kParts], const Halo& halo, int tap) const {
    halo_full(halo_).wait(halo_phase_);
    full(stage_).wait(phase_);
    start_products(acc, tiles_ + stage_ * Cfg::kStageBytes,
                   Warpgroup::tile(halo_tile() + tap + own_part(halo.part), halo.pitch), halo.part);
  }
  // Bytes to this consumer group's rows where another has the first 64.
  static ROCM_SD_DEVICE int own_part(int part) {
    return Cfg::kPingPong ? 0 : Nvidia::uniform(Nvidia::thread() / 128) * part;
  }
  static ROCM_SD_DEVICE void start_products(Sums (&acc)[Cfg::kParts], const char* weights, uint64_t from_rows,
                                            int part_bytes) {
    uint64_t from_weights = Warpgroup::tile(weights);
    Warpgroup::begin();
    ROCM_SD_UNROLL
    for (int k = 0; k < Cfg::kBlockK; k += 16) {
      ROCM_SD_UNROLL
      for (int part = 0; part < Cfg::kParts; ++part)
        Wgmma<T, Cfg::kBlockN>::mma(acc[part].atoms[0], from_rows + part * (part_bytes >> 4), from_weights);
      from_rows += Warpgroup::kNextDepth;
      from_weights += Warpgroup::kNextDepth;
    }
    Warpgroup::commit();
  }
  static ROCM_SD_DEVICE void settle_all(Sums (&acc)[Cfg::kParts]) {
    ROCM_SD_UNROLL
    for (int part = 0; part < Cfg::kParts; ++part) settle(acc[part].atoms[0]);
  }
  // Counts the sums that come from other parts of k.
  ROCM_SD_DEVICE TmaBarrier sums() const { return TmaBarrier(barriers_ + 16 * kStages); }
  ROCM_SD_DEVICE TmaBarrier halo_full(int halo) const {
    return TmaBarrier(barriers_ + 16 * kStages + 8 + 8 * halo);
  }
  ROCM_SD_DEVICE TmaBarrier halo_empty(int halo) const {
    return TmaBarrier(barriers_ + 16 * kStages + 24 + 8 * halo);
  }
  ROCM_SD_DEVICE char* halo_tile() const { return tiles_ + kStages * Cfg::kStageBytes + halo_ * kHaloBytes; }
  ROCM_SD_DEVICE void release_halo(int halo) const {
    if (Nvidia::lane() == 0) halo_empty(halo).arrive();
  }
  ROCM_SD_DEVICE void advance_halo() {
    halo_ ^= 1;
    if (halo_ == 0) halo_phase_ ^= 1;
  }
  // Where the sums that another part of k made for an owned pair lie, this lane's: 4 floats, and again after
  // each 128.
  ROCM_SD_DEVICE float* part_of(int other, int owned_pair) const {
    const int at = (other * owned_pairs() + owned_pair) * Cfg::kWaves + Nvidia::thread() / 32;
    return reinterpret_cast<float*>(tiles_) + at * 512 + Nvidia::lane() * 4;
  }
  // This wave has read the stage: one lane tells each workgroup that shares its weights.
  ROCM_SD_DEVICE void release(int stage) const {
    if (Nvidia::lane() < cluster_.multicast_size)
      empty(stage).arrive_at(cluster_.first_of_multicast() + Nvidia::lane());
  }
  ROCM_SD_DEVICE void advance() {
    if (++stage_ == kStages) {
      stage_ = 0;
      phase_ ^= 1;
    }
  }

  const TmaCluster& cluster_;
  const int owned_;
  char *tiles_, *barriers_;
  int stage_ = 0, turn_ = 0;
  uint32_t phase_ = 0;
  int halo_ = 0;
  uint32_t halo_phase_ = 0;
};

}  // namespace rocm_sd
