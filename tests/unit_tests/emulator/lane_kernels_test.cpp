// Kernels whose lanes and waves work together, on the emulated GPU; and the faults of kernels that go astray.
#include <algorithm>
#include <cmath>

#include "base/dtype.hpp"
#include "unit_tests/emulator/kernel_test.hpp"

namespace rocm_sd::emu {
namespace {

class LaneKernels : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Builds, LaneKernels, testing::ValuesIn(builds()), build_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LaneKernels);  // builds without AMD targets

TEST_P(LaneKernels, Softmax) {
  const int rows = 3, cols = 333;
  const auto x = random_floats(static_cast<size_t>(rows * cols), -8, 8, 1);
  struct {
    const float* x;
    float* y;
    int rows, cols;
  } p{upload(x), poisoned<float>(x.size()), rows, cols};
  launch(load("lanes"), "softmax", {{rows, 1, 1}, {128, 1, 1}}, p);
  for (int r = 0; r < rows; ++r) {
    double sum = 0;
    for (int c = 0; c < cols; ++c) sum += std::exp(static_cast<double>(x[static_cast<size_t>(r * cols + c)]));
    for (int c = 0; c < cols; ++c) {
      const double want = std::exp(static_cast<double>(x[static_cast<size_t>(r * cols + c)])) / sum;
      // exp of an argument near 16 loses four bits; the sum of 333 terms adds little.
      ASSERT_NEAR(p.y[r * cols + c], want, want * 64 * 0x1p-24) << r << " " << c;
    }
  }
}

// Waves of 64 lanes on every target: RDNA's kernel is compiled for them.
TEST_P(LaneKernels, WavesOf64) {
  struct Seen {
    uint64_t odd;
    uint32_t rank, first, turns, at_end;
  };
  const uint32_t group = 160;
  const int count = 3 * 160 - 43;  // waves of 64, 32 and, at the end, 53 lanes
  std::vector<uint32_t> x(static_cast<size_t>(count));
  std::mt19937 engine(5);
  for (uint32_t& v : x) v = 1 + engine() % 999;
  struct {
    const uint32_t* x;
    Seen* seen;
    int count;
  } p{upload(x), poisoned<Seen>(x.size()), count};
  const auto turns_of = [](uint32_t n) {
    uint32_t turns = 0;
    for (; n != 1 && turns < 64; ++turns) n = n & 1 ? 3 * n + 1 : n / 2;
    return turns;
  };
  launch(load("wide"), "wide", {{3, 1, 1}, {group, 1, 1}}, p);
  for (uint32_t i = 0; i < x.size(); ++i) {
    const uint32_t wave = i - i % group % 64;
    const uint32_t end = std::min({wave + 64, i - i % group + group, static_cast<uint32_t>(count)});
    Seen want{0, 0, 0, turns_of(x[i]), 0};
    for (uint32_t j = end; j-- > wave;) {
      if (x[j] % 2 == x[i] % 2) want.first = x[j];
      if (want.turns && turns_of(x[j]) >= want.turns) ++want.at_end;
      if (x[i] % 2 && (x[j] & 3) == 3) {
        want.odd |= uint64_t{1} << (j - wave);
        want.rank += j < i;
      }
    }
    ASSERT_EQ(p.seen[i].odd, want.odd) << i;
    ASSERT_EQ(p.seen[i].rank, want.rank) << i;
    ASSERT_EQ(p.seen[i].first, want.first) << i;
    ASSERT_EQ(p.seen[i].turns, want.turns) << i;
    ASSERT_EQ(p.seen[i].at_end, want.at_end) << i;
  }
}

TEST_P(LaneKernels, GroupNormSilu) {
  const int images = 2, hw = 35, channels = 24, groups = 4, per = channels / groups;
  const size_t count = static_cast<size_t>(images * hw * channels);
  std::vector<uint16_t> x(count);
  const auto values = random_floats(count, -3, 5, 2), gain = random_floats(24, -2, 2, 3),
             bias = random_floats(24, -1, 1, 4);
  for (size_t i = 0; i < count; ++i) x[i] = float_to_f16(values[i]);
  struct {
    const uint16_t* x;
    const float *gain, *bias;
    uint16_t* y;
    int hw, c, groups;
    float eps;
  } p{upload(x), upload(gain), upload(bias), poisoned<uint16_t>(count), hw, channels, groups, 1e-5f};
  launch(load("lanes"), "group_norm_silu", {{groups, images, 1}, {256, 1, 1}, 256 / 32 * 4}, p);
  const auto at = [&](int n, int i, int c) { return static_cast<size_t>((n * hw + i) * channels + c); };
  for (int n = 0; n < images; ++n)
    for (int g = 0; g < groups; ++g) {
      double sum = 0, squares = 0;
      for (int i = 0; i < hw; ++i)
        for (int c = g * per; c < (g + 1) * per; ++c) sum += f16_to_float(x[at(n, i, c)]);
      const double mean = sum / (hw * per);
      for (int i = 0; i < hw; ++i)
        for (int c = g * per; c < (g + 1) * per; ++c)
          squares += std::pow(f16_to_float(x[at(n, i, c)]) - mean, 2);
      const double rstd = 1 / std::sqrt(squares / (hw * per) + 1e-5);
      for (int i = 0; i < hw; ++i)
        for (int c = g * per; c < (g + 1) * per; ++c) {
          const double v = (f16_to_float(x[at(n, i, c)]) - mean) * rstd * gain[static_cast<size_t>(c)] +
                           bias[static_cast<size_t>(c)];
          const double want = v / (1 + std::exp(-v));
          ASSERT_NEAR(f16_to_float(p.y[at(n, i, c)]), want, std::fabs(want) * 0x1p-11 + 1e-5)
              << n << " " << i << " " << c;
        }
    }
}

TEST_P(LaneKernels, MovesBetweenLanes) {
  std::vector<int> in(64);
  for (int i = 0; i < 64; ++i) in[static_cast<size_t>(i)] = 100 + i * i;
  struct {
    const int* in;
    int* out;
  } p{upload(in), poisoned<int>(16 * 64)};
  launch(load("lanes"), "lane_moves", {{1, 1, 1}, {64, 1, 1}}, p);
  const auto v = [&](int i) { return in[static_cast<size_t>(i)]; };
  const int lanes = is_cdna() ? 64 : 32;
  for (int t = 0; t < 64; ++t) {
    const int row = t & ~15, at = t & 15, wave = t / lanes * lanes, l = t % lanes;
    const auto got = [&](int k) { return p.out[k * 64 + t]; };
    EXPECT_EQ(got(0), v((t & ~3) + 3 - (t & 3))) << t;
    EXPECT_EQ(got(1), at >= 1 ? v(t - 1) : 0) << t;
    EXPECT_EQ(got(2), at + 3 <= 15 ? v(t + 3) : 0) << t;
    EXPECT_EQ(got(3), v(row + (at + 11) % 16)) << t;
    EXPECT_EQ(got(4), v(row + 15 - at)) << t;
    EXPECT_EQ(got(5), v((t & ~7) + 7 - (t & 7))) << t;
    const bool written = (0x5 >> (l / 16) & 1) && (0x9 >> (l / 4 % 4) & 1) && at >= 2;
    EXPECT_EQ(got(6), written ? v(t - 2) : -7) << t;
    EXPECT_EQ(got(7), v(t ^ 1)) << t;
    // Every lane of a wave pushes to lane 7 t % 32, of the first half of a wave64 too.
    int pushed = 0;
    for (int s = 0; s < lanes; ++s)
      if ((wave + s) * 7 % 32 == l) pushed = v(wave + s);
    EXPECT_EQ(got(8), pushed) << t;
    EXPECT_EQ(got(9), v(wave + (t * 5 + 3) % lanes)) << t;
    EXPECT_EQ(got(10), v(wave + 13)) << t;
    EXPECT_EQ(got(11), v(wave) + 1) << t;
    EXPECT_EQ(got(12), v((t & ~3) + (t + 2) % 4)) << t;
    int scan = 0;
    for (int i = row; i <= t; ++i) scan += v(i);
    EXPECT_EQ(got(13), scan) << t;
    if (is_cdna()) {
      int before = 0;
      for (int i = row - 16; i < row; ++i) before += i >= 0 ? v(i) : 0;
      EXPECT_EQ(got(14), t / 16 % 2 == 1 ? before : 0) << t;
      EXPECT_EQ(got(15), t >= 32 ? v(31) : 0) << t;
    } else {
      EXPECT_EQ(got(14), v((row ^ 16) + at)) << t;
      // Lane i of a row takes nibble i of {0x01234567, 0x89abcdef}: 15, 14, ... 0.
      EXPECT_EQ(got(15), v(row + 15 - at)) << t;
    }
  }
}

TEST_P(LaneKernels, BallotsOfPartOfTheLanes) {
  std::vector<int> in(64);
  for (int i = 0; i < 64; ++i) in[static_cast<size_t>(i)] = i * 7 % 64;
  struct {
    const int* in;
    uint64_t* out;
  } p{upload(in), poisoned<uint64_t>(128)};
  launch(load("lanes"), "ballots", {{1, 1, 1}, {64, 1, 1}}, p);
  const int lanes = is_cdna() ? 64 : 32;
  for (int t = 0; t < 64; ++t) {
    const int wave = t / lanes * lanes;
    uint64_t odd = 0;
    int first = -1;
    for (int s = wave; s < wave + lanes; ++s) {
      const int v = in[static_cast<size_t>(s)];
      if (v % 3 != 0 && v % 2) odd |= uint64_t{1} << (s - wave);
      if (v % 3 != 0 && v > 40 && first < 0) first = v;
    }
    const int v = in[static_cast<size_t>(t)];
    EXPECT_EQ(p.out[t], v % 3 != 0 ? odd : 0xa5a5a5a5a5a5a5a5ull) << t;
    const uint64_t want =
        static_cast<uint64_t>(first) << 32 | static_cast<uint32_t>(__builtin_popcountll(odd));
    EXPECT_EQ(p.out[64 + t], v % 3 != 0 && v > 40 ? want : 0xa5a5a5a5a5a5a5a5ull) << t;
  }
}

TEST_P(LaneKernels, TransposeThroughLds) {
  const uint32_t n = 77, tiles = 3;
  const auto in = random_floats(n * n, -1, 1, 5);
  struct {
    const float* in;
    float* out;
    int n;
  } p{upload(in), poisoned<float>(n * n), n};
  launch(load("lanes"), "transpose", {{tiles, tiles, 1}, {32, 8, 1}}, p);
  for (size_t y = 0; y < n; ++y)
    for (size_t x = 0; x < n; ++x) ASSERT_EQ(p.out[x * n + y], in[y * n + x]) << x << " " << y;
}

TEST_P(LaneKernels, FaultsNameKernelInstructionLaneAndAddress) {
  const CodeObject code = load("lanes");
  struct {
    float* data;
    int n, mode;
  } p{upload(std::vector<float>(64, 1.0f)), 64, 0};
  const auto message = [&](int mode) -> std::string {
    p.mode = mode;
    try {
      launch(code, "faulty", {{1, 1, 1}, {64, 1, 1}}, p);
    } catch (const KernelFault& fault) {
      return fault.what();
    }
    return "no fault";
  };
  EXPECT_EQ(message(0), "no fault");
  const std::string one_past = message(1);
  EXPECT_NE(one_past.find("kernel faulty, `global_store"), std::string::npos) << one_past;
  EXPECT_NE(one_past.find(is_cdna() ? "lane 63: 4 bytes at" : "lane 31: 4 bytes at"), std::string::npos)
      << one_past;
  EXPECT_NE(one_past.find("4 bytes after the end of a buffer of 256"), std::string::npos) << one_past;
  const std::string far = message(2);
  EXPECT_NE(far.find("which no buffer holds"), std::string::npos) << far;
  const std::string lds = message(3);
  EXPECT_NE(lds.find("of an LDS of 256 bytes"), std::string::npos) << lds;
  EXPECT_NE(message(4).find("trap"), std::string::npos) << message(4);
}

TEST_P(LaneKernels, CheckFindsRacesAndUnwrittenLds) {
  const CodeObject code = load("lanes");
  gpu.options().check = true;
  struct {
    const float* in;
    float* out;
    int n, mode;
  } p{upload(random_floats(4096, -1, 1, 6)), poisoned<float>(128), 128, 0};
  const auto message = [&](int mode) -> std::string {
    p.mode = mode;
    try {
      launch(code, "planted", {{1, 1, 1}, {128, 1, 1}}, p);
    } catch (const KernelFault& fault) {
      return fault.what();
    }
    return "no fault";
  };
  EXPECT_EQ(message(0), "no fault");
  EXPECT_EQ(p.out[5], p.in[122] * 2);
  const std::string race = message(1);
  // Which side of the race shows depends on the order in which waves run: the reader may come first.
  EXPECT_TRUE(race.find("wrote since the last barrier") != std::string::npos ||
              race.find("which nothing has written") != std::string::npos)
      << race;
  EXPECT_NE(message(2).find("of LDS, which nothing has written"), std::string::npos) << message(2);
  const std::string early = message(3);
  EXPECT_TRUE(early.find("another wave read since the last barrier") != std::string::npos ||
              early.find("wrote since the last barrier") != std::string::npos)
      << early;
  // The kernels that are right stay right.
  struct {
    const float* x;
    float* y;
    int rows, cols;
  } rows{p.in, poisoned<float>(4000), 4, 1000};
  EXPECT_NO_THROW(launch(code, "softmax", {{4, 1, 1}, {128, 1, 1}}, rows));
}

TEST_P(LaneKernels, CountShowsWhatDoesNotCoalesce) {
  const CodeObject code = load("lanes");
  gpu.options().count = true;
  struct {
    const float* in;
    float* out;
    int n, mode;
  } p{upload(random_floats(4096, -1, 1, 7)), poisoned<float>(128), 128, 0};
  const auto lines = [&](int mode) {
    p.mode = mode;
    const Counters counters = launch(code, "planted", {{1, 1, 1}, {128, 1, 1}}, p);
    uint64_t loads = 0;
    for (size_t i = 0; i < counters.memory.size(); ++i)
      if (code.program().texts[code.program().code[i].text].starts_with("global_load"))
        loads += counters.memory[i].lines128;
    EXPECT_GT(counters.by_class[static_cast<size_t>(Class::kLds)], 0u);
    uint64_t all = 0;
    for (const uint64_t n : counters.by_class) all += n;
    EXPECT_EQ(all, counters.instructions);
    return loads;
  };
  EXPECT_EQ(lines(0), 4u);    // 128 floats
  EXPECT_EQ(lines(4), 128u);  // a line for each
}

TEST_P(LaneKernels, LaunchesThatNoGpuTakesAreRefused) {
  const CodeObject code = load("lanes");
  struct {
    float* data;
    int n, mode;
  } p{upload(std::vector<float>(64, 1.0f)), 64, 0};
  EXPECT_THROW(launch(code, "no_such_kernel", {{1, 1, 1}, {64, 1, 1}}, p), UsageError);
  EXPECT_THROW(launch(code, "faulty", {{1, 1, 1}, {2048, 1, 1}}, p), UsageError);
  EXPECT_THROW(launch(code, "faulty", {{0, 1, 1}, {64, 1, 1}}, p), UsageError);
  EXPECT_THROW(launch(code, "faulty", {{1, 1, 1}, {64, 1, 1}, 1 << 20}, p), UsageError);
  EXPECT_THROW(gpu.launch(code, "faulty", {{1, 1, 1}, {64, 1, 1}}, std::as_bytes(std::span(&p.mode, 1))),
               UsageError);
}

}  // namespace
}  // namespace rocm_sd::emu
