// Pipeline: global memory -> LDS without a register between (Arch::load_to_lds), Cfg::kStages steps ahead; an
// operand that goes around LDS (Cfg::kShape.direct) Cfg::kShape.ahead steps ahead in registers.
// Mapping   a wave loads a contiguous part of each operand's tile: Arch::kLdsLoadBytes a lane and load, one lane
//           behind the other in LDS. The tile's swizzle is therefore one of what the lanes read. While a step
//           is multiplied, the fragments of the next one are read from LDS
// Traffic   Cfg::kStages tiles of the staged operands in LDS, one barrier a step
// Limits    Cfg is a LoadsToLdsCfg; kStages or ahead even, one a multiple of the other; sources with one base
#pragma once

#include <type_traits>

#include "composable_kernels/pipeline/direct_fragments.hpp"
#include "composable_kernels/pipeline/product.hpp"
#include "composable_kernels/tile/unrolled.hpp"

namespace rocm_sd {

// The policy's name; fused/main_loop.hpp asks for it.
struct LoadsToLds {};

// A lane's part in loading a tile [kRows][Cfg::kBlockK] of a source.
template <class Arch, class Cfg, int kRows, class Source>
class LdsLoads {
  using T = typename Cfg::T;
  static constexpr int kSize = static_cast<int>(sizeof(T)), kRowBytes = Cfg::kLd * kSize;
  static constexpr int kLoadBytes = Arch::lanes * Arch::kLdsLoadBytes;  // of the wave
  static constexpr int kWaveBytes = kRows * kRowBytes / Cfg::kWaves;    // of the tile
  static constexpr int kRowsOfLoad = kLoadBytes / kRowBytes;
  // The swizzle begins anew every 8 rows: as many loads differ in their columns.
  static constexpr int kColumns = kRowsOfLoad >= 8 ? 1 : 8 / kRowsOfLoad;
  // Loads that the offset of one base in LDS reaches. It counts in memory, too, where it is taken off the
  // lanes' offsets before.
  static constexpr int kReach = Arch::kMaxLoadOffset / kLoadBytes + 1;
  static constexpr uint32_t kBefore = kReach * kLoadBytes;
  static_assert(Source::kOneBase && kLoadBytes % kRowBytes == 0 && kWaveBytes % kLoadBytes == 0);
  static_assert(kWaveBytes / kRowBytes % 8 == 0 || Cfg::kWaves == 1);

 public:
  static constexpr int kCount = kWaveBytes / kLoadBytes;  // loads of a step

  ROCM_SD_DEVICE explicit LdsLoads(const Source& source) : source_(source) {
    ROCM_SD_UNROLL
    for (int i = 0; i < kCount; ++i) rows_[i] = source.row(row(i));
  }

  // A step's tile, of which k is the first column. valid: else zeros come, and no memory is read.
  struct Step {
    typename Arch::Buffer from;
    char* to;
    typename Source::Column columns[kColumns];
  };
  ROCM_SD_DEVICE Step step(int k, bool valid, T* tile) const {
    Step out{Arch::buffer(static_cast<const char*>(source_.base(k)) - kBefore,
                          valid ? Arch::kNowhere + kBefore : 0),
             reinterpret_cast<char*>(tile) + wave() * kWaveBytes,
             {}};
    ROCM_SD_UNROLL
    for (int i = 0; i < kColumns; ++i) out.columns[i] = source_.column(k, column(i));
    return out;
  }
  // Load kNumber of kCount.
  template <int kNumber>
  ROCM_SD_DEVICE void load(const Step& step) const {
    constexpr int kOffset = kNumber % kReach * kLoadBytes;
    const uint32_t at = source_.offset(rows_[kNumber], step.columns[kNumber % kColumns], Arch::kNowhere);
    Arch::template load_to_lds<kOffset>(step.from, at + (within_chunk() + kBefore - kOffset),
                                        step.to + kNumber / kReach * static_cast<int>(kBefore));
  }

