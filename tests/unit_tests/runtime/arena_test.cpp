// The packed plan: no two blocks alive at once overlap, close to the lower bound, and replay hands out what
// was planned.
#include "runtime/arena.hpp"

#include <gtest/gtest.h>

#include <random>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

void expect_no_overlap(const std::vector<BlockLifetime>& blocks, const ArenaPlan& plan) {
  for (size_t i = 0; i < blocks.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const bool in_time = blocks[i].birth < blocks[j].death && blocks[j].birth < blocks[i].death;
      const bool in_space = plan.slots[i].offset < plan.slots[j].offset + plan.slots[j].bytes &&
                            plan.slots[j].offset < plan.slots[i].offset + plan.slots[i].bytes;
      ASSERT_FALSE(in_time && in_space) << i << " and " << j;
    }
}

TEST(PackArena, RandomLifetimesNeverOverlap) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    std::vector<BlockLifetime> blocks(60);
    for (auto& b : blocks) {
      b.bytes = random() % 5000;
      b.birth = static_cast<int64_t>(random() % 100);
      b.death = b.birth + 1 + static_cast<int64_t>(random() % 30);
    }
    const ArenaPlan plan = pack_arena(blocks);
    expect_no_overlap(blocks, plan);
    EXPECT_GE(plan.bytes, plan.lower_bound);
    EXPECT_LE(plan.bytes, 2 * plan.lower_bound);
  }
}

TEST(PackArena, ReusesMemoryOfTheDead) {
  const ArenaPlan plan = pack_arena({{1024, 0, 2}, {1024, 1, 4}, {1024, 3, 5}});
  EXPECT_EQ(plan.bytes, 2048u);
  EXPECT_EQ(plan.lower_bound, 2048u);
}

TEST(Arena, ReplaysThePlan) {
  Arena arena(host_device());
  const auto forward = [&] {
    const Tensor a = arena.alloc({4, 16}, DType::kF32);
    Tensor b = arena.alloc({100}, DType::kF32);
    b = Tensor();
    const Tensor c = arena.alloc({50}, DType::kF32);
    return std::pair(a.data(), c.data());
  };
  arena.begin_plan();
  EXPECT_EQ(forward().first, nullptr);
  const ArenaPlan plan = arena.end_plan();
  arena.begin_replay(plan);
  const auto first = forward();
  arena.end_replay();
  arena.begin_replay(plan);
  EXPECT_EQ(forward(), first);
  arena.end_replay();
  EXPECT_EQ(plan.bytes, 256u + 448u);  // c takes b's place
  EXPECT_LE(arena.used_peak(), plan.bytes);
}

TEST(Arena, RefusesAForwardThatDiffersFromThePlan) {
  Arena arena(host_device());
  arena.begin_plan();
  arena.alloc({4}, DType::kF32);
  const ArenaPlan plan = arena.end_plan();
  arena.begin_replay(plan);
  EXPECT_THROW(arena.alloc({5}, DType::kF32), InternalError);
  arena.end_replay();
}

}  // namespace
}  // namespace rocm_sd
