// Which workgroup works where. A GPU of several chiplets with an L2 each hands its workgroups out to them in
// turn: of neighbours, which read the same rows, each then lies on another chiplet, and every L2 reads all
// operands. Here each chiplet gets a run of neighbours instead.
// Method: AMD's tuning guides for MI300X ("chiplet-aware" order of workgroups); workgroup i is started on
// chiplet i % chiplets.
#pragma once

#include "composable_kernels/types.hpp"

namespace rocm_sd {

// Of a launch: chiplets, 0 or 1 where the order stays; x, y: workgroups of its grid in these directions; all:
// of the grid; whole: the first of them, which have more to do than the others: both are spread evenly.
struct GroupOrder {
  uint32_t chiplets, x, y, all, whole;
};
struct GroupPlace {
  int x, y, z;
};

// What workgroup `index` of `all` does, counted over the grid: a permutation of 0 .. all - 1, which gives
// neighbouring places to the workgroups of one chiplet.
ROCM_SD_DEVICE constexpr uint32_t place_on_chiplets(uint32_t index, uint32_t all, uint32_t chiplets) {
  const uint32_t each = all / chiplets, more = all % chiplets;  // the first `more` chiplets have one more
  const uint32_t chiplet = index % chiplets;
  return chiplet * each + (chiplet < more ? chiplet : more) + index / chiplets;
}

// The same of the first `whole` and of the others, each among themselves. whole: a multiple of `chiplets`.
ROCM_SD_DEVICE constexpr uint32_t place_on_chiplets(uint32_t index, uint32_t all, uint32_t whole,
                                                    uint32_t chiplets) {
  if (index < whole) return place_on_chiplets(index, whole, chiplets);
  return whole + place_on_chiplets(index - whole, all - whole, chiplets);
}

template <class Arch>
ROCM_SD_DEVICE GroupPlace place_of_group(const GroupOrder& order) {
  if constexpr (Arch::kChiplets) {
    if (order.chiplets > 1) {
      const uint32_t index = (Arch::group_z() * order.y + Arch::group_y()) * order.x + Arch::group_x();
      const uint32_t place = place_on_chiplets(index, order.all, order.whole, order.chiplets),
                     row = place / order.x;
      return {static_cast<int>(place % order.x), static_cast<int>(row % order.y),
              static_cast<int>(row / order.y)};
    }
  }
  return {static_cast<int>(Arch::group_x()), static_cast<int>(Arch::group_y()),
          static_cast<int>(Arch::group_z())};
}

}  // namespace rocm_sd