 private:
  static ROCM_SD_DEVICE int wave() { return Arch::uniform(Arch::thread() / Arch::lanes); }
  // Of load i, in the tile.
  static ROCM_SD_DEVICE int row_in_wave(int i) {
    return i * kRowsOfLoad + Arch::lane() * Arch::kLdsLoadBytes / kRowBytes;
  }
  static ROCM_SD_DEVICE int row(int i) { return wave() * (kWaveBytes / kRowBytes) + row_in_wave(i); }
  // The column of the chunk that lies where the lane's bytes go: the swizzle is its own inverse.
  static ROCM_SD_DEVICE int column(int i) {
    const int place = Arch::lane() * Arch::kLdsLoadBytes % kRowBytes / 16 * Cfg::kChunk;
    return Cfg::element(row_in_wave(i), place) - row_in_wave(i) * Cfg::kLd;
  }
  static ROCM_SD_DEVICE uint32_t within_chunk() {
    return static_cast<uint32_t>(Arch::lane() * Arch::kLdsLoadBytes % 16);
  }

  Source source_;
  typename Source::Row rows_[kCount];
};

// An operand of a wave: through LDS, or around it.
template <class Arch, class Cfg, bool kWeights, class Source>
struct LdsOperand {
  static constexpr bool kDirect =
      Cfg::kShape.direct == (kWeights ? DirectOperand::kWeights : DirectOperand::kRows);
  static constexpr int kAtoms = kWeights ? Cfg::kAtomsN : Cfg::kAtomsM;
  // Of a step, by a wave.
  static constexpr int kFragments = kAtoms * Cfg::kBlockK / AtomOf<Arch, typename Cfg::T>::kDepth;
  static constexpr int kReads = kDirect ? 0 : kFragments;  // from LDS
  using Loads = LdsLoads<Arch, Cfg, kWeights ? Cfg::kBlockN : Cfg::kBlockM, Source>;
  using Copy = std::conditional_t<kDirect, DirectFragments<Arch, Cfg, kWeights, Source>, Loads>;
  static constexpr int kLoadsToLds = kDirect ? 0 : Loads::kCount;
  static constexpr int kDirectLoads = kDirect ? kFragments : 0;
};

template <class Arch, class Cfg, class Weights, class Rows>
class ProductLoadsToLds {
  using T = typename Cfg::T;
  using Atom = AtomOf<Arch, T>;
  using OfWeights = LdsOperand<Arch, Cfg, true, Weights>;
  using OfRows = LdsOperand<Arch, Cfg, false, Rows>;
  static constexpr int kDepths = Cfg::kBlockK / Atom::kDepth, kSize = static_cast<int>(sizeof(T));
  // Of a step, by a wave.
  static constexpr int kLoadsToLds = OfWeights::kLoadsToLds + OfRows::kLoadsToLds;
  static constexpr int kDirectLoads = OfWeights::kDirectLoads + OfRows::kDirectLoads;
  static constexpr int kStages = Cfg::kStages, kSets = Cfg::kShape.ahead;
  static constexpr int kRowsAt = Cfg::kShape.staged_n() * Cfg::kLd;

 public:
  // Turns after which stages and sets of registers begin anew.
  static constexpr int kTurns = Cfg::kStages > Cfg::kShape.ahead ? Cfg::kStages : Cfg::kShape.ahead;
  static_assert(kTurns % 2 == 0 && kTurns % Cfg::kStages == 0 && kTurns % Cfg::kShape.ahead == 0);
  using WeightCopy = typename OfWeights::Copy;
  using RowCopy = typename OfRows::Copy;
  // Of a step's tiles, all that the wave reads.
  struct Fragments {
    typename Atom::A weights[OfWeights::kFragments];
    typename Atom::B rows[OfRows::kFragments];
  };

  // last: of the steps, exclusive.
  ROCM_SD_DEVICE ProductLoadsToLds(WeightCopy& weights, RowCopy& rows, int last)
      : weights_(weights), rows_(rows), last_(last) {
    ROCM_SD_UNROLL
    for (int d = 0; d < kDepths; ++d) {
      weights_at_[d] = lane_at(place_.n, d * Atom::kDepth);
      rows_at_[d] = lane_at(Cfg::kShape.staged_n() + place_.m, d * Atom::kDepth);
    }
  }

