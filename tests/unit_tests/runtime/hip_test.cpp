// The hip device on a stand-in for libamdhip64 that checks every call (tests/support/fake_hip).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <tuple>

#include "base/error.hpp"
#include "runtime/devices.hpp"
#include "runtime/exec.hpp"
#include "runtime/gpu_driver.hpp"
#include "runtime/memory_budget.hpp"
#include "runtime/probe.hpp"
#include "runtime/trace_range.hpp"
#include "runtime/weight_stream.hpp"
#include "support/code_objects.hpp"
#include "support/fake_hip/hip_test.hpp"

namespace rocm_sd {
namespace {

using testing::HasSubstr;

// What `code` throws of type E, as text.
template <class E, class Code>
std::string thrown(const Code& code) {
  try {
    code();
  } catch (const E& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST_F(HipTest, IsUsedWhereItsPlaceOnTheBusIsNotTold) {
  fail("hipDeviceGetPCIBusId", 1);
  EXPECT_EQ(open()->traits().pci, "");
  fail("hipDeviceGetPCIBusId", 0);
}

TEST_F(HipTest, LeavesNothingBehind) {
  {
    const auto gpu = open();
    EXPECT_EQ(gpu->kind(), DeviceKind::kHip);
    EXPECT_EQ(gpu->traits().arch, "gfx1100");
    EXPECT_EQ(gpu->traits().family, GpuFamily::kRdna3);
    EXPECT_EQ(gpu->traits().lanes, 32);
    EXPECT_EQ(gpu->traits().compute_units, 48);
    EXPECT_EQ(gpu->traits().pci, "0000:03:00.0");
    std::vector<float> ones(1000, 1);
    const Tensor x = tensor_from(*gpu, {1000}, ones.data()), y = tensor_from(*gpu, {1000}, ones.data());
    axpy(*gpu, x, y, 2);
    gpu->begin_capture();
    axpy(*gpu, x, y, 1);
    const auto graph = gpu->end_capture();
    ASSERT_NE(graph, nullptr);
    graph->replay();
    const auto event = gpu->make_event(), later = gpu->make_event();
    event->record();
    graph->replay();
    later->record();
    EXPECT_GE(later->milliseconds_since(*event), 0);
    EXPECT_EQ(to_floats(*gpu, y), std::vector<float>(1000, 5));
    EXPECT_GT(live(), 0u);
  }
  EXPECT_EQ(live(), 0u);
}

// 20 MiB go through two staging blocks of 8: each must be waited for before it is filled again.
TEST_F(HipTest, CopiesThroughStagingInOrder) {
  const auto gpu = open();
  std::vector<uint32_t> words(5 << 20), back(words.size());
  std::iota(words.begin(), words.end(), 1u);
  const size_t bytes = words.size() * 4;
  for (const bool pinned : {true, false}) {
    if (!pinned) fail("hipHostMalloc", 2);  // no pinned memory: slower, and right
    const auto device = open();
    void* data = device->allocate(bytes);
    device->copy_to_device(data, words.data(), bytes);
    std::fill(back.begin(), back.end(), 0u);
    device->copy_to_host(back.data(), data, bytes);
    device->free(data, bytes);
    EXPECT_EQ(back, words) << pinned;
  }
  fail("hipHostMalloc", 0);
}

// What is handed out and what is kept share the budget; the largest kept blocks go first.
TEST_F(HipTest, KeepsFreedBlocksWithinABudget) {
  const auto gpu = open();
  MemoryBudget* const budget = memory_budget(*gpu);
  ASSERT_NE(budget, nullptr);
  budget->set_budget(8 << 20);
  const auto freed_by = [&](const std::function<void()>& work) {
    const size_t before = calls("hipFree");
    work();
    return calls("hipFree") - before;
  };
  void *three = gpu->allocate(3 << 20), *two = gpu->allocate(2 << 20), *four = nullptr;
  EXPECT_EQ(freed_by([&] { gpu->free(three, 3 << 20), gpu->free(two, 2 << 20); }), 0u) << "5 of 8 MiB kept";
  EXPECT_EQ(freed_by([&] { four = gpu->allocate(4 << 20); }), 1u) << "the 3 MiB";
  EXPECT_EQ(freed_by([&] { two = gpu->allocate(2 << 20), gpu->free(two, 2 << 20); }), 0u) << "it was kept";
  EXPECT_EQ(budget->peak_allocated(), uint64_t{6} << 20);
  budget->reset_peak();
  EXPECT_EQ(budget->peak_allocated(), uint64_t{4} << 20);
  EXPECT_EQ(freed_by([&] { budget->set_budget(5 << 20); }), 1u);
  void* eight = gpu->allocate(8 << 20);  // more than the budget: what is kept alone obeys it
  EXPECT_EQ(freed_by([&] { gpu->free(four, 4 << 20), gpu->free(eight, 8 << 20); }), 2u);
}

TEST_F(HipTest, GivesKeptBlocksBackBeforeItIsOutOfMemory) {
  set_card("gfx1100", 64 << 20);
  const auto gpu = open();
  std::vector<void*> blocks;
  for (int i = 0; i < 40; ++i) blocks.push_back(gpu->allocate(1 << 20));
  for (void* block : blocks) gpu->free(block, 1 << 20);
  EXPECT_EQ(gpu->allocated(), 0u);
  EXPECT_EQ(gpu->memory().free, uint64_t{64} << 20);  // kept blocks count as free
  void* large = gpu->allocate(60 << 20);
  const std::string error = thrown<OutOfMemoryError>([&] { gpu->allocate(8 << 20); });
  EXPECT_THAT(error, HasSubstr("hip:0: cannot allocate 8388608 bytes"));
  EXPECT_THAT(error, HasSubstr("4194304 of 67108864"));
  gpu->free(large, 60 << 20);
}

TEST_F(HipTest, KeepsFreedBlocksForTheNextAskerOfTheSize) {
  set_card("gfx1100", uint64_t{1} << 30);
  const auto gpu = open();
  // Sizes are rounded up to 512 bytes; one byte above 32 MiB is given back to the driver at once.
  for (const auto& [bytes, next, kept] : {std::tuple<size_t, size_t, bool>{1000, 1000, true},
                                          {1000, 1024, true},
                                          {1000, 1025, false},
                                          {32 << 20, 32 << 20, true},
                                          {(32 << 20) + 1, (32 << 20) + 1, false}}) {
    void* first = gpu->allocate(bytes);
    gpu->free(first, bytes);
    const size_t asked = calls("hipMalloc");
    void* second = gpu->allocate(next);
    EXPECT_EQ(calls("hipMalloc"), asked + (kept ? 0 : 1)) << bytes << ", then " << next;
    if (kept) {
      EXPECT_EQ(second, first) << bytes << ", then " << next;
    }
    gpu->free(second, next);
  }
  // A block of 32 MiB and small ones are kept from above: of nine of 31 MiB, seven more fit into 256 MiB.
  std::vector<void*> blocks(9);
  for (void*& block : blocks) block = gpu->allocate(31 << 20);
  const size_t freed = calls("hipFree");
  for (void* block : blocks) gpu->free(block, 31 << 20);
  EXPECT_EQ(calls("hipFree"), freed + 2);
}

TEST_F(HipTest, NamesAnArchitectureWithoutKernels) {
  set_card("gfx1030", 1 << 30);
  const auto gpu = open();  // memory works, kernels do not
  const std::string error = thrown<DeviceError>([&] { gpu->find_kernel("probe_axpy"); });
  EXPECT_THAT(error, HasSubstr("hip:0 (Stand-in Radeon) is gfx1030"));
  EXPECT_THAT(error, HasSubstr("there are archives for gfx1100"));
  EXPECT_EQ(device_named("auto").kind(), DeviceKind::kHost);
  const auto listings = list_devices();
  ASSERT_GE(listings.size(), 2u);
  EXPECT_EQ(listings[1].name, "hip:0");
  EXPECT_FALSE(listings[1].usable);
  EXPECT_THAT(listings[1].detail, HasSubstr("no kernels were built for it"));
}

TEST_F(HipTest, ReadsTheArchitectureWithoutItsFeatures) {
  set_card("gfx942:sramecc+:xnack-", 1 << 30);
  const auto gpu = open();
  EXPECT_EQ(gpu->traits().arch, "gfx942");
  EXPECT_EQ(gpu->traits().family, GpuFamily::kCdna3);
  EXPECT_EQ(gpu->traits().lanes, 64);
}

TEST_F(HipTest, IsWhatAutoTakes) {
  EXPECT_EQ(&device_named("auto"), &device_named("hip"));
  EXPECT_EQ(&device_named("hip:0"), &device_named("hip"));
  EXPECT_THAT(thrown<DeviceError>([] { device_named("hip:1"); }), HasSubstr("reports 1"));
  for (const char* name : {"", "gpu", "hip:", "hip:x", "hip:-1", "hip:1 ", "hip:99999", "cpu:0"})
    EXPECT_THAT(thrown<UsageError>([&] { device_named(name); }), HasSubstr("expected cpu, auto, hip"))
        << name;
}

TEST_F(HipTest, NamesTheCallThatALostDeviceFails) {
  const auto gpu = open();
  fail("hipStreamSynchronize", 999);
  EXPECT_THAT(thrown<DeviceError>([&] { gpu->synchronize(); }),
              HasSubstr("hip:0 (Stand-in Radeon): hipStreamSynchronize: hipErrorUnknown (999)"));
  fail("hipStreamSynchronize", 0);
  fail("hipModuleLaunchKernel", 999);
  const Tensor x = make_tensor(*gpu, {10}, DType::kF32);
  EXPECT_THAT(thrown<DeviceError>([&] { axpy(*gpu, x, x, 1); }),
              HasSubstr("kernel probe_axpy, 1x1x1 groups of 256"));
}

TEST_F(HipTest, RefusesMistakenLaunches) {
  const auto gpu = open();
  const GpuKernel* kernel = gpu->find_kernel("nothing");
  ASSERT_NE(kernel, nullptr);
  EXPECT_EQ(gpu->find_kernel("nothing"), kernel);
  EXPECT_EQ(calls("hipModuleLoadData"), 1u);
  EXPECT_EQ(gpu->find_kernel("no_such_kernel"), nullptr);
  const char params[40] = {};
  gpu->launch(*kernel, {}, 64, 0, params, 32);
  EXPECT_THAT(thrown<InternalError>([&] { gpu->launch(*kernel, {}, 64, 0, params, 40); }),
              HasSubstr("takes 32"));
  EXPECT_THAT(thrown<InternalError>([&] { gpu->launch(*kernel, {.y = 0}, 64, 0, params, 32); }),
              HasSubstr("empty"));
  EXPECT_THAT(thrown<InternalError>([&] { gpu->launch(*kernel, {}, 64, 1 << 20, params, 32); }),
              HasSubstr("LDS"));
}

TEST_F(HipTest, RunsOnWhereNoGraphIsMade) {
  const auto gpu = open();
  std::vector<float> ones(100, 1), zeros(100, 0);
  const Tensor x = tensor_from(*gpu, {100}, ones.data()), y = tensor_from(*gpu, {100}, zeros.data());
  Arena arena(*gpu);
  Program program("add", arena, [&](Exec& ex) {
    ex.launch({"axpy", "probe"}, [&gpu, x = &x, y = &y] { axpy(*gpu, *x, *y, 1); });
  });
  fail("hipGraphInstantiateWithFlags", 801);
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) program.run();
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("no graph could be made of the launches"));
  EXPECT_EQ(calls("hipGraphInstantiateWithFlags"), 1u) << "it is not asked again";
  EXPECT_EQ(to_floats(*gpu, y), std::vector<float>(100, 3));
  EXPECT_EQ(calls("hipGraphLaunch"), 0u);
}

TEST_F(HipTest, MarksRangesForProfilers) {
  setenv("ROCM_SD_RANGES", "1", 1);
  setenv("ROCM_SD_ROCTX_LIBRARY", ROCM_SD_FAKE_HIP_6, 1);
  const auto gpu = open();
  Arena arena(*gpu);
  Program program("nothing", arena, [&](Exec& ex) { ex.launch({"nop", "probe"}, [] {}); });
  program.run();
  program.run();
  EXPECT_EQ(calls("roctxRangePushA"), 3u);  // the first run and its launch; then the graph as one
  EXPECT_EQ(calls("roctxRangePop"), 3u);
}

TEST_F(HipTest, MarksRangesForProfilersOfNvtx3) {
  setenv("ROCM_SD_RANGES", "1", 1);
  setenv("ROCM_SD_ROCTX_LIBRARY", "/no/such/libroctx64.so", 1);
  setenv("NVTX_INJECTION64_PATH", ROCM_SD_FAKE_HIP_6, 1);
  {
    const TraceRange outer("outer"), inner("inner");
    EXPECT_TRUE(TraceRange::enabled());
  }
  EXPECT_EQ(calls("roctxRangePushA"), 2u);
  EXPECT_EQ(calls("roctxRangePop"), 2u);
}

TEST_F(HipTest, WarnsOfAnOverriddenArchitecture) {
  setenv("HSA_OVERRIDE_GFX_VERSION", "11.0.0", 1);
  testing::internal::CaptureStderr();
  open();
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("HSA_OVERRIDE_GFX_VERSION=11.0.0"));
}

TEST_F(HipTest, RefusesADamagedArchive) {
  std::filesystem::resize_file(folder.path() / "kernels_gfx1100.rsk", 300);
  EXPECT_THAT(thrown<FormatError>([] { open(); }), HasSubstr("kernels_gfx1100.rsk"));
}

TEST_F(HipTest, RefusesAnArchiveOfAnotherTarget) {
  std::filesystem::rename(folder.path() / "kernels_gfx1100.rsk", folder.path() / "kernels_gfx1101.rsk");
  set_card("gfx1101", 1 << 30);
  EXPECT_THAT(thrown<FormatError>([] { open(); }), HasSubstr("holds code for gfx1100"));
}

// Weights that take turns in a small ring, on a card whose copies come as late or as early as the waits
// allow.
class HipStreams : public HipTest, public testing::WithParamInterface<bool> {};

TEST_P(HipStreams, HaveEachWeightThereForItsLaunchAndNotLonger) {
  call<decltype(fake_hip_eager)>("fake_hip_eager")(GetParam());
  {
    const auto gpu = open();
    static constexpr int64_t kCount = 24 << 10;  // floats of a weight: larger than what takes no turns
    Arena arena(*gpu);
    WeightStream stream(*gpu, arena);
    std::vector<Tensor> weights;
    std::vector<float> want(kCount, 0);
    for (int w = 0; w < 12; ++w) {
      const Tensor host = make_tensor(host_device(), {kCount}, DType::kF32);
      std::fill_n(host.as<float>(), kCount, static_cast<float>(1 << w));
      weights.push_back(stream.add(host, WeightStream::Kind::kTurns));
    }
    const Tensor y = tensor_from(*gpu, {kCount}, want.data());
    const int order[] = {0, 1, 2, 3, 2, 4, 5, 6, 7, 8, 9, 10, 11, 0};  // two of them twice
    for (const int w : order)
      for (float& value : want) value += static_cast<float>((w + 1) * (1 << w));
    Program program("sums", arena, [&](Exec& ex) {
      for (const int w : order) {
        WeightStream::use(streamed(weights[static_cast<size_t>(w)]));
        const GpuKernel* kernel = gpu->find_kernel("probe_axpy");
        const ProbeParams params{weights[static_cast<size_t>(w)].as<float>(), y.as<float>(),
                                 static_cast<float>(w + 1), static_cast<int32_t>(kCount), 0};
        ex.launch({"axpy"}, [&gpu, kernel, params] {
          gpu->launch(*kernel, {.x = static_cast<uint32_t>(kCount / 256)}, 256, 0, &params, sizeof(params));
        });
      }
    });
    arena.reserve(1);
    const uint64_t before = gpu->allocated();
    for (const uint64_t room : {uint64_t{0}, uint64_t{6 * kCount * 4}, uint64_t{1} << 30}) {
      stream.set_room(room);
      program.plan();
      const StreamBytes bytes = stream.bytes();
      EXPECT_EQ(bytes.all, 12 * kCount * 4u);
      EXPECT_EQ(bytes.copied, room == 0 ? 14 * kCount * 4u : bytes.copied);
      stream.enter();
      EXPECT_EQ(gpu->allocated() - before, bytes.device());
      EXPECT_LE(bytes.device(), std::max<uint64_t>(room, 3 * kCount * 4));
      // Run, captured and replayed twice: one behind the other, and after a pause.
      for (int run = 0; run < 4; ++run) {
        gpu->fill_zero(y.data(), y.bytes());
        program.run();
        if (run == 1) program.run();
        EXPECT_EQ(to_floats(*gpu, y)[kCount - 1], (run == 1 ? 2 : 1) * want[0]) << room << " " << run;
      }
      stream.leave();
      EXPECT_EQ(gpu->allocated(), before);
    }
    EXPECT_GE(calls("hipGraphLaunch"), 3u);
    EXPECT_GT(calls("hipStreamWaitEvent"), 0u);
  }
  EXPECT_EQ(live(), 0u);
  call<decltype(fake_hip_eager)>("fake_hip_eager")(false);
}
INSTANTIATE_TEST_SUITE_P(Copies, HipStreams, testing::Values(false, true));

class Rocm5Test : public HipTest {
 protected:
  Rocm5Test() : HipTest(ROCM_SD_FAKE_HIP_5) {}
};
TEST_F(Rocm5Test, ReadsItsPropertiesToo) { EXPECT_EQ(open()->traits().arch, "gfx1100"); }

TEST(NoHip, SaysWhyThereIsNone) {
  setenv("ROCM_SD_HIP_LIBRARY", "libm.so.6", 1);
  EXPECT_EQ(hip_gpus().problem, "libm.so.6 is too old: no hipInit");
  EXPECT_THAT(thrown<DeviceError>([] { device_named("hip"); }), HasSubstr("no hipInit"));
}
TEST(NoCuda, SaysWhyThereIsNone) {
  setenv("ROCM_SD_CUDA_LIBRARY", "/no/such/libcuda.so.1", 1);
  EXPECT_THAT(cuda_gpus().problem, HasSubstr("no NVIDIA driver: /no/such/libcuda.so.1"));
  EXPECT_THAT(thrown<DeviceError>([] { device_named("cuda"); }), HasSubstr("cuda:0: no NVIDIA driver"));
}

}  // namespace
}  // namespace rocm_sd
