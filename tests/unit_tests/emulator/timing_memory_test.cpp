// The time model's memory on assembled kernels whose time is known: streams at one to sixteen waves a SIMD,
// writes, and what the caches hold.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "unit_tests/emulator/timed_kernel.hpp"

namespace rocm_sd::emu {
namespace {

// Each wave has one line group of loads under way at a time. Little's law gives the rate until the memory's
// share bounds it.
TEST_P(Timing, StreamsFollowLittlesLawUpToTheBandwidth) {
  const bool old = gfx9();
  const uint32_t simds = old ? 4 : 2;
  Machine m = round_machine(GetParam().target);
  constexpr int kLoads = 32;
  // 16 bytes for each lane, each wave a stretch of its own, stretches far apart.
  const double step = lanes() * 16;
  std::string code = concat("v_lshlrev_b32_e32 v1, 4, v0\n",
                            old       ? "s_lshl_b32 s8, s2, 22\n"
                            : gfx12() ? "s_lshl_b32 s8, ttmp9, 22\n"
                                      : "s_lshl_b32 s8, s2, 22\n",
                            "s_add_u32 s4, s4, s8\ns_addc_u32 s5, s5, 0\n");
  for (const uint32_t each : {1u, 2u, 4u, 8u, 16u}) {
    if (old && each > 8) continue;
    const uint32_t waves = each * simds;
    if (waves * lanes() > 1024) continue;
    std::string body = code;
    const auto stride = static_cast<uint32_t>(waves * step);
    for (int i = 0; i < kLoads; ++i)
      body +=
          concat(old ? "global_load_dwordx4 v[4:7], v1, s[4:5]\n" : "global_load_b128 v[4:7], v1, s[4:5]\n",
                 wait_all(), "s_add_u32 s4, s4, ", stride, "\ns_addc_u32 s5, s5, 0\n");
    const LaunchTime t =
        time({.code = body, .waves = waves, .groups = 1, .bytes = size_t{stride} * kLoads}, m);
    // One group: one processor with the whole memory, 1000 bytes a cycle; a compute unit's way to its cache
    // takes 64 of them.
    const double bytes = static_cast<double>(stride) * kLoads, latency = 500;
    const double alone = step / 64 + latency + 8;
    const double least = kLoads * std::max(alone, waves * step / 64);
    const double took = t.processor.ends.back();
    EXPECT_GT(took, 0.95 * least) << each << " waves a SIMD";
    EXPECT_LT(took, 1.25 * least + 1500) << each << " waves a SIMD";
    EXPECT_NEAR(t.memory_bytes, bytes, 0.01 * bytes);
  }
}

// A load behind many stores: it waits for those alone that the second-level cache has no room for.
TEST_P(Timing, LoadsPassWritesThatTheCacheHolds) {
  const bool old = gfx9();
  constexpr int kStores = 512;
  const double step = lanes() * 16, bytes = kStores * step;
  const std::string next = concat("s_add_u32 s4, s4, ", static_cast<int>(step), "\ns_addc_u32 s5, s5, 0\n");
  const std::string store =
      old ? "global_store_dwordx4 v1, v[4:7], s[4:5]\n" : "global_store_b128 v1, v[4:7], s[4:5]\n";
  const std::string load =
      old ? "global_load_dwordx4 v[8:11], v1, s[4:5]\n" : "global_load_b128 v[8:11], v1, s[4:5]\n";
  const std::string use = wait_all() + "v_add_f32_e32 v8, v8, v8\n";
  // The first load tells the model that loads miss the second-level cache.
  const std::string code = "v_lshlrev_b32_e32 v1, 4, v0\n" + load + use + times(kStores, next + store) + next;
  const auto took = [&](double cache_mb) {
    Machine m = round_machine(GetParam().target);
    m.memory_gb = 10;  // 10 bytes a cycle
    m.l2_mb = cache_mb;
    const auto end = [&](const std::string& text) {
      return time({.code = text, .bytes = static_cast<size_t>(bytes + 2 * step)}, m).processor.ends.back();
    };
    return end(code + load + use) - end(code);
  };
  const double alone = step / 10 + 600;  // its own bytes; the latencies of memory and vector cache
  EXPECT_NEAR(took(4), alone, 0.2 * alone);
  // What is written back while the stores pass the vector cache, 64 bytes a cycle, is off.
  const double left = (bytes - 0.1e6) / 10 - bytes / 64;
  EXPECT_NEAR(took(0.1), alone + left, 0.1 * left);
}

TEST_P(Timing, ALoopOverTheSameLinesStaysInTheVectorCache) {
  const bool old = gfx9();
  const char* load = old ? "global_load_dword v4, v1, s[4:5]\n" : "global_load_b32 v4, v1, s[4:5]\n";
  std::string code = "v_lshlrev_b32_e32 v1, 2, v0\n";
  for (int i = 0; i < 100; ++i) code += load + wait_all();
  const LaunchTime t = time({code}, round_machine(GetParam().target));
  EXPECT_EQ(t.processor.missed, lanes() * 4 / 64);
  // Each: the latency, the cycles that addresses or data take, the wait's issue.
  const double each = 100 + (old ? 4 + 4 : 2 + 1 + (gfx12() ? 2 : 0)), first = 500 + 240 - 100;
  EXPECT_NEAR(t.processor.ends.back(), 100 * each + first, 50);
}

// Groups that read the same lines share them behind their processors' caches; groups with lines of their own
// do not.
TEST_P(Timing, GroupsShareLinesInTheSecondLevelCache) {
  Machine m = round_machine(GetParam().target);
  m.compute_units = 8;
  m.l2_mb = 0.1;  // the buffer does not fit
  const double processors = gfx9() ? 8 : 4;
  const char* load =
      gfx9() ? "global_load_dwordx4 v[4:7], v1, s[4:5]\n" : "global_load_b128 v[4:7], v1, s[4:5]\n";
  const std::string same = concat("v_lshlrev_b32_e32 v1, 4, v0\n", load, wait_all());
  const std::string apart = concat("s_lshl_b32 s8, ", gfx12() ? "ttmp9" : "s2",
                                   ", 10\ns_add_u32 s4, s4, s8\n", "s_addc_u32 s5, s5, 0\n", same);
  const auto groups = static_cast<uint32_t>(4 * processors);
  const LaunchTime shared = time({.code = same, .groups = groups, .bytes = 1 << 20}, m);
  const double caches = gfx9() ? processors : 2 * processors;  // a processor of RDNA has two
  EXPECT_NEAR(shared.share.past_l2, 1 / caches, 1e-9);
  const LaunchTime own = time({.code = apart, .groups = groups, .bytes = 1 << 20}, m);
  EXPECT_NEAR(own.share.past_l2, 1, 1e-9);
  EXPECT_NEAR(own.memory_bytes, groups * lanes() * 16, groups * lanes() * 16 * 0.3);
  EXPECT_LT(shared.memory_bytes, 0.5 * own.memory_bytes);
  m.l2_mb = 4;  // now it fits, and a repeated launch finds it there
  const CodeObject code = gpu.load(assemble(GetParam().target, kernel(apart)), "timed");
  void* data = gpu.allocate(1 << 20);
  const Launch launch{{groups, 1, 1}, {static_cast<uint32_t>(lanes()), 1, 1}};
  const TimeOptions warm{.warm = true};
  EXPECT_EQ(gpu.time(code, "timed", launch, std::as_bytes(std::span(&data, 1)), m, warm).share.past_l2, 0);
}

// Two stores that fill a line together are written back once; where the cache has no room for what the groups
// write at once, twice.
TEST_P(Timing, PiecesOfALineAreWrittenBackTogether) {
  const bool old = gfx9();
  std::string code = "v_lshlrev_b32_e32 v1, 3, v0\nv_add_nc_u32_e32 v2, 4, v1\n";
  if (old) code = "v_lshlrev_b32_e32 v1, 3, v0\nv_add_u32_e32 v2, 4, v1\n";
  const auto step = static_cast<int>(lanes() * 8);
  for (int i = 0; i < 32; ++i)
    for (const char* at : {"v1", "v2"})
      code += concat(old ? "global_store_dword " : "global_store_b32 ", at, ", v3, s[4:5]\n",
                     at[1] == '2' ? concat("s_add_u32 s4, s4, ", step, "\ns_addc_u32 s5, s5, 0\n") : "");
  const auto written = [&](double cache_mb) {
    Machine m = round_machine(GetParam().target);
    m.l2_mb = cache_mb;
    return time({.code = code, .bytes = static_cast<size_t>(32 * step)}, m).memory_bytes;
  };
  EXPECT_NEAR(written(4), 32 * step, 64);
  EXPECT_NEAR(written(0.001), 2 * 32 * step, 64);
}

// Groups that begin with lines of their own and then read, above all, what all of them read: how much they
// share follows from all that they read.
TEST_P(Timing, SharingIsThatOfAllThatAGroupReads) {
  constexpr int kOwn = 20, kShared = 80;
  const bool old = gfx9();
  const auto bytes = static_cast<int>(lanes() * 16);
  const auto load = [&](const char* from) {
    return concat(old ? "global_load_dwordx4 v[4:7], v1, " : "global_load_b128 v[4:7], v1, ", from, "\n");
  };
  const auto next = [&](int low) {
    return concat("s_add_u32 s", low, ", s", low, ", ", bytes, "\ns_addc_u32 s", low + 1, ", s", low + 1,
                  ", 0\n");
  };
  // The shared buffer's address is the first word of the other.
  std::string code = concat("v_lshlrev_b32_e32 v1, 4, v0\n",
                            old ? "s_load_dwordx2 s[6:7], s[4:5], 0x0\n" : "s_load_b64 s[6:7], s[4:5], 0x0\n",
                            wait_all(), "s_lshl_b32 s8, ", gfx12() ? "ttmp9" : "s2",
                            ", 15\ns_add_u32 s4, s4, s8\n", "s_addc_u32 s5, s5, 0\n");
  const auto use = [&](bool own) { code += own ? load("s[4:5]") + next(4) : load("s[6:7]") + next(6); };
  for (int i = 0; i < kOwn; ++i) use(true);
  for (int i = 0; i < kShared; ++i) use(false);
  Machine m = round_machine(GetParam().target);
  m.compute_units = 8;
  m.l2_mb = 0.01;  // nothing fits
  const double processors = old ? 8 : 4;
  const CodeObject object =
      gpu.load(assemble(GetParam().target, kernel(code + wait_all(), 64, 64 << 10)), "timed");
  const auto groups = static_cast<uint32_t>(processors * (old ? 1 : 2));
  void* own = gpu.allocate(size_t{groups} << 15);
  void* const shared = gpu.allocate(static_cast<size_t>(kShared * bytes));
  std::memcpy(own, &shared, sizeof(shared));
  const Launch launch{{groups, 1, 1}, {static_cast<uint32_t>(lanes()), 1, 1}};
  const LaunchTime t = gpu.time(object, "timed", launch, std::as_bytes(std::span(&own, 1)), m, TimeOptions{});
  const double want = (kOwn + kShared / static_cast<double>(groups)) / (kOwn + kShared);
  EXPECT_NEAR(t.share.past_l2, want, 0.02);
  gpu.free(own);
  gpu.free(shared);
}

// A map that groups read several times, larger than the last level: of what they read again it has its share.
// A map that just fits and one that just does not take about the same.
TEST_P(Timing, TheLastLevelKeepsItsShareOfALargeMap) {
  constexpr int kPieces = 64, kRounds = 4, kPieceBytes = 1 << 12;
  const bool old = gfx9();
  const auto loads = static_cast<int>(kPieceBytes / (lanes() * 16));
  std::string code =
      concat("v_lshlrev_b32_e32 v1, 4, v0\ns_and_b32 s8, ", gfx12() ? "ttmp9" : "s2", ", ", kPieces - 1,
             "\ns_lshl_b32 s8, s8, 12\ns_add_u32 s4, s4, s8\n", "s_addc_u32 s5, s5, 0\n");
  for (int i = 0; i < loads; ++i)
    code +=
        concat(old ? "global_load_dwordx4 v[4:7], v1, s[4:5]\n" : "global_load_b128 v[4:7], v1, s[4:5]\n",
               wait_all(), "s_add_u32 s4, s4, ", static_cast<int>(lanes() * 16), "\ns_addc_u32 s5, s5, 0\n");
  constexpr size_t kBytes = size_t{kPieces} * kPieceBytes;
  const auto read = [&](double last_level_bytes) {  // bytes from memory over the map's
    Machine m = round_machine(GetParam().target);
    m.l2_mb = 1e-3;
    m.last_level_mb = last_level_bytes / 1e6;
    m.last_level_gb = 2000;
    m.last_level_latency = 300;
    // One group to a processor at a time.
    const Case c{.code = code, .lds = 64 << 10, .groups = kPieces * kRounds, .bytes = kBytes};
    return time(c, m).memory_bytes / static_cast<double>(kBytes);
  };
  EXPECT_NEAR(read(2.0 * kBytes), 1, 0.1);
  EXPECT_NEAR(read(1.001 * kBytes), 1, 0.1);
  EXPECT_NEAR(read(0.999 * kBytes), 1, 0.1);
  EXPECT_NEAR(read(0.5 * kBytes), 1 + (kRounds - 1) * 0.5, 0.2);
  EXPECT_NEAR(read(0.25 * kBytes), 1 + (kRounds - 1) * 0.75, 0.2);
  EXPECT_NEAR(read(0.01 * kBytes), kRounds, 0.2);
}

}  // namespace
}  // namespace rocm_sd::emu
