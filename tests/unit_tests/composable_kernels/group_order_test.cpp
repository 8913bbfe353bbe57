// The order of workgroups over chiplets: every place once, neighbours together, and fewer operands in each
// L2.
#include "composable_kernels/tile/group_order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "composable_kernels/fused/main_loop.hpp"

namespace rocm_sd {
namespace {

TEST(GroupOrder, GivesEveryPlaceOnceAndNeighboursToOneChiplet) {
  for (const uint32_t chiplets : {1u, 2u, 3u, 4u, 6u, 7u, 8u})
    for (uint32_t all = 1; all < 200; ++all) {
      std::vector<int> chiplet_of(all, -1);
      for (uint32_t index = 0; index < all; ++index) {
        const uint32_t place = place_on_chiplets(index, all, chiplets);
        ASSERT_LT(place, all) << index << " of " << all << ", " << chiplets;
        ASSERT_EQ(chiplet_of[place], -1) << "twice";
        chiplet_of[place] = static_cast<int>(index % chiplets);
      }
      EXPECT_TRUE(std::is_sorted(chiplet_of.begin(), chiplet_of.end())) << all << ", " << chiplets;
    }
}

TEST(GroupOrder, StartsThePlacesOfAChipletInTheirOrder) {
  for (uint32_t index = 8; index < 301; ++index)
    EXPECT_EQ(place_on_chiplets(index, 301, 8), place_on_chiplets(index - 8, 301, 8) + 1);
}

// Whole tiles and parts of tiles: every place once, and as many parts on each chiplet.
TEST(GroupOrder, SpreadsWholeTilesAndPartsApart) {
  constexpr uint32_t kChiplets = 8, kWhole = 304, kAll = 432;
  std::set<uint32_t> places;
  std::vector<int> parts(kChiplets);
  for (uint32_t index = 0; index < kAll; ++index) {
    const uint32_t place = place_on_chiplets(index, kAll, kWhole, kChiplets);
    EXPECT_TRUE(places.insert(place).second) << index;
    EXPECT_EQ(place < kWhole, index < kWhole);
    if (place >= kWhole) ++parts[index % kChiplets];
  }
  EXPECT_EQ(*places.rbegin(), kAll - 1);
  EXPECT_EQ(parts, std::vector<int>(kChiplets, 16));
}

// Rows and columns of tiles that the workgroups of one chiplet read which run at the same time.
int panels(bool ordered, uint32_t chiplet, int tiles_m, int tiles_n) {
  constexpr uint32_t kChiplets = 8, kUnits = 304;
  const auto all = static_cast<uint32_t>(tiles_m * tiles_n);
  std::set<int> rows, columns;
  for (uint32_t index = chiplet; index < std::min(all, kUnits); index += kChiplets) {
    const uint32_t place = ordered ? place_on_chiplets(index, all, kChiplets) : index;
    const TilePlace tile = tile_place(static_cast<int>(place), tiles_m, tiles_n);
    rows.insert(tile.m);
    columns.insert(tile.n);
  }
  return static_cast<int>(rows.size() + columns.size());
}

TEST(GroupOrder, AnL2ReadsFewerOperands) {
  for (const auto& [tiles_m, tiles_n] : {std::pair{64, 80}, {32, 40}, {64, 10}, {16, 80}})
    for (uint32_t chiplet = 0; chiplet < 8; ++chiplet) {
      const int before = panels(false, chiplet, tiles_m, tiles_n),
                after = panels(true, chiplet, tiles_m, tiles_n);
      EXPECT_LT(after, before) << tiles_m << "x" << tiles_n << ", chiplet " << chiplet;
    }
  EXPECT_EQ(panels(false, 0, 64, 80), 39);  // a row of tiles and 38 columns
  EXPECT_EQ(panels(true, 0, 64, 80), 13);   // 8 rows and 5 columns
}

}  // namespace
}  // namespace rocm_sd
