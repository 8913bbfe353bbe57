// Options::check and Options::count: planted faults are found and named, right kernels are left alone, and
// the counts say what was planted.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "emulator/analysis.hpp"
#include "emulator/report.hpp"
#include "unit_tests/emulator/kernel_test.hpp"

namespace rocm_sd::emu {
namespace {

struct Planted {
  const float* in;
  float* out;
  int n, mode;
};

std::vector<Build> assembled() {
  std::vector<Build> out;
  for (Build b : builds())
    if (b.level == "O1") out.push_back({b.target, "s"});
  return out;
}

class Checks : public KernelTest {
 protected:
  Checks() { gpu.options().check = true; }
  uint32_t wave() const { return is_cdna() ? 64 : 32; }

  // What the launch was stopped for, or "clean".
  template <class Params>
  std::string found(const CodeObject& code, const char* kernel, const Launch& launch_as,
                    const Params& params) {
    try {
      launch(code, kernel, launch_as, params);
    } catch (const KernelFault& fault) {
      return fault.what();
    }
    return "clean";
  }
};
INSTANTIATE_TEST_SUITE_P(Builds, Checks, testing::ValuesIn(builds()), build_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Checks);  // builds without AMD targets

#define EXPECT_FOUND(text, part)                           \
  do {                                                     \
    const std::string said = (text);                       \
    EXPECT_NE(said.find(part), std::string::npos) << said; \
  } while (false)

TEST_P(Checks, OneElementPastTheEnd) {
  const CodeObject code = load("checks");
  Planted p{upload(random_floats(256, -1, 1, 1)), poisoned<float>(256), 256, 0};
  const Launch as{{4, 1, 1}, {64, 1, 1}};
  EXPECT_EQ(found(code, "edges", as, p), "clean");
  p.mode = 1;
  EXPECT_FOUND(found(code, "edges", as, p), "4 bytes after the end of a buffer of 1024");
  p.mode = 2;
  EXPECT_FOUND(found(code, "edges", as, p), "4 bytes after the end of a buffer of 1024");
}

TEST_P(Checks, ReadsOfWhatNobodyWrote) {
  gpu.options().threads = 1;  // the first group is the first to be stopped
  const CodeObject code = load("checks");
  const auto values = random_floats(256, -1, 1, 2);
  auto* in = static_cast<float*>(gpu.allocate_watched(1024));
  Planted p{in, poisoned<float>(256), 256, 0};
  const Launch as{{4, 1, 1}, {64, 1, 1}};
  EXPECT_FOUND(found(code, "edges", as, p), "of which byte 0 of a buffer of 1024 was never written");
  gpu.write(in, values.data(), 1023);  // all but the last byte
  const std::string one = found(code, "edges", as, p);
  EXPECT_FOUND(one, "byte 1023 of a buffer of 1024 was never written");
  EXPECT_FOUND(one, concat("lane ", is_cdna() ? 63 : 31));
  gpu.zero(in + 255, 4);
  EXPECT_EQ(found(code, "edges", as, p), "clean");
  // What a kernel stored, and copies, pass validity on.
  auto* middle = static_cast<float*>(gpu.allocate_watched(1024));
  auto* copy = static_cast<float*>(gpu.allocate_watched(1024));
  Planted first{in, middle, 256, 0};
  EXPECT_EQ(found(code, "edges", {{2, 1, 1}, {64, 1, 1}}, first), "clean");
  gpu.copy(copy, middle, 1024);
  Planted second{copy, p.out, 256, 0};
  EXPECT_EQ(found(code, "edges", {{2, 1, 1}, {64, 1, 1}}, second), "clean");
  EXPECT_FOUND(found(code, "edges", as, second), "byte 512 of a buffer of 1024 was never written");
}

TEST_P(Checks, ReadsOfScratchThatNobodyWrote) {
  const CodeObject code = load("checks");
  Planted p{upload(random_floats(32, -1, 1, 3)), poisoned<float>(64), 7, 6};
  EXPECT_EQ(found(code, "table", {{1, 1, 1}, {64, 1, 1}}, p), "clean");
  EXPECT_EQ(p.out[63], p.in[6]);
  p.mode = 7;
  EXPECT_FOUND(found(code, "table", {{1, 1, 1}, {64, 1, 1}}, p), "of its scratch, which nothing has written");
}

TEST_P(Checks, BarriersInDivergentCode) {
  const CodeObject code = load("checks");
  Planted p{upload(random_floats(128, -1, 1, 4)), poisoned<float>(128), 128, 0};
  const Launch as{{1, 1, 1}, {128, 1, 1}};
  EXPECT_EQ(found(code, "barriers", as, p), "clean");
  for (p.mode = 1; p.mode <= 3; ++p.mode)
    EXPECT_FOUND(found(code, "barriers", as, p), "a barrier in divergent code");
  for (p.n = 1; p.n <= 128; p.n += 42) EXPECT_EQ(found(code, "leaves_early", as, p), "clean") << p.n;
}

TEST_P(Checks, RightKernelsAreClean) {
  Planted p{upload(random_floats(4096, -1, 1, 5)), poisoned<float>(4096), 128, 0};
  EXPECT_EQ(found(load("lanes"), "planted", {{1, 1, 1}, {128, 1, 1}}, p), "clean");
  struct {
    const float* x;
    float* y;
    int rows, cols;
  } rows{p.in, p.out, 4, 1000};
  EXPECT_EQ(found(load("lanes"), "softmax", {{4, 1, 1}, {128, 1, 1}}, rows), "clean");
  struct {
    const float* in;
    float* out;
    int n;
  } square{p.in, p.out, 64};
  EXPECT_EQ(found(load("lanes"), "transpose", {{2, 2, 1}, {32, 8, 1}}, square), "clean");
  std::vector<uint16_t> halves(128 * 96, 0x3c00);
  struct {
    const uint16_t *a, *b;
    float* c;
    int m, n, k;
  } product{upload(halves), upload(halves), poisoned<float>(128 * 64), 128, 64, 96};
  EXPECT_EQ(found(load("matrix"), "gemm", {{1, 2, 1}, {128, 1, 1}}, product), "clean");
  struct {
    const uint16_t *q, *k, *v;
    float* o;
    int tokens;
    float scale;
  } heads{product.a, product.a, product.a, poisoned<float>(2 * 48 * 64), 48, 0.125f};
  EXPECT_EQ(found(load("matrix"), "attention", {{3, 2, 1}, {wave(), 1, 1}}, heads), "clean");
}

TEST_P(Checks, TwoWavesWriteTheSameByte) {
  Planted p{upload(random_floats(128, -1, 1, 9)), poisoned<float>(128), 128, 0};
  const CodeObject code = load("checks");
  EXPECT_EQ(found(code, "rewrites", {{1, 1, 1}, {128, 1, 1}}, p), "clean");
  p.mode = 1;
  EXPECT_FOUND(found(code, "rewrites", {{1, 1, 1}, {128, 1, 1}}, p), "wrote since the last barrier");
}

// Each wait of a kernel in turn becomes s_nop: at least every one that a load's result needs is missed.
TEST_P(Checks, WaitsTakenOutOfTheBinary) {
  std::vector<std::byte> file = read_object(GetParam(), "checks");
  const CodeObject code = gpu.load(file, "checks");
  const Kernel& kernel = code.kernel("waits");
  const Program& program = code.program();
  const auto* entry = reinterpret_cast<const std::byte*>(code.base() + kernel.entry);
  const auto at = std::search(file.begin(), file.end(), entry, entry + 256);
  ASSERT_NE(at, file.end());
  const auto offset = static_cast<size_t>(at - file.begin());
  Planted p{upload(random_floats(4096, -1, 1, 6)), poisoned<float>(128), 128, 0};
  int taken = 0, missed = 0, races = 0;
  for (const Inst* in = program.at(code.base() + kernel.entry);; ++in) {
    if (program.texts[in->text].starts_with("s_endpgm")) break;
    if (!program.texts[in->text].starts_with("s_wait")) continue;
    constexpr uint32_t kNop = 0xbf800000;
    std::vector<std::byte> patched = file;
    std::memcpy(patched.data() + offset + (in->address - code.base() - kernel.entry), &kNop, 4);
    ++taken;
    const std::string said = found(gpu.load(patched, "patched"), "waits", {{1, 1, 1}, {128, 1, 1}}, p);
    if (said.find("without a wait for `") != std::string::npos) ++missed;
    if (said.find("came to the barrier without a wait for its store") != std::string::npos) ++races;
  }
  EXPECT_GE(missed, 3) << taken;  // arguments, the element, what came from LDS
  EXPECT_GE(races, 1) << taken;
}

TEST_P(Checks, BankConflictsAreCounted) {
  const CodeObject code = load("checks");
  gpu.options().check = false;
  gpu.options().count = true;
  Planted p{upload(random_floats(2048, -1, 1, 7)), poisoned<float>(64), 64, 0};
  const auto conflicts = [&](int stride) {
    p.mode = stride;
    const Launch as{{1, 1, 1}, {64, 1, 1}};
    const Counters counters = launch(code, "banks", as, p);
    uint64_t out = 0;
    for (const AccessCount& m : counters.memory) out += m.lds_conflicts;
    const auto report = to_json(counters, code, code.kernel("banks"), as);
    EXPECT_EQ(report["lds"]["conflict_cycles"], out);
    EXPECT_GT(report["bound"]["group_cycles"].get<double>(), 0.0);
    return out;
  };
  EXPECT_EQ(conflicts(1), 0u);
  EXPECT_EQ(conflicts(0), 0u);        // one dword for all
  EXPECT_EQ(conflicts(2), 2u);        // twice 32 lanes on 16 banks
  EXPECT_EQ(conflicts(32), 2u * 31);  // twice 32 lanes on one bank
  EXPECT_EQ(conflicts(33), 0u);
}

TEST(LdsBanks, PhasesOfWideAccesses) {
  std::array<uint32_t, 64> at;
  const uint32_t wave32[2] = {~0u, 0}, wave64[2] = {~0u, ~0u};
  const auto rows = [&](uint32_t stride) {
    for (uint32_t l = 0; l < 64; ++l) at[l] = l % 16 * stride + l / 16 * 16;
    return std::span<const uint32_t, 64>(at);
  };
  for (uint32_t l = 0; l < 64; ++l) at[l] = 16 * l;  // 16 bytes each, one after the other
  EXPECT_EQ(lds_cycles(at, wave32, 16, false).cycles, 4u);
  EXPECT_EQ(lds_cycles(at, wave64, 16, false).cycles, 8u);
  EXPECT_EQ(lds_cycles(rows(128), wave32, 16, false).cycles, 32u);  // eight rows meet in four banks
  EXPECT_EQ(lds_cycles(rows(128), wave32, 16, false).least, 4u);
  EXPECT_EQ(lds_cycles(rows(144), wave32, 16, false).cycles, 4u);
  // CDNA pairs four lanes with four of the other row of 16: 16 columns, which rows of 144 bytes keep apart.
  EXPECT_EQ(lds_cycles(rows(128), wave64, 16, true).cycles, 8u * 4);
  const uint32_t few[2] = {0x3, 0};
  EXPECT_EQ(lds_cycles(rows(128), few, 4, false).cycles, 2u);
}

class AssembledChecks : public Checks {
 protected:
  std::string run(const char* kernel, uint32_t threads = 64) {
    struct {
      const uint32_t* in;
      uint32_t* out;
    } p{upload(random_integers<uint32_t>(size_t{threads} * 8, 8)), poisoned<uint32_t>(size_t{threads} * 4)};
    return found(load("operations"), kernel, {{1, 1, 1}, {threads, 1, 1}}, p);
  }
};
INSTANTIATE_TEST_SUITE_P(Builds, AssembledChecks, testing::ValuesIn(assembled()), build_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(AssembledChecks);  // builds without AMD targets

TEST_P(AssembledChecks, Waits) {
  EXPECT_EQ(run("c_wait_first"), "clean");
  const std::string second = run("c_wait_second");
  EXPECT_FOUND(second, "reads v11 without a wait for `ds_");
  EXPECT_FOUND(run("c_wait_overwrite"), "overwrites v10 without a wait for `ds_");
  EXPECT_FOUND(run("c_wait_scalar"), "reads s20 without a wait for `s_load");
}

// Loads to LDS count as vector loads: an instruction of LDS does not wait for them, nor does a barrier.
TEST_P(AssembledChecks, WaitsForLoadsToLds) {
  if (gpu.target().gfx12) GTEST_SKIP() << "gfx12 has no such loads";
  EXPECT_EQ(run("c_own_load_first"), "clean");
  EXPECT_EQ(run("c_own_load_waited"), "clean");
  EXPECT_FOUND(run("c_own_load_second"),
               "reads byte 1024 of LDS without a wait for the wave's own load to there");
  EXPECT_FOUND(run("c_over_load"), "writes byte 1024 of LDS without a wait for the wave's own load to there");
  EXPECT_EQ(run("c_others_load_first", 128), "clean");
  EXPECT_EQ(run("c_others_load_waited", 128), "clean");
  EXPECT_FOUND(run("c_others_load_second", 128), "came to the barrier without a wait for its load to there");
  EXPECT_EQ(run("c_load_over_read_waited", 128), "clean");
  EXPECT_FOUND(run("c_load_over_read", 128), "came to the barrier without a wait for its read of there");
}

// HSA runs LDS in its unaligned mode: loads and stores may be at any address, atomics may not.
TEST_P(AssembledChecks, MisalignedLds) {
  EXPECT_EQ(run("c_misaligned"), "clean");
  EXPECT_FOUND(run("c_misaligned_atomic"), "lane 0: 8 bytes at 4 of LDS are misaligned");
}

TEST_P(AssembledChecks, MatrixHazards) {
  EXPECT_EQ(run("c_products_apart"), "clean");
  for (const char* kernel : {"c_products_at_once", "c_products_too_soon"})
    EXPECT_FOUND(run(kernel), is_cdna() ? "a matrix instruction reads the result of `v_mfma"
                                        : "without a vector instruction (v_nop) between");
  // The second product adds to the first: that needs nothing. Reading it at once does, on CDNA.
  const std::string read = run("c_product_then_read");
  if (is_cdna())
    EXPECT_FOUND(read, "reads the result of `v_mfma");
  else
    EXPECT_EQ(read, "clean");
}

}  // namespace
}  // namespace rocm_sd::emu
