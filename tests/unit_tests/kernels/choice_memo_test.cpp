// ChoiceMemo asks once per key, forgets before it grows without bound, and tells GPUs apart.
#include "kernels/choice_memo.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace rocm_sd {
namespace {

TEST(ChoiceMemo, AsksOnce) {
  ChoiceMemo<int, std::string> memo;
  int asked = 0;
  const auto make = [&] { return "made " + std::to_string(++asked); };
  EXPECT_EQ(memo.of(1, make), "made 1");
  EXPECT_EQ(memo.of(2, make), "made 2");
  EXPECT_EQ(memo.of(1, make), "made 1");
  EXPECT_EQ(asked, 2);
}

TEST(ChoiceMemo, StaysSmall) {
  using Memo = ChoiceMemo<size_t, size_t>;
  Memo memo;
  for (size_t i = 0; i < 3 * Memo::kMax; ++i) {
    ASSERT_EQ(memo.of(i, [&] { return i * i; }), i * i);
    ASSERT_LE(memo.size(), Memo::kMax);
  }
}

TEST(ChoiceMemo, AFailedChoiceIsNoChoice) {
  ChoiceMemo<int, int> memo;
  EXPECT_THROW(memo.of(1, []() -> int { throw std::runtime_error("none"); }), std::runtime_error);
  EXPECT_EQ(memo.size(), 0u);
  EXPECT_EQ(memo.of(1, [] { return 7; }), 7);
}

TEST(ChoiceMemo, GpusDifferByEachTrait) {
  const GpuTraits base{.arch = "sm_90", .compute_units = 132, .lds_per_group = 1000, .l2_bytes = 50};
  const auto changed = [&](auto change) {
    GpuTraits traits = base;
    change(traits);
    return gpu_key(traits);
  };
  EXPECT_EQ(gpu_key(base), changed([](GpuTraits&) {}));
  for (const GpuKey& other :
       {changed([](GpuTraits& t) { t.arch = "sm_80"; }),
        changed([](GpuTraits& t) { t.family = GpuFamily::kRdna3; }),
        changed([](GpuTraits& t) { t.lanes = 64; }), changed([](GpuTraits& t) { t.compute_units = 114; }),
        changed([](GpuTraits& t) { t.lds_per_group = 999; }), changed([](GpuTraits& t) { t.l2_bytes = 51; }),
        changed([](GpuTraits& t) { t.cluster = 8; }), changed([](GpuTraits& t) { t.tma = true; })})
    EXPECT_NE(gpu_key(base), other);
}

}  // namespace
}  // namespace rocm_sd
