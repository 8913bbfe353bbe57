// Host memory that copies to a GPU read, cut from pages that are pinned: on the stand-in for HIP.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "runtime/side_copies.hpp"
#include "support/fake_hip/hip_test.hpp"

namespace rocm_sd {
namespace {

// Host memory for copies beside launches: blocks of pages that are pinned in large pieces; of the driver's
// own pinned memory where it pins none.
TEST_F(HipTest, CutsHostMemoryOfCopiesFromPinnedPages) {
  std::mt19937 random(7);
  for (const bool pins : {true, false}) {
    if (!pins) fail("hipHostRegister", 2);
    const size_t live_before = live(), registered = calls("hipHostRegister"), own = calls("hipHostMalloc"),
                 unregistered = calls("hipHostUnregister");
    {
      const auto gpu = open();
      SideCopies& side = *side_copies(*gpu);
      std::map<char*, size_t> held;
      const auto allocate = [&](size_t bytes) {
        auto* const data = static_cast<char*>(side.allocate_host(bytes));
        ASSERT_NE(data, nullptr);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 16, 0u);
        const auto after = held.lower_bound(data);  // blocks do not overlap
        if (after != held.end()) {
          EXPECT_LE(data + bytes, after->first);
        }
        if (after != held.begin()) {
          EXPECT_LE(std::prev(after)->first + std::prev(after)->second, data);
        }
        std::memset(data, static_cast<int>(bytes % 251), bytes);
        held[data] = bytes;
      };
      for (int i = 0; i < 300; ++i) {
        const size_t bytes = i % 40 == 39 ? size_t{9} << 20 : 1 + random() % 200'000;
        allocate(bytes);
        if (i % 3 == 2) {  // and as many bytes again
          const auto some = std::next(held.begin(), static_cast<int64_t>(random() % held.size()));
          const size_t size = some->second;
          side.free_host(some->first);
          held.erase(some);
          if (i % 2) allocate(size);
        }
      }
      void* const there = gpu->allocate(9 << 20);
      for (const auto& [data, bytes] : held) {
        const std::vector<char> want(bytes, static_cast<char>(bytes % 251));
        std::vector<char> got(bytes);
        EXPECT_EQ(std::memcmp(data, want.data(), bytes), 0) << "somebody wrote into a block of " << bytes;
        side.copy_beside(there, data, bytes);
        side.wait_for_copies();
        gpu->copy_to_host(got.data(), there, bytes);
        EXPECT_EQ(got, want);
      }
      gpu->free(there, 9 << 20);
      const size_t pieces = calls("hipHostRegister") - registered;
      if (pins) {
        EXPECT_GE(pieces, 2u);
        EXPECT_LE(pieces, 12u) << "of 300 blocks";
      } else {
        EXPECT_EQ(pieces, 1u) << "it asks once";
        EXPECT_GE(calls("hipHostMalloc") - own, 300u);
      }
      for (const auto& [data, bytes] : held) side.free_host(data);
      EXPECT_EQ(calls("hipHostUnregister") - unregistered, pins ? pieces : 0u);
    }
    EXPECT_EQ(live(), live_before);
  }
  const auto gpu = open();
  fail("hipHostMalloc", 2);
  EXPECT_EQ(side_copies(*gpu)->allocate_host(1000), nullptr);
  fail("hipHostMalloc", 0);
  fail("hipHostRegister", 0);
}

}  // namespace
}  // namespace rocm_sd
