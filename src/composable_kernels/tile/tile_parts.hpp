// Tiles of an output that several workgroups share, each with a part of the depth: where a product has fewer
// tiles than the GPU has room for workgroups, or where its last round of tiles would leave most compute units
// idle. Whoever comes last sums the parts and finishes the tile; nobody waits for anybody.
// Traffic   each part's accumulators once out and once in; of two parts, as a rule, one's
// Numerics  parts are summed in order, whoever does it: the same bits in every run
// Method    after Osama et al., "Stream-K: Work-Centric Parallel Decomposition for Dense Matrix-Matrix
//           Multiplication on the GPU", 2023, section 5.2 (whole tiles first, the rest divided): there
//           workgroups loop over parts of tiles and wait for each other; here each has one part.
#pragma once

#include "composable_kernels/arch/system_target.hpp"
#include "composable_kernels/tile/tile_parts_plan.hpp"
#include "composable_kernels/tile/wave_tile.hpp"

namespace rocm_sd {

// A workgroup's accumulators in memory: four floats of each lane, then the next four of each.
template <class Arch, class Cfg>
struct StoredSums {
  using Sums = Accumulators<Arch, Cfg>;
  static constexpr int kElements = Sums::kElements,
                       kLaneFloats = Sums::kColAtoms * Sums::kRowAtoms * kElements;
  static constexpr int kStep = Cfg::kWaves * Arch::lanes * 4;  // from a lane's fours to its next
  static_assert(kElements % 4 == 0 && kLaneFloats * Cfg::kWaves * Arch::lanes == tile_floats(Cfg::kShape));

  // Four floats of the lane, known to the compiler by their number.
  static ROCM_SD_DEVICE auto* four_of(Sums& acc, int number) {
    constexpr int kFours = kElements / 4;
    auto& atom = acc.atoms[number / kFours / Sums::kRowAtoms][number / kFours % Sums::kRowAtoms];
    return &atom.x[number % kFours * 4];
  }
  static ROCM_SD_DEVICE void store(float* at, Sums& acc) {
    at += Arch::late(Arch::thread()) * 4;
    ROCM_SD_UNROLL
    for (int n = 0; n < kLaneFloats / 4; ++n) {
      const auto* const x = four_of(acc, n);
      store_four(at + n * kStep, {x[0], x[1], x[2], x[3]});
    }
  }
  static ROCM_SD_DEVICE void add_to(Sums& acc, const float* at) {
    constexpr int kFours = kLaneFloats / 4,
                  kMaxFours = kFours > 8 ? 4 : 8;  // loads that are under way together
    at += Arch::late(Arch::thread()) * 4;
    ROCM_SD_UNROLL
    for (int first = 0; first < kFours; first += kMaxFours) {
      FourFloats four[kMaxFours];
      ROCM_SD_UNROLL
      for (int n = 0; n < kMaxFours && first + n < kFours; ++n) four[n] = load_four(at + (first + n) * kStep);
      ROCM_SD_UNROLL
      for (int n = 0; n < kMaxFours && first + n < kFours; ++n)
        for (int e = 0; e < 4; ++e) four_of(acc, first + n)[e] += four[n].x[e];
      Arch::fence_schedule();  // else all loads, and their registers, come first
    }
  }
};

namespace detail {

// What one thread finds out, to all of the workgroup. lds: nobody uses it.
template <class Arch, class Ask>
ROCM_SD_DEVICE bool told_by_one(char* lds, const Ask& ask) {
  auto* const told = reinterpret_cast<int*>(lds);
  Arch::barrier();
  if (Arch::thread() == 0) *told = ask() ? 1 : 0;
  Arch::barrier();
  const bool answer = Arch::uniform(*told) != 0;
  Arch::barrier();
  return answer;
}

// Parts that have come, by a tile's word. One without the mark, whatever left it there, counts as none:
// nobody has to clear it before.
ROCM_SD_DEVICE uint64_t parts_come(uint64_t word) {
  return word >> kPartCountBits == kPartMark ? word & kPartCountMask : 0;
}

}  // namespace detail

// acc is a workgroup's part of a shared tile. True: acc holds the whole tile, which the workgroup is to
// finish. lds: that of the main loop, which may have just ended. place: of the tile, among those that are
// shared.
template <class Arch, class Cfg>
ROCM_SD_DEVICE bool sum_parts(Accumulators<Arch, Cfg>& acc, const TileParts& p, int place, int part,
                              char* lds) {
  using Stored = StoredSums<Arch, Cfg>;
  constexpr int64_t kFloats = tile_floats(Cfg::kShape);
  float* const sums = p.sums + static_cast<int64_t>(place) * p.splits * kFloats;
  uint64_t* const word = p.arrivals + place;
  const auto all = static_cast<uint64_t>(p.splits);
  const bool pair = all == 2;  // whose sum has no order: this part may stay in registers
  // The last part is begun last, and as a rule finds the others there.
  const bool last_part = part + 1 == p.splits;
  const bool complete = pair && last_part && (p.samples_groups || detail::told_by_one<Arch>(lds, [&] {
                                                return detail::parts_come(DeviceScope::load(word)) + 1 == all;
                                              }));
  if (!complete) {
    Stored::store(sums + part * kFloats, acc);
    DeviceScope::release();
    const bool last = detail::told_by_one<Arch>(lds, [&] {
      uint64_t seen = DeviceScope::load(word), come = 0;
      do come = detail::parts_come(seen) + 1;
      while (!DeviceScope::replace(word, seen, kPartMark << kPartCountBits | (come == all ? 0 : come)));
      return come == all;
    });
    if (!last && !(p.samples_groups && last_part)) return false;
  } else if (Arch::thread() == 0) {
    *word = kPartMark << kPartCountBits;  // for the next launch
  }
  DeviceScope::acquire();
  if (!pair) acc = {};
  ROCM_SD_ROLLED
  for (int other = 0; other < p.splits; ++other)
    if (!(pair && other == part)) Stored::add_to(acc, sums + other * kFloats);
  return true;
}

}  // namespace rocm_sd
