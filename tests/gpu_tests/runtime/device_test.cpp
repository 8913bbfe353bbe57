// A GPU as the runtime uses it: memory, copies, launches, graphs, events, and what goes wrong.
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "base/error.hpp"
#include "gpu_tests/gpu_test.hpp"
#include "runtime/arena.hpp"
#include "runtime/exec.hpp"
#include "runtime/probe.hpp"
#include "runtime/side_copies.hpp"

namespace rocm_sd {
namespace {

std::vector<float> random_values(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(count);
  for (float& v : values) v = uniform(random);
  return values;
}

Tensor on_gpu(const std::vector<float>& values) {
  return tensor_from(test_gpu(), {static_cast<int64_t>(values.size())}, values.data());
}

void axpy(const Tensor& x, const Tensor& y, float scale) {
  const GpuKernel* kernel = test_gpu().find_kernel("probe_axpy");
  ASSERT_NE(kernel, nullptr);
  const auto count = static_cast<int32_t>(x.numel());
  const ProbeParams params{
      .x = x.as<float>(), .y = y.as<float>(), .scale = scale, .count = count, .rounds = 0};
  test_gpu().launch(*kernel, {.x = static_cast<uint32_t>((count + 255) / 256)}, 256, 0, &params,
                    sizeof(params));
}

TEST(GpuDevice, DescribesItself) {
  const GpuTraits& traits = test_gpu().traits();
  EXPECT_TRUE(gpu_family(traits.arch).has_value()) << traits.arch;
  EXPECT_TRUE(traits.lanes == 32 || traits.lanes == 64);
  EXPECT_GT(traits.compute_units, 0);
  EXPECT_GE(traits.lds_per_group, 32u << 10);
  const MemoryInfo memory = test_gpu().memory();
  EXPECT_GT(memory.total, 0u);
  EXPECT_LE(memory.free, memory.total);
  EXPECT_NE(test_gpu().name().find(traits.arch), std::string::npos);
}

// Several threads at once, more pieces than pinned blocks, odd sizes; and a launch that follows at once sees
// them.
TEST(GpuDevice, CopiesMadeByThreadsArriveBeforeWhatFollows) {
  SideCopies* gpu = side_copies(test_gpu());
  ASSERT_NE(gpu, nullptr);
  constexpr int kThreads = 6, kPieces = 8;
  constexpr size_t kCount = (kMadeBytes - 512) / sizeof(float);
  const std::vector<float> zeros(kThreads * kPieces * kCount);
  const std::vector<float> source = random_values(zeros.size(), 11);
  const Tensor x = on_gpu(zeros), y = on_gpu(zeros);
  test_gpu().find_kernel("probe_axpy");
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kPieces; ++i) {
        const size_t begin = static_cast<size_t>(t * kPieces + i) * kCount;
        gpu->copy_made(x.as<float>() + begin, kCount * sizeof(float),
                       [&](char* dst) { std::memcpy(dst, source.data() + begin, kCount * sizeof(float)); });
      }
    });
  for (std::thread& thread : threads) thread.join();
  axpy(x, y, 2);
  const std::vector<float> back = to_floats(test_gpu(), y);
  size_t wrong = 0;
  for (size_t i = 0; i < back.size(); ++i) wrong += back[i] != 2 * source[i];
  EXPECT_EQ(wrong, 0u);
  EXPECT_THROW(gpu->copy_made(x.data(), kMadeBytes + 1, [](char*) {}), InternalError);
}

