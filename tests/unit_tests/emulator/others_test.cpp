// Kernels of kinds that this project has none of (kernels/others.hip): stacks, recursion, preloaded
// arguments, clocks, barriers of the grid, endless loops, calls of the host; and what the checks find in
// their LDS and matrix chains.
#include <bit>

#include "unit_tests/emulator/assembler.hpp"

namespace rocm_sd::emu {
namespace {

struct Args {
  const uint32_t* in;
  uint32_t* out;
  int n, mode;
};

class Others : public KernelTest {
 protected:
  Others() { gpu.options().seconds_limit = 60; }
  std::vector<uint32_t> words(size_t count) { return random_integers<uint32_t>(count, 11); }
  // What the launch was stopped for, or "clean".
  std::string said(const CodeObject& code, const char* kernel, const Launch& as, const Args& args) {
    try {
      launch(code, kernel, as, args);
    } catch (const KernelFault& fault) {
      return fault.what();
    }
    return "clean";
  }
};
INSTANTIATE_TEST_SUITE_P(Builds, Others, testing::ValuesIn(builds()), build_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Others);  // builds without AMD targets

#define EXPECT_SAYS(text, part)                              \
  do {                                                       \
    const std::string said_ = (text);                        \
    EXPECT_NE(said_.find(part), std::string::npos) << said_; \
  } while (false)

int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

TEST_P(Others, RecursionHasAStack) {
  const CodeObject code = load("others");
  Args p{nullptr, poisoned<uint32_t>(128), 12, 0};
  launch(code, "recursion", {{1, 1, 1}, {128, 1, 1}}, p);
  for (int t = 0; t < 128; ++t) EXPECT_EQ(p.out[t], static_cast<uint32_t>(fibonacci(t % 12))) << t;
  gpu.options().stack_bytes = 64;  // it overflows, and says so
  EXPECT_SAYS(said(code, "recursion", {{1, 1, 1}, {128, 1, 1}}, p), "of a scratch of");
}

TEST_P(Others, FramesOfFunctions) {
  const auto in = words(256);
  Args p{upload(in), poisoned<uint32_t>(128), 50, 0};
  gpu.options().check = true;
  launch(load("others"), "frames", {{1, 1, 1}, {128, 1, 1}}, p);
  for (uint32_t t = 0; t < 128; ++t) {
    uint32_t want = 0;
    for (uint32_t i = 0; i < 50; ++i) {
      const uint32_t v = in[t + i % 8] * 3 + i;
      want += v * ((v & 3) + 1);
    }
    ASSERT_EQ(p.out[t], want) << t;
  }
}

// Arguments that the hardware puts into registers before the first instruction.
TEST_P(Others, PreloadedArguments) {
  if (!is_cdna()) GTEST_SKIP() << "RDNA has no preloading";
  const ScratchFolder folder;
  const std::string object = (folder.path / "out.co").string();
  const std::string command = concat(ROCM_SD_AMD_CLANG, " -x hip --offload-arch=", GetParam().target,
                                     " --offload-device-only --no-gpu-bundle-output -nogpuinc -nogpulib "
                                     "-mllvm -amdgpu-kernarg-preload-count=8 -",
                                     GetParam().level, " ", ROCM_SD_SOURCE_DIR,
                                     "/tests/unit_tests/emulator/kernels/preload.hip -o ", object);
  ASSERT_EQ(std::system(command.c_str()), 0);
  const std::string file = read_file(object, uint64_t{1} << 28);
  const CodeObject code = gpu.load(std::as_bytes(std::span(file)), "preload");
  EXPECT_NE(code.kernel("scaled").kernarg_preload & 127, 0) << "the compiler preloaded nothing";
  const auto in = words(64);
  struct {
    const uint32_t* in;
    uint32_t* out;
    int n, factor;
  } p{upload(in), poisoned<uint32_t>(64), 60, 7};
  launch(code, "scaled", {{1, 1, 1}, {64, 1, 1}}, p);
  for (uint32_t t = 0; t < 60; ++t) EXPECT_EQ(p.out[t], in[t] * 7 + 1);
  EXPECT_EQ(p.out[60], 0xa5a5a5a5u);
}

TEST_P(Others, WaitsByTheClockEnd) {
  Args p{nullptr, poisoned<uint32_t>(64), 0, 0};
  EXPECT_EQ(said(load("others"), "waits_by_the_clock", {{1, 1, 1}, {64, 1, 1}}, p), "clean");
}

TEST_P(Others, GroupsThatWaitForOneAnother) {
  const CodeObject code = load("others");
  for (const int threads : {1, 2}) {
    gpu.options().threads = threads;
    Args p{nullptr, upload(std::vector<uint32_t>(4)), 4, 8};
    EXPECT_EQ(said(code, "grid_barrier", {{8, 1, 1}, {64, 1, 1}}, p), "clean") << threads;
    for (int round = 0; round < 4; ++round) EXPECT_EQ(p.out[round], 8u);
  }
}

TEST_P(Others, LimitsSayWhereWavesStand) {
  const CodeObject code = load("others");
  Args p{nullptr, upload(std::vector<uint32_t>(4)), 0, 0};
  const Launch as{{2, 1, 1}, {128, 1, 1}};
  gpu.options().instruction_limit = 100000;
  const std::string loops = said(code, "endless", as, p);
  EXPECT_SAYS(loops, "kernel endless: no end after 100000 instructions of a wave; its waves stand at\n  `");
  EXPECT_SAYS(loops, ": runs, ");
  EXPECT_SAYS(loops, "others.hip:");
  EXPECT_SAYS(loops, "wave 1");
  p.mode = 1;
  const std::string waits = said(code, "endless", as, p);
  EXPECT_SAYS(waits, ": waits, ");
  EXPECT_SAYS(waits, ": runs, ");
  gpu.options().instruction_limit = 0;
  gpu.options().seconds_limit = 0.2;
  EXPECT_SAYS(said(code, "endless", as, p), "no end after 0.2 seconds");
}

TEST_P(Others, CallsOfTheHostAreNamed) {
  const CodeObject code = load("others");
  Args p{upload(words(64)), poisoned<uint32_t>(64), 0, 0};
  EXPECT_EQ(said(code, "asks_the_host", {{1, 1, 1}, {64, 1, 1}}, p), "clean");  // it may call, but does not
  p.mode = 1;
  EXPECT_SAYS(said(code, "asks_the_host", {{1, 1, 1}, {64, 1, 1}}, p),
              "asks the host for printf, assert or another call of the host (hidden_hostcall_buffer)");
}

TEST_P(Others, CountersInLds) {
  gpu.options().check = true;
  Args p{nullptr, poisoned<uint32_t>(300), 0, 0};
  launch(load("others"), "counters", {{1, 1, 1}, {128, 1, 1}}, p);
  const int wave = is_cdna() ? 64 : 32;
  const auto lanes_of = [&](int first, int step) {  // of the wave that begins at `first`
    uint32_t count = 0;
    for (int t = first; t < first + wave; ++t) count += t % step == 0;
    return count;
  };
  uint32_t up = 100, down = 100;
  for (int first = 0; first < 128; first += wave) {
    for (int t = first; t < first + wave; ++t) {
      EXPECT_EQ(p.out[2 * t], t % 3 == 0 ? up : 0) << t;
      EXPECT_EQ(p.out[2 * t + 1], t % 2 == 0 ? down : 0) << t;
    }
    up += lanes_of(first, 3);
    down -= lanes_of(first, 2);
  }
  EXPECT_EQ(p.out[256], up);
  EXPECT_EQ(p.out[257], down);
}

TEST_P(Others, TransposedLoads) {
  if (!gpu.target().gfx12) GTEST_SKIP() << "only gfx12 has them";
  std::vector<uint16_t> matrix(16 * 20);
  for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<uint16_t>(i);
  Args p{reinterpret_cast<const uint32_t*>(upload(matrix)), poisoned<uint32_t>(128), 20, 0};
  gpu.options().check = true;
  launch(load("others"), "transposed_load", {{1, 1, 1}, {32, 1, 1}}, p);
  // With these addresses a lane gets a column, as the B of a matrix product wants it: k in registers, n by
  // lane.
  const auto* got = reinterpret_cast<const uint16_t*>(p.out);
  for (int lane = 0; lane < 32; ++lane)
    for (int j = 0; j < 8; ++j)
      EXPECT_EQ(got[8 * lane + j], (8 * (lane / 16) + j) * 20 + lane % 16) << lane << ' ' << j;
}

TEST_P(Others, ChecksLeaveRightKernelsAlone) {
  gpu.options().check = true;
  const CodeObject code = load("others");
  const auto in = words(512);
  Args p{upload(in), poisoned<uint32_t>(1024), 2, 0};
  EXPECT_EQ(said(code, "swaps", {{1, 1, 1}, {128, 1, 1}}, p), "clean");
  EXPECT_EQ(p.out[0], *std::max_element(in.begin(), in.begin() + 128));
  for (p.mode = 0; p.mode < 2; ++p.mode) {
    EXPECT_EQ(said(code, "unaligned_lds", {{1, 1, 1}, {64, 1, 1}}, p), "clean");
    EXPECT_EQ(p.out[4 * 5 + 2], in[4 * 58 + 2]);
  }
  std::vector<uint32_t> floats(512);
  for (size_t i = 0; i < floats.size(); ++i)
    floats[i] = std::bit_cast<uint32_t>(static_cast<float>(i % 5) - 2);
  p = {upload(floats), poisoned<uint32_t>(1024), 2, 0};
  EXPECT_EQ(said(code, "matrix_chains", {{1, 1, 1}, {64, 1, 1}}, p), "clean");
}

TEST_P(Others, PlainReadsBesideAtomics) {
  gpu.options().check = true;
  const CodeObject code = load("others");
  Args p{nullptr, poisoned<uint32_t>(128), 0, 0};
  EXPECT_EQ(said(code, "reads_beside_atomics", {{1, 1, 1}, {128, 1, 1}}, p), "clean");
  for (p.mode = 1; p.mode <= 2; ++p.mode)
    EXPECT_SAYS(said(code, "reads_beside_atomics", {{1, 1, 1}, {128, 1, 1}}, p), "which an atomic of wave ");
}

}  // namespace
}  // namespace rocm_sd::emu
