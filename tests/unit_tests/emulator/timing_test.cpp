// The time model on assembled kernels whose time is known: chains, rates, LDS and its banks, barriers, and
// streams from memory at one to sixteen waves a SIMD. The machine is made up for them, with round numbers, so
// that a mistake of the model is not one of a card's figures; the shipped descriptions are read below.
#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "emulator/launch_time.hpp"
#include "emulator/tool/timeline.hpp"
#include "unit_tests/emulator/assembler.hpp"

namespace rocm_sd::emu {
namespace {

Machine round_machine(const std::string& target) {
  const bool rdna = target.starts_with("gfx1");
  Machine m;
  m.name = "round";
  m.target = target;
  m.gigahertz = 1;  // a cycle is a nanosecond
  m.compute_units = 2;
  m.simds = rdna ? 2 : 4;
  m.waves_per_simd = rdna ? 16 : 8;
  m.lds_kib = rdna ? 128 : 64;
  m.issue = rdna ? 1 : 4;
  m.vector_latency = rdna ? 5 : 8;
  m.trans_latency = rdna ? 10 : 16;
  m.scalar_latency = rdna ? 2 : 4;
  m.matrix_latency = 12;
  m.branch_latency = 16;
  m.scalar_load = 40;
  m.lds_latency = 64;
  m.l0_latency = 100;
  m.barrier = 8;
  m.group_start = 100;
  m.queue = 64;
  m.l0_kib = 16;
  m.lds_bytes = 128;
  m.l0_bytes = m.request_bytes = 64;
  m.l2_bytes = 4096;
  m.l2_mb = 4;
  m.l2s = 1;
  m.l2_latency = 200;
  m.memory_gb = 1000;
  m.memory_latency = 500;
  return m;
}

class Timing : public KernelTest {
 protected:
  bool gfx9() const { return gpu.target().gfx9; }
  bool gfx12() const { return gpu.target().gfx12; }
  double lanes() const { return gfx9() ? 64 : 32; }
  std::string wait_all() const {
    return gfx12() ? "s_wait_loadcnt 0\ns_wait_dscnt 0\ns_wait_kmcnt 0\n" : "s_waitcnt vmcnt(0) lgkmcnt(0)\n";
  }
  static std::string times(int n, const std::string& text) {
    std::string out;
    for (int i = 0; i < n; ++i) out += text + "\n";
    return out;
  }
  std::string barrier() const { return gfx12() ? "s_barrier_signal -1\ns_barrier_wait -1\n" : "s_barrier\n"; }

  // A kernel of these lines. s[4:5]: its argument, a pointer; v0: the thread; v1: the wave's lane.
  std::string kernel(const std::string& code, int registers = 64, int lds = 0) const {
    const bool old = gfx9();
    return concat(
        ".amdhsa_code_object_version 5\n.text\n.globl timed\n.p2align 8\n.type timed,@function\ntimed:\n",
        old ? "s_load_dwordx2 s[4:5], s[0:1], 0x0\n" : "s_load_b64 s[4:5], s[0:1], 0x0\n",
        "v_and_b32_e32 v0, 0x3ff, v0\n", wait_all(), code,
        "s_endpgm\n.Lend:\n.size timed, .Lend-timed\n.rodata\n",
        ".p2align 6\n.amdhsa_kernel timed\n.amdhsa_group_segment_fixed_size ", lds,
        "\n.amdhsa_kernarg_size 8\n.amdhsa_user_sgpr_kernarg_segment_ptr 1\n.amdhsa_next_free_vgpr ",
        registers, "\n.amdhsa_next_free_sgpr 64\n.amdhsa_system_sgpr_workgroup_id_x 1\n",
        old ? concat(".amdhsa_accum_offset ", std::min(registers, 256), "\n")
            : ".amdhsa_wavefront_size32 1\n.amdhsa_workgroup_processor_mode 0\n",
        ".end_amdhsa_kernel\n.amdgpu_metadata\n---\namdhsa.version: [1, 2]\namdhsa.kernels:\n  - .name: "
        "timed\n",
        "    .symbol: timed.kd\n    .kernarg_segment_size: 8\n    .group_segment_fixed_size: ", lds,
        "\n    .private_segment_fixed_size: 0\n    .kernarg_segment_align: 8\n    .wavefront_size: ", lanes(),
        "\n    .sgpr_count: 64\n    .vgpr_count: ", registers, "\n    .max_flat_workgroup_size: 1024\n",
        "    .args:\n      - {.size: 8, .offset: 0, .value_kind: global_buffer, .address_space: global}\n",
        ".end_amdgpu_metadata\n");
  }