TEST(GpuDevice, CopiesGoThereAndBack) {
  // Around the size of a staging block: below, one more, and several with a tail.
  for (const size_t bytes : {size_t{1}, size_t{4097}, (size_t{8} << 20) + 1, (size_t{37} << 20) + 13}) {
    std::vector<uint32_t> words(bytes / 4 + 1), back(words.size(), 0xdeadbeef);
    std::mt19937 random(static_cast<unsigned>(bytes));
    for (uint32_t& w : words) w = random();
    void* a = test_gpu().allocate(bytes);
    void* b = test_gpu().allocate(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 64, 0u);
    test_gpu().copy_to_device(a, words.data(), bytes);
    test_gpu().copy_on_device(b, a, bytes);
    test_gpu().fill_zero(a, bytes);
    test_gpu().copy_to_host(back.data(), b, bytes);
    EXPECT_EQ(std::memcmp(words.data(), back.data(), bytes), 0) << bytes;
    test_gpu().copy_to_host(back.data(), a, bytes);
    EXPECT_TRUE(std::all_of(reinterpret_cast<char*>(back.data()),
                            reinterpret_cast<char*>(back.data()) + bytes, [](char c) { return c == 0; }))
        << bytes;
    test_gpu().free(a, bytes);
    test_gpu().free(b, bytes);
  }
}

TEST(GpuDevice, CountsWhatItHandsOut) {
  const uint64_t before = test_gpu().allocated();
  void* small = test_gpu().allocate(1000);
  void* large = test_gpu().allocate(3 << 20);
  EXPECT_GE(test_gpu().allocated(), before + 1000 + (3 << 20));
  test_gpu().free(small, 1000);
  test_gpu().free(large, 3 << 20);
  EXPECT_EQ(test_gpu().allocated(), before);
}

TEST(GpuDevice, RunsAKernel) {
  const auto x = random_values(1000, 1), y = random_values(1000, 2);
  const Tensor gx = on_gpu(x), gy = on_gpu(y);
  axpy(gx, gy, 0.5f);
  const auto got = to_floats(test_gpu(), gy);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(got[i], y[i] + 0.5f * x[i], 2e-7f) << i;
}

TEST(GpuDevice, RunsAKernelWithLdsOfTheLaunch) {
  const auto x = random_values(150, 3);
  const Tensor gx = on_gpu(x), gy = on_gpu(std::vector<float>(150, -9));
  const GpuKernel* kernel = test_gpu().find_kernel("probe_reverse");
  ASSERT_NE(kernel, nullptr);
  const ProbeParams params{.x = gx.as<float>(), .y = gy.as<float>(), .scale = 0, .count = 150, .rounds = 0};
  // The second time with all that the device has: above 48 KB CUDA wants to be asked first.
  for (const size_t lds : {size_t{256}, test_gpu().traits().lds_per_group}) {
    test_gpu().fill_zero(gy.data(), gy.bytes());
    test_gpu().launch(*kernel, {.x = 3}, 64, static_cast<uint32_t>(lds), &params, sizeof(params));
    const auto got = to_floats(test_gpu(), gy);
    for (int i = 0; i < 150; ++i) {
      const int first = i / 64 * 64, here = std::min(64, 150 - first);
      EXPECT_EQ(got[static_cast<size_t>(i)], x[static_cast<size_t>(first + here - 1 - (i - first))]) << i;
    }
  }
}

// A later read has what was there when it was asked for, whatever was launched since, and whoever does not
// get it leaves nothing behind.
TEST(GpuDevice, ReadsLaterWhatIsThereNow) {
  const Tensor x = on_gpu({1, 2, 3}), y = on_gpu({10, 20, 30});
  std::vector<std::unique_ptr<PendingRead>> reads;
  for (int round = 0; round < 5; ++round) {
    reads.push_back(test_gpu().read_later(y.data(), 3 * sizeof(float)));
    axpy(x, y, 1);
  }
  reads.erase(reads.begin() + 1);
  for (const int round : {4, 0, 3, 2}) {
    float got[3] = {};
    reads[static_cast<size_t>(round > 0 ? round - 1 : 0)]->get(got);
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(got[i], static_cast<float>((10 + round) * (i + 1))) << round << ", " << i;
  }
  reads.clear();
  float again[3] = {};
  test_gpu().read_later(y.data(), sizeof(again))->get(again);
  EXPECT_EQ(again[2], 45);
}

