// Pipeline: global memory -> registers -> LDS -> registers, each of them ahead of its use, where one operand
// goes around LDS. For workgroups that have a compute unit to themselves, where no other one works while this
// one waits.
// Mapping   Cfg::kShape.ahead steps' loads are under way, each with registers of its own. While a step is
//           multiplied, the fragments of the next one are read from LDS and the tile after that is written.
// Traffic   two tiles of the staged operand in LDS, one barrier a step; the other operand around LDS
// Limits    Cfg::kShape.ahead even; kStages 2
#pragma once

#include <type_traits>

#include "composable_kernels/pipeline/product_register_staged.hpp"
#include "composable_kernels/tile/unrolled.hpp"

namespace rocm_sd {

template <class Arch, class Cfg, class Weights, class Rows>
class ProductAhead {
  using T = typename Cfg::T;
  using Atom = AtomOf<Arch, T>;
  static constexpr bool kDirectWeights = Cfg::kShape.direct == DirectOperand::kWeights;
  static constexpr int kDepths = Cfg::kBlockK / Atom::kDepth;
  static constexpr int kAtoms = kDirectWeights ? Cfg::kAtomsM : Cfg::kAtomsN;  // of the staged operand
  using Fragment = std::conditional_t<kDirectWeights, typename Atom::B, typename Atom::A>;

 public:
  static constexpr int kSets = Cfg::kShape.ahead;
  static_assert(kSets % 2 == 0 && Cfg::kStages == 2 && Cfg::kShape.direct != DirectOperand::kNone);
  using Direct =
      DirectFragments<Arch, Cfg, kDirectWeights, std::conditional_t<kDirectWeights, Weights, Rows>>;
  using Staged = RegisterChunks<Arch, Cfg, kDirectWeights ? Cfg::kBlockM : Cfg::kBlockN,
                                std::conditional_t<kDirectWeights, Rows, Weights>>;
  // Of a step's tile, all that the wave reads.
  struct Fragments {
    Fragment at[kAtoms * kDepths];
  };

  static ROCM_SD_DEVICE const auto& direct_of(const Weights& weights, const Rows& rows) {
    if constexpr (kDirectWeights)
      return weights;
    else
      return rows;
  }
  static ROCM_SD_DEVICE const auto& staged_of(const Weights& weights, const Rows& rows) {
    if constexpr (kDirectWeights)
      return rows;
    else
      return weights;
  }

  // last: of the steps, exclusive.
  ROCM_SD_DEVICE ProductAhead(char* lds, Direct& direct, Staged& staged, int last)
      : tiles_(reinterpret_cast<T*>(lds)), direct_(direct), staged_(staged), last_(last) {}

  // Until the fragments of the first step are in `now`, and the second step's tile is in LDS.
  ROCM_SD_DEVICE void start(Fragments& now, int first) {
    unrolled<kSets>([&](int set) {
      staged_.load(column(first + set), set);
      direct_.load(column(first + set), set);
    });
    unrolled<2>([&](int stage) {
      staged_.store(tile(stage), stage);
      staged_.load(column(first + kSets + stage), stage);
      if (stage == 1) read(now, 0);
      Arch::barrier();
    });
  }
  // acc += the products of a step whose number is `set` in its turn: known to the compiler, which then knows
  // all places. now: its fragments; next: becomes those of the next step.
  ROCM_SD_DEVICE void turn(Accumulators<Arch, Cfg>& acc, const Fragments& now, Fragments& next, int step,
                           int set) {
    const int later = (set + 2) % kSets;
    read(next, (set + 1) % 2);
    staged_.store(tile(set % 2), later);
    staged_.load(column(step + 2 + kSets), later);
    direct_.take(set);
    const auto direct = [&](int i, int k) { return direct_.fragment(i, k, set); };
    const auto staged = [&](int i, int k) { return now.at[k / Atom::kDepth * kAtoms + i]; };
    if constexpr (kDirectWeights)
      mma_fragments<Arch, Cfg>(acc, direct, staged);
    else
      mma_fragments<Arch, Cfg>(acc, staged, direct);
    direct_.load(column(step + kSets), set);
    Arch::barrier();
  }

 private:
  ROCM_SD_DEVICE T* tile(int stage) const { return tiles_ + stage * StageRing<Cfg>::kStageSize; }
  ROCM_SD_DEVICE void read(Fragments& to, int stage) const {
    const T* const from = tile(stage) + (kDirectWeights ? place_.m : place_.n) * Cfg::kLd;
    using Tile = std::conditional_t<kDirectWeights, RowsInLds<Arch, Cfg>, WeightsInLds<Arch, Cfg>>;
    ROCM_SD_UNROLL
    for (int d = 0; d < kDepths; ++d) {
      ROCM_SD_UNROLL
      for (int i = 0; i < kAtoms; ++i) to.at[d * kAtoms + i] = Tile{from}(i, d * Atom::kDepth);
    }
  }
  // Beyond the last step that one's once more: the compiler counts the loads under way, and behind a branch
  // it would await all of them.
  ROCM_SD_DEVICE int column(int step) const { return (step < last_ ? step : last_ - 1) * Cfg::kBlockK; }

  const WavePlace<Arch, Cfg> place_;
  T* const tiles_;
  Direct& direct_;
  Staged& staged_;
  const int last_;
};

// The steps from `step` on, fewer than there are sets. Each within the one before: where control comes to a
// block by two ways from one matrix instruction, clang 19 counts the wait states behind that on the first way
// alone, and the other may be the shorter one.
template <int kSet, class Product, class Sums, class Fragments>
ROCM_SD_DEVICE void last_turns(Product& tiles, Sums& acc, Fragments (&fragments)[2], int step, int last) {
  if constexpr (kSet + 1 < Product::kSets)
    if (step < last) {
      tiles.turn(acc, fragments[kSet % 2], fragments[(kSet + 1) % 2], step, kSet);
      last_turns<kSet + 1>(tiles, acc, fragments, step + 1, last);
    }
}

// As multiply() (fused/main_loop.hpp) over the steps [first, last).
template <class Arch, class Cfg, class Weights, class Rows>
ROCM_SD_DEVICE void multiply_ahead(Accumulators<Arch, Cfg>& acc, char* lds, const Weights& weights,
                                   const Rows& rows, int first, int last) {
  using Product = ProductAhead<Arch, Cfg, Weights, Rows>;
  if (first >= last) return;
  typename Product::Direct direct(Product::direct_of(weights, rows));
  typename Product::Staged staged(Product::staged_of(weights, rows));
  typename Product::Fragments fragments[2];
  Product tiles(lds, direct, staged, last);
  tiles.start(fragments[0], first);
  int step = first;
  for (; step + Product::kSets <= last; step += Product::kSets)
    unrolled<Product::kSets>(
        [&](int set) { tiles.turn(acc, fragments[set % 2], fragments[(set + 1) % 2], step + set, set); });
  last_turns<0>(tiles, acc, fragments, step, last);
}

}  // namespace rocm_sd