  // Until the fragments of the first step are in `now`.
  ROCM_SD_DEVICE void start(Fragments& now, int first) {
    unrolled_numbers<kStages>([&](auto stage) { load_part<stage, 0, 1>(loads_of<stage>(first + stage)); });
    Arch::fence_schedule();
    unrolled<kSets>([&](int set) { load_direct(set, first + set); });
    Arch::template wait_loads<(kStages - 1) * kLoadsToLds + kSets * kDirectLoads>();
    Arch::barrier();
    read_part<0, 0, 1>(now);
  }
  // acc += the products of a step, kTurn of kTurns. now: its fragments; next: becomes those of the next step.
  // Reads, loads and products alternate: together they would keep LDS busy while the matrix unit waits.
  template <int kTurn>
  ROCM_SD_DEVICE void turn(Accumulators<Arch, Cfg>& acc, const Fragments& now, Fragments& next, int step) {
    constexpr int kParts = kDepths * Cfg::kAtomsM, kStage = kTurn % kStages, kSet = kTurn % kSets;
    // Behind the loads of the next step's tile its turn's direct ones began, then those of the turns since.
    Arch::template wait_loads<kDirectLoads + (kStages - 2) * (kLoadsToLds + kDirectLoads)>();
    Arch::barrier();  // the next step's tile has come for all, and this step's has been read
    if constexpr (OfWeights::kDirect) weights_.take(kSet);
    if constexpr (OfRows::kDirect) rows_.take(kSet);
    const auto loads = loads_of<kStage>(step + kStages);
    unrolled_numbers<kParts>([&](auto part) {
      constexpr int kPart = decltype(part)::value, d = kPart / Cfg::kAtomsM, j = kPart % Cfg::kAtomsM;
      read_part<(kStage + 1) % kStages, kPart, kParts>(next);
      load_part<kStage, kPart, kParts>(loads);
      Arch::fence_schedule();
      const typename Atom::B row = [&] {
        if constexpr (OfRows::kDirect)
          return rows_.fragment(j, d * Atom::kDepth, kSet);
        else
          return now.rows[d * OfRows::kAtoms + j];
      }();
      ROCM_SD_UNROLL
      for (int i = 0; i < Cfg::kAtomsN; ++i) {
        if constexpr (OfWeights::kDirect)
          Atom::mma(acc.atoms[j][i], weights_.fragment(i, d * Atom::kDepth, kSet), row);
        else
          Atom::mma(acc.atoms[j][i], now.weights[d * OfWeights::kAtoms + i], row);
      }
    });
    load_direct(kSet, step + kSets);
  }
  // Nothing is on its way to LDS any more.
  ROCM_SD_DEVICE void stop() const { Arch::template wait_loads<0>(); }