  struct Case {
    std::string code;
    int registers = 64, lds = 0;
    uint32_t waves = 1, groups = 1;
    size_t bytes = 4096;
  };
  LaunchTime time(const Case& c, const Machine& machine) {
    const CodeObject code =
        gpu.load(assemble(GetParam().target, kernel(c.code, c.registers, c.lds)), "timed");
    void* data = gpu.allocate(c.bytes);
    const Launch launch{{c.groups, 1, 1}, {static_cast<uint32_t>(c.waves * lanes()), 1, 1}};
    const LaunchTime out =
        gpu.time(code, "timed", launch, std::as_bytes(std::span(&data, 1)), machine, TimeOptions{});
    gpu.free(data);
    return out;
  }
  // Cycles that `code` adds to an otherwise empty kernel.
  double cycles(Case c) {
    const Machine m = round_machine(GetParam().target);
    const double with = time(c, m).processor.ends.back();
    c.code.clear();
    return with - time(c, m).processor.ends.back();
  }
};

std::vector<Build> timed_targets() {
  std::vector<Build> out;
  for (const Build& b : builds())
    if (b.level == "O1") out.push_back({b.target, "s"});
  return out;
}
INSTANTIATE_TEST_SUITE_P(Builds, Timing, testing::ValuesIn(timed_targets()), build_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Timing);  // builds without AMD targets

TEST_P(Timing, AChainTakesTheLatencyEachTime) {
  const double latency = gfx9() ? 8 : 5;
  EXPECT_NEAR(cycles({times(200, "v_add_f32_e32 v1, v1, v1")}), 200 * latency, latency);
  const double trans = gfx9() ? 16 : 10;
  EXPECT_NEAR(cycles({times(100, "v_exp_f32_e32 v1, v1")}), 100 * trans, trans);
}

TEST_P(Timing, IndependentInstructionsIssueAtTheRateOfTheUnit) {
  std::string adds;
  for (int i = 0; i < 200; ++i) adds += concat("v_add_f32_e32 v", 2 + i % 32, ", v0, v0\n");
  const double each = gfx9() ? 4 : 1;
  EXPECT_NEAR(cycles({adds}), 200 * each, 8);
  std::string exps;
  for (int i = 0; i < 200; ++i) exps += concat("v_exp_f32_e32 v", 2 + i % 32, ", v0\n");
  EXPECT_NEAR(cycles({exps}), 200 * (gfx9() ? 16 : 4), 24);
}

// Chains of several waves fill each other's gaps until the unit is busy all the time.
TEST_P(Timing, WavesHideLatency) {
  const uint32_t simds = gfx9() ? 4 : 2;
  const double latency = gfx9() ? 8 : 5, rate = gfx9() ? 4 : 1;
  for (const uint32_t each : {1u, 2u, 4u, 8u}) {
    if (each * simds * lanes() > 1024) continue;
    // The oldest waves go first: those that the unit has no time for come after them.
    const double took = cycles({.code = times(200, "v_add_f32_e32 v1, v1, v1"), .waves = each * simds});
    EXPECT_GT(took, 200 * std::max(latency, each * rate) - 16) << each << " waves a SIMD";
    EXPECT_LT(took, 200 * latency * std::ceil(each * rate / latency) + 16) << each << " waves a SIMD";
  }
}

TEST_P(Timing, MatrixInstructionsOccupyTheirUnit) {
  std::string chain, apart;
  for (int i = 0; i < 64; ++i) {
    const int d = 32 + i % 2 * 8;
    if (gfx9()) {
      chain += "v_mfma_f32_16x16x16f16 v[32:35], v[8:9], v[12:13], v[32:35]\n";
      apart +=
          concat("v_mfma_f32_16x16x16f16 v[", d, ":", d + 3, "], v[8:9], v[12:13], v[", d, ":", d + 3, "]\n");
    } else {
      const char* a = gfx12() ? "v[8:11], v[16:19]" : "v[8:15], v[16:23]";
      chain += concat("v_wmma_f32_16x16x16_f16 v[32:39], ", a, ", v[32:39]\n");
      apart += concat("v_wmma_f32_16x16x16_f16 v[", d, ":", d + 7, "], ", a, ", v[", d, ":", d + 7, "]\n");
    }
  }
  // 8192 operations over the SIMD's rate: 512 (RDNA 3), 1024 (RDNA 4, CDNA 2), 2048 (CDNA 3) a compute unit.
  const double each = gfx12() ? 16 : !gfx9() ? 32 : GetParam().target == "gfx90a" ? 32 : 16;
  EXPECT_NEAR(cycles({apart}), 64 * each, each);
  EXPECT_NEAR(cycles({chain}), 64 * each, each);  // what is added to is passed on within the unit
  // Another instruction that reads the result waits for the last pass and more.
  const std::string read = chain + "v_add_f32_e32 v50, v32, v32\n";
  EXPECT_NEAR(cycles({read}), 64 * each + 12, each);
}

TEST_P(Timing, LdsTakes128BytesACycle) {
  const char* load = gfx9() ? "ds_read_b128 v[" : "ds_load_b128 v[";
  std::string code = "v_lshlrev_b32_e32 v1, 4, v0\nv_and_b32_e32 v1, 0x3ff, v1\n";
  for (int i = 0; i < 100; ++i) code += concat(load, 4 + i % 8 * 4, ":", 7 + i % 8 * 4, "], v1\n");
  // 16 bytes for each lane; two compute units' waves on RDNA 3 have an LDS each, so that one unit is asked.
  const double want = 100 * lanes() * 16 / 128;
  EXPECT_NEAR(cycles({.code = code + wait_all(), .lds = 4096}), want + 64, 24);
}

TEST_P(Timing, ConflictsOfBanksMultiplyTheTime) {
  const char* load = gfx9() ? "ds_read_b32 v" : "ds_load_b32 v";
  for (const int shift : {2, 3, 5, 7}) {  // bytes between lanes: 4, 8, 32, 128
    std::string code = concat("v_and_b32_e32 v1, 31, v0\nv_lshlrev_b32_e32 v1, ", shift, ", v1\n");
    for (int i = 0; i < 100; ++i) code += concat(load, 4 + i % 8, ", v1\n");
    // Lanes of 32 a phase that meet in a bank: as many as dwords between them, at most all. Both halves of a
    // wave of 64 read the same dwords one after the other.
    const double want = 100 * std::min(32.0, std::exp2(shift - 2)) * lanes() / 32;
    EXPECT_NEAR(cycles({.code = code + wait_all(), .lds = 4096}),
                std::max(want, 100.0 * (gfx9() ? 4 : 1)) + 64, 80)
        << (1 << shift) << " bytes apart";
  }
}

TEST_P(Timing, ABarrierWaitsForTheLastWave) {
  // The first wave has a chain, the others come at once: all of them end after it.
  const double latency = gfx9() ? 8 : 5;
  const std::string code = concat("v_readfirstlane_b32 s8, v0\ns_cmp_lg_u32 s8, 0\ns_cbranch_scc1 .Lmeet\n",
                                  times(300, "v_add_f32_e32 v1, v1, v1"), ".Lmeet:\n", barrier());
  const Machine m = round_machine(GetParam().target);
  const LaunchTime t = time({.code = code, .waves = 4}, m);
  EXPECT_GT(t.processor.ends.back(), 300 * latency);
  // Three waves stand at the barrier for as long as the fourth computes.
  const double stood = t.processor.stalls[static_cast<size_t>(Stall::kBarrier)];
  EXPECT_NEAR(stood, 3 * 300 * latency, 0.1 * 3 * 300 * latency);
}

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

TEST_P(Timing, LaunchesAreRoundsOfGroups) {
  const Machine m = round_machine(GetParam().target);
  const std::string code = times(2000, "v_add_f32_e32 v1, v1, v1");
  // A group of as many waves as the processor holds: groups come one after the other.
  const uint32_t simds = gfx9() ? 4 : 2, waves = simds * (gfx9() ? 4 : 16), processors = gfx9() ? 2 : 1;
  const LaunchTime one = time({.code = code, .registers = gfx9() ? 128 : 96, .waves = waves}, m);
  const LaunchTime many =
      time({.code = code, .registers = gfx9() ? 128 : 96, .waves = waves, .groups = 40 * processors}, m);
  EXPECT_EQ(many.groups_each, 40);
  const double rounds = 40.0 / many.resident;
  EXPECT_NEAR(many.cycles, rounds * (one.cycles + 100), 0.05 * many.cycles);
  EXPECT_EQ(many.processors, processors);
}

// The last quarter of a launch's groups have a part of the others' work.
TEST_P(Timing, LastGroupsThatHaveLessToDoTakeLess) {
  const Machine m = round_machine(GetParam().target);
  const uint32_t simds = gfx9() ? 4 : 2, waves = simds * (gfx9() ? 4 : 16), processors = gfx9() ? 2 : 1;
  const auto took = [&](uint32_t whole_groups) {
    const std::string code =
        concat("s_cmp_ge_u32 ", gfx12() ? "ttmp9" : "s2", ", ", whole_groups * processors,
               "\ns_cbranch_scc1 .Lpart\n", times(1800, "v_add_f32_e32 v1, v1, v1"), ".Lpart:\n",
               times(200, "v_add_f32_e32 v1, v1, v1"));
    const Case launch{
        .code = code, .registers = gfx9() ? 128 : 96, .waves = waves, .groups = 40 * processors};
    return time(launch, m).cycles;
  };
  const double all = took(40);
  EXPECT_NEAR(took(30), all * (30 + 10 * 0.1) / 40, 0.05 * all);
  EXPECT_NEAR(took(39), all * (39 + 0.1) / 40, 0.05 * all);
}

TEST_P(Timing, RegistersAndLdsLimitTheGroupsAtOnce) {
  const Machine m = round_machine(GetParam().target);
  const bool full = find_rates(GetParam().target)->registers == 1536;
  const LaunchTime few = time({.code = "v_mov_b32_e32 v200, 0\n", .registers = 256, .groups = 400}, m);
  // 512 registers of 64 lanes (CDNA), 1536 or 1024 of 32 lanes (RDNA), in four SIMDs.
  EXPECT_EQ(few.resident, 4u * (gfx9() ? 2 : full ? 5 : 4));
  const LaunchTime lds = time({.code = "", .lds = 32 * 1024, .groups = 400}, m);
  EXPECT_EQ(lds.resident, gfx9() ? 2u : 4u);
}

TEST_P(Timing, PowerLowersTheClock) {
  if (!gfx9()) GTEST_SKIP() << "a limit of CDNA";
  std::string code;
  for (int i = 0; i < 400; ++i) code += "v_mfma_f32_16x16x16f16 v[32:35], v[8:9], v[12:13], v[32:35]\n";
  Machine m = round_machine(GetParam().target);
  const Case c{.code = code, .waves = 4, .groups = 2};
  const LaunchTime free = time(c, m);
  m.limited_gigahertz = 0.5;
  m.limited_share = 1;
  const LaunchTime limited = time(c, m);
  EXPECT_NEAR(limited.gigahertz, 0.5, 0.03);
  EXPECT_NEAR(limited.cycles, free.cycles, 0.1 * free.cycles);
  EXPECT_GT(limited.seconds, 1.7 * free.seconds);
}

TEST_P(Timing, TheWatchSeesEveryInstructionInOrder) {
  const Machine m = round_machine(GetParam().target);
  const CodeObject code = gpu.load(
      assemble(GetParam().target, kernel(times(50, "v_add_f32_e32 v1, v1, v1") + barrier())), "timed");
  void* data = gpu.allocate(64);
  std::vector<Issued> seen;
  const TimeOptions options{.watch = [&](const Issued& i) { seen.push_back(i); }};
  const Launch launch{{1, 1, 1}, {static_cast<uint32_t>(2 * lanes()), 1, 1}};
  const LaunchTime t = gpu.time(code, "timed", launch, std::as_bytes(std::span(&data, 1)), m, options);
  ASSERT_GT(seen.size(), 100u);
  double stalled = 0, last = 0, next[2] = {0, 0};
  for (const Issued& i : seen) {
    EXPECT_GE(i.at, i.from);
    EXPECT_GE(i.at, last);
    EXPECT_GE(i.from, next[i.wave]);
    last = next[i.wave] = i.at;
    stalled += i.at - i.from;
  }
  double counted = 0;
  for (const double s : t.processor.stalls) counted += s;
  EXPECT_NEAR(stalled, counted, 1e-6 * counted);
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
  EXPECT_NEAR(shared.share.past_l2, 1 / processors, 1e-9);
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

TEST_P(Timing, TheTimelineIsATraceOfTheWaves) {
  const Machine m = round_machine(GetParam().target);
  const CodeObject code = gpu.load(
      assemble(GetParam().target, kernel(times(20, "v_add_f32_e32 v1, v1, v1") + barrier())), "timed");
  void* data = gpu.allocate(64);
  Timeline timeline(code);
  const TimeOptions options{.watch = [&](const Issued& i) { timeline.add(i); }};
  const Launch launch{{1, 1, 1}, {static_cast<uint32_t>(2 * lanes()), 1, 1}};
  const LaunchTime t = gpu.time(code, "timed", launch, std::as_bytes(std::span(&data, 1)), m, options);
  const auto trace = nlohmann::json::parse(timeline.json(t));
  std::map<std::pair<int, int>, double> ends;
  std::map<std::string, int> names;
  for (const auto& e : trace["traceEvents"]) {
    if (e["ph"] != "X") continue;
    double& end = ends[{e["pid"], e["tid"]}];
    EXPECT_GE(e["ts"].get<double>(), end - 1e-9) << e;  // slices of a row do not overlap
    EXPECT_GE(e["dur"].get<double>(), 0);
    end = e["ts"].get<double>() + e["dur"].get<double>();
    ++names[e["name"]];
  }
  EXPECT_EQ(names["v_add_f32_e32"], 2 * 2 * 20);  // in the waves' rows and in those of the vector units
  EXPECT_GE(names["stall: result"], 2 * 19);
  EXPECT_GE(names["stall: wait for scalar loads"] + names["stall: wait for LDS"], 2);
  EXPECT_FALSE(trace["otherData"]["cut"].get<bool>());
}

TEST(Machines, ShippedDescriptionsAgreeWithTheRates) {
  const std::vector<MachineFile> all = machines();
  EXPECT_GE(all.size(), 7u);
  for (const MachineFile& f : all) {
    const Machine& m = f.machine;
    const GpuProduct* card = find_gpu_product(m.name);
    const CardRates* rates = find_rates(m.target);
    ASSERT_NE(card, nullptr) << m.name;
    ASSERT_NE(rates, nullptr) << m.target;
    EXPECT_EQ(card->arch, m.target);
    EXPECT_EQ(card->compute_units, m.compute_units);
    EXPECT_EQ(card->gigahertz, m.gigahertz);
    EXPECT_EQ(card->l2_mb, m.l2_mb);
    EXPECT_EQ(card->last_level_mb, m.last_level_mb);
    EXPECT_LE(m.memory_gb, card->bandwidth);
    EXPECT_GE(m.memory_gb, 0.75 * card->bandwidth);
    EXPECT_EQ(rates->simds, m.simds);
    EXPECT_EQ(rates->most_waves, m.waves_per_simd);
    EXPECT_EQ(rates->lds_kib, m.lds_kib);
    EXPECT_EQ(rates->lds_bytes, m.lds_bytes);
    EXPECT_LT(m.l2_latency, m.memory_latency);
    for (const MachineFigure& figure : f.figures)
      EXPECT_GT(figure.source.size(), 2u) << m.name << ' ' << figure.field;
  }
  EXPECT_EQ(find_machine("rx7900xtx").name, "RX 7900 XTX");
  EXPECT_EQ(find_machine("gfx1100").name, "RX 7900 XTX");
  EXPECT_THROW(find_machine("RX 1"), UsageError);
}

TEST(Machines, BadDescriptionsAreNamed) {
  nlohmann::json json = {{"name", "x"}, {"target", "gfx1100"}, {"figures", nlohmann::json::object()}};
  const auto said = [&] {
    try {
      machine_from_json(json, "x.json");
    } catch (const FormatError& e) {
      return std::string(e.what());
    }
    return std::string("nothing");
  };
  EXPECT_THAT(said(), testing::HasSubstr("x.json: no figure gigahertz"));
  json["figures"]["gigahertz"] = {{"value", 2.5}, {"kind", "guessed"}, {"source", "somewhere"}};
  EXPECT_THAT(said(), testing::HasSubstr("guessed"));
  json["figures"]["gigahertz"] = {{"value", 250}, {"kind", "published"}, {"source", "somewhere"}};
  EXPECT_THAT(said(), testing::HasSubstr("gigahertz is 250"));
  json["figures"]["gigahertz"] = {{"value", 2.5}, {"kind", "published"}};
  EXPECT_THAT(said(), testing::HasSubstr("\"source\" must be a text"));
  json["figures"]["megahertz"] = 1;
  EXPECT_THAT(said(), testing::HasSubstr("there is no figure megahertz"));
}

TEST(Machines, CodeOfAnotherFamilyIsRefused) {
  const std::vector<Build> built = builds();
  if (built.empty()) GTEST_SKIP() << "no AMD targets";
  Gpu gpu(built[0].target);
  const CodeObject code = gpu.load(read_object(built[0], "basic"), "basic");
  const std::string other = built[0].target.starts_with("gfx9") ? "gfx1100" : "gfx942";
  void* data[3] = {};
  EXPECT_THROW(gpu.time(code, code.kernels()[0], {{1, 1, 1}, {64, 1, 1}}, std::as_bytes(std::span(data)),
                        round_machine(other), TimeOptions{}),
               UsageError);
}

}  // namespace
}  // namespace rocm_sd::emu
