// The time model on assembled kernels whose time is known: chains, rates, LDS and its banks, barriers, rounds
// of groups; the shipped descriptions are read below. Memory: timing_memory_test.cpp.
#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "emulator/tool/timeline.hpp"
#include "unit_tests/emulator/timed_kernel.hpp"

namespace rocm_sd::emu {
namespace {

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