 private:
  template <int kStage>
  ROCM_SD_DEVICE T* stage() const {
    constexpr int kBytes = kStage == 0 ? Cfg::kLdsBytes : Cfg::kStageBytes;
    return reinterpret_cast<T*>(Arch::template lds<kBytes, kStage>());
  }
  // Part kPart of kParts of what the wave reads of a stage.
  template <int kStage, int kPart, int kParts>
  ROCM_SD_DEVICE void read_part(Fragments& to) const {
    constexpr int kReads = OfWeights::kReads + OfRows::kReads;
    ROCM_SD_UNROLL
    for (int n = kPart * kReads / kParts; n < (kPart + 1) * kReads / kParts; ++n) {
      if (n < OfWeights::kReads)
        to.weights[n] = fragment<kStage>(weights_at_[n / OfWeights::kAtoms], n % OfWeights::kAtoms);
      else
        to.rows[n - OfWeights::kReads] = fragment<kStage>(rows_at_[(n - OfWeights::kReads) / OfRows::kAtoms],
                                                          (n - OfWeights::kReads) % OfRows::kAtoms);
    }
  }
  // Of rows 16 i and on. From the stage's memory by few additions only: the compiler loses sight of which
  // memory it is (LLVM 19 follows five), and would then wait for all loads.
  template <int kStage>
  ROCM_SD_DEVICE typename Atom::A fragment(int at, int i) const {
    const char* const lane = reinterpret_cast<const char*>(stage<kStage>()) + at;
    return Atom::from_chunk(*reinterpret_cast<const Chunk16*>(lane + i * 16 * Cfg::kLd * kSize));
  }
  // Bytes from a stage's first to the lane's chunk of the wave's rows from `first` on.
  static ROCM_SD_DEVICE int lane_at(int first, int depth) {
    return Arch::late((first * Cfg::kLd + Cfg::element(Arch::lane() % 16, depth + Atom::lane_depth())) *
                      kSize);
  }
  // Beyond the last step loads count all the same; those to LDS read nothing.
  template <int kStage>
  ROCM_SD_DEVICE auto loads_of(int step) const {
    const bool valid = step < last_;
    const int k = column(step);
    struct Both {
      typename OfWeights::Loads::Step weights;
      typename OfRows::Loads::Step rows;
    } out;
    if constexpr (!OfWeights::kDirect) out.weights = weights_.step(k, valid, stage<kStage>());
    if constexpr (!OfRows::kDirect) out.rows = rows_.step(k, valid, stage<kStage>() + kRowsAt);
    return out;
  }
  // Part kPart of kParts of a step's loads to LDS.
  template <int kStage, int kPart, int kParts, class Loads>
  ROCM_SD_DEVICE void load_part(const Loads& loads) const {
    constexpr int kFirst = kPart * kLoadsToLds / kParts, kLast = (kPart + 1) * kLoadsToLds / kParts;
    unrolled_numbers<kLast - kFirst>([&](auto number) {
      constexpr int n = kFirst + decltype(number)::value;
      if constexpr (n < OfWeights::kLoadsToLds)
        load_number<n>(weights_, loads.weights);
      else
        load_number<n - OfWeights::kLoadsToLds>(rows_, loads.rows);
    });
  }
  template <int kNumber, class Copy, class Step>
  static ROCM_SD_DEVICE void load_number(const Copy& copy, const Step& step) {
    copy.template load<kNumber>(step);
  }
  ROCM_SD_DEVICE void load_direct(int set, int step) {
    if constexpr (OfWeights::kDirect) weights_.load(column(step), set);
    if constexpr (OfRows::kDirect) rows_.load(column(step), set);
  }
  ROCM_SD_DEVICE int column(int step) const { return (step < last_ ? step : last_ - 1) * Cfg::kBlockK; }

  const WavePlace<Arch, Cfg> place_;
  WeightCopy& weights_;
  RowCopy& rows_;
  const int last_;
  int weights_at_[kDepths], rows_at_[kDepths];
};

// The steps from `step` on, fewer than kTurns: each within the one before, as last_turns()
// (pipeline/product_ahead.hpp) says.
template <int kTurn, class Product, class Sums, class Fragments>
ROCM_SD_DEVICE void last_turns_from_lds(Product& tiles, Sums& acc, Fragments (&fragments)[2], int step,
                                        int last) {
  if constexpr (kTurn + 1 < Product::kTurns)
    if (step < last) {
      tiles.template turn<kTurn>(acc, fragments[kTurn % 2], fragments[(kTurn + 1) % 2], step);
      last_turns_from_lds<kTurn + 1>(tiles, acc, fragments, step + 1, last);
    }
}

// As multiply() (fused/main_loop.hpp) over the steps [first, last), of which lds is
// Arch::lds<Cfg::kLdsBytes>().
template <class Arch, class Cfg, class Weights, class Rows>
ROCM_SD_DEVICE void multiply_from_lds(Accumulators<Arch, Cfg>& acc, const Weights& weights, const Rows& rows,
                                      int first, int last) {
  using Product = ProductLoadsToLds<Arch, Cfg, Weights, Rows>;
  if (first >= last) return;
  typename Product::WeightCopy weight_copy(weights);
  typename Product::RowCopy row_copy(rows);
  typename Product::Fragments fragments[2];
  Product tiles(weight_copy, row_copy, last);
  tiles.start(fragments[0], first);
  int step = first;
  for (; step + Product::kTurns <= last; step += Product::kTurns)
    unrolled_numbers<Product::kTurns>([&](auto turn) {
      tiles.template turn<decltype(turn)::value>(acc, fragments[turn % 2], fragments[(turn + 1) % 2],
                                                 step + turn);
    });
  last_turns_from_lds<0>(tiles, acc, fragments, step, last);
  tiles.stop();
}

}  // namespace rocm_sd