TEST(GpuDevice, ReplaysAGraph) {
  const auto x = random_values(777, 4), y = random_values(777, 5);
  const Tensor gx = on_gpu(x), gy = on_gpu(y);
  axpy(gx, gy, 0);  // loads the kernel: not while capturing
  test_gpu().begin_capture();
  axpy(gx, gy, 1);
  axpy(gx, gy, 2);
  const auto graph = test_gpu().end_capture();
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(to_floats(test_gpu(), gy), y) << "recording must not run";
  for (int round = 1; round <= 3; ++round) {
    graph->replay();
    const auto got = to_floats(test_gpu(), gy);
    for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(got[i], y[i] + 3.0f * round * x[i], 4e-6f);
  }
}

TEST(GpuDevice, RefusesWhatACaptureCannotHold) {
  const Tensor x = on_gpu({1, 2, 3});
  Tensor freed = on_gpu({4, 5, 6});
  const uint64_t allocated = test_gpu().allocated();
  test_gpu().begin_capture();
  float back[3];
  EXPECT_THROW(test_gpu().allocate(2 << 20), InternalError);
  freed = Tensor();  // is given back when the capture has ended
  EXPECT_THROW(test_gpu().copy_to_host(back, x.data(), 12), InternalError);
  EXPECT_THROW(test_gpu().synchronize(), InternalError);
  axpy(x, x, 1);
  EXPECT_NE(test_gpu().end_capture(), nullptr);
  EXPECT_LT(test_gpu().allocated(), allocated);
  EXPECT_EQ(to_floats(test_gpu(), x), (std::vector<float>{1, 2, 3}));
}

TEST(GpuDevice, EventsMeasure) {
  const Tensor x = on_gpu({1}), y = on_gpu({0});
  const GpuKernel* kernel = test_gpu().find_kernel("probe_spin");
  ASSERT_NE(kernel, nullptr);
  const auto time = [&](int32_t rounds) {
    const ProbeParams params{
        .x = x.as<float>(), .y = y.as<float>(), .scale = 0, .count = 1, .rounds = rounds};
    const auto begin = test_gpu().make_event(), end = test_gpu().make_event();
    begin->record();
    test_gpu().launch(*kernel, {}, 64, 0, &params, sizeof(params));
    end->record();
    return end->milliseconds_since(*begin);
  };
  const int32_t few = 100, many = test_gpu_is_emulated() ? 10000 : 300000;
  time(few);
  const double brief = time(few), lasting = time(many);
  EXPECT_GE(brief, 0);
  EXPECT_GT(lasting, brief);  // thousands of times the work
  EXPECT_EQ(to_floats(test_gpu(), y)[0], static_cast<float>(2 * few + many));
}

TEST(GpuDevice, SaysWhatItCannotAllocate) {
  const MemoryInfo memory = test_gpu().memory();
  const uint64_t before = test_gpu().allocated();
  try {
    test_gpu().allocate(memory.total + (memory.total / 2));
    FAIL() << "more than the device has was allocated";
  } catch (const OutOfMemoryError& error) {
    EXPECT_NE(std::string(error.what()).find(std::to_string(memory.total)), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(test_gpu().allocated(), before);
  const auto x = random_values(100, 6);  // and goes on
  EXPECT_EQ(to_floats(test_gpu(), on_gpu(x)), x);
}

TEST(GpuDevice, KnowsWhatItHasNot) { EXPECT_EQ(test_gpu().find_kernel("no_such_kernel"), nullptr); }

TEST(GpuDevice, RefusesParametersOfAnotherSize) {
  const GpuKernel* kernel = test_gpu().find_kernel("probe_axpy");
  ASSERT_NE(kernel, nullptr);
  const char params[sizeof(ProbeParams) + 8] = {};
  EXPECT_THROW(test_gpu().launch(*kernel, {}, 256, 0, params, sizeof(params)), InternalError);
  EXPECT_THROW(test_gpu().launch(*kernel, {.x = 0}, 256, 0, params, sizeof(ProbeParams)), InternalError);
}

}  // namespace
}  // namespace rocm_sd
