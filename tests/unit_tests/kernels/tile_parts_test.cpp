// Tiles that several workgroups share: who has which part, and that whoever comes last has the sum of all
// parts in their order, on the scalar architecture with a thread for each workgroup.
#include "composable_kernels/tile/tile_parts.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "kernels/shared_tiles.hpp"

namespace rocm_sd {
namespace {

TEST(TileParts, EveryPartHasOneWorkgroup) {
  for (const int whole : {0, 1, 7})
    for (const int rest : {1, 5})
      for (const int splits : {2, 3, 8}) {
        const TileParts parts{whole, rest, splits, nullptr, nullptr, false};
        std::set<std::pair<int, int>> seen;
        for (int index = 0; index < whole + rest * splits; ++index) {
          const TilePart part = tile_part(parts, index);
          EXPECT_TRUE(seen.emplace(part.tile, part.part).second) << index;
          EXPECT_EQ(part.shared(), part.tile >= whole);
          if (part.shared()) EXPECT_EQ(part.place, part.tile - whole);
          EXPECT_LT(part.part, part.shared() ? splits : 1);
        }
        EXPECT_EQ(seen.size(), static_cast<size_t>(whole + rest * splits));
        EXPECT_EQ(seen.rbegin()->first, whole + rest - 1);
      }
  EXPECT_FALSE(tile_part(TileParts{}, 12).shared());
  EXPECT_EQ(tile_part(TileParts{}, 12).tile, 12);
}

TEST(TileParts, TheLastRoundHasFewerTilesThanComputeUnits) {
  GpuTraits traits;
  traits.compute_units = 48;
  EXPECT_EQ(whole_tiles(traits, 320, SharedTileSet::kAll), 0);
  EXPECT_EQ(whole_tiles(traits, 320, SharedTileSet::kLastRound), 288);
  EXPECT_EQ(whole_tiles(traits, 96, SharedTileSet::kLastRound), 96);
}

using Cfg = ProductCfg<Half, TileShape{.block_m = 32, .block_n = 16, .block_k = 16}>;
using Sums = Accumulators<Scalar, Cfg>;
constexpr size_t kFloats = sizeof(Sums) / sizeof(float);

// One launch's shared tiles, of random accumulators.
struct Launch {
  TileParts parts{};
  std::vector<float> sums;
  std::vector<std::vector<Sums>> given;  // by place and part

  Launch(int places, int splits, std::vector<uint64_t>& arrivals, std::mt19937& random) {
    sums.assign(static_cast<size_t>(places * splits) * kFloats, -1e30f);
    parts = {0, places, splits, sums.data(), arrivals.data(), false};
    std::normal_distribution<float> normal(0, 100);
    given.resize(static_cast<size_t>(places));
    for (auto& place : given) {
      place.resize(static_cast<size_t>(splits));
      for (Sums& part : place)
        for (size_t i = 0; i < kFloats; ++i) reinterpret_cast<float*>(&part)[i] = normal(random);
    }
  }
  // The floats of the sum in order.
  std::vector<float> wanted(size_t place) const {
    std::vector<float> out(kFloats);
    for (size_t i = 0; i < kFloats; ++i)
      for (const Sums& part : given[place]) out[i] += reinterpret_cast<const float*>(&part)[i];
    return out;
  }
};

TEST(TileParts, WhoeverComesLastHasTheSumInOrder) {
  std::mt19937 random(5);
  constexpr int kPlaces = 3;
  std::vector<uint64_t> arrivals(kPlaces);
  for (uint64_t& word : arrivals) word = uint64_t{random()} << 32 | random();  // what another kernel left
  for (int launch = 0; launch < 60; ++launch) {
    const int splits = 2 + launch % 4;
    Launch work(kPlaces, splits, arrivals, random);
    if (launch % 7 == 3) arrivals[1] = uint64_t{random()} << 32 | random();
    std::vector<int> order(static_cast<size_t>(kPlaces * splits));
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
    std::shuffle(order.begin(), order.end(), random);
    std::atomic<int> finished[kPlaces] = {};
    std::vector<std::thread> workgroups;
    for (const int index : order)
      workgroups.emplace_back([&, index] {
        const TilePart part = tile_part(work.parts, index);
        const auto place = static_cast<size_t>(part.place);
        Sums acc = work.given[place][static_cast<size_t>(part.part)];
        alignas(16) char lds[Cfg::kLdsBytes];
        if (!sum_parts<Scalar, Cfg>(acc, work.parts, part.place, part.part, lds)) return;
        ++finished[place];
        const std::vector<float> wanted = work.wanted(place);
        EXPECT_EQ(std::memcmp(&acc, wanted.data(), sizeof(acc)), 0) << launch << " " << place;
      });
    for (std::thread& workgroup : workgroups) workgroup.join();
    for (const auto& times : finished) EXPECT_EQ(times, 1) << launch;
  }
}

// For a model of a launch's time no other workgroup has run.
TEST(TileParts, TheLastPartFinishesWhereSomeWorkgroupsRun) {
  std::mt19937 random(6);
  for (const int splits : {2, 3}) {
    std::vector<uint64_t> arrivals(1, 77);
    Launch work(1, splits, arrivals, random);
    work.parts.samples_groups = true;
    for (int part = 0; part < splits; ++part) {
      Sums acc = work.given[0][static_cast<size_t>(part)];
      alignas(16) char lds[Cfg::kLdsBytes];
      arrivals[0] = 77;
      EXPECT_EQ((sum_parts<Scalar, Cfg>(acc, work.parts, 0, part, lds)), part + 1 == splits);
    }
  }
}

}  // namespace
}  // namespace rocm_sd
