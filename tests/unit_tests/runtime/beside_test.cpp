// Launches beside others, on a card whose streams run as late or as early as the waits allow.
#include "runtime/beside.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "runtime/probe.hpp"
#include "support/fake_hip/hip_test.hpp"

namespace rocm_sd {
namespace {

constexpr int64_t kCount = 1024;

class HipBeside : public HipTest, public testing::WithParamInterface<bool> {
 protected:
  HipBeside() { call<decltype(fake_hip_eager)>("fake_hip_eager")(GetParam()); }
  ~HipBeside() override { call<decltype(fake_hip_eager)>("fake_hip_eager")(false); }
};
INSTANTIATE_TEST_SUITE_P(Streams, HipBeside, testing::Values(false, true));

// y += scale x
void add(Exec& ex, GpuDevice& gpu, const Tensor& x, const Tensor& y, float scale) {
  const GpuKernel* kernel = gpu.find_kernel("probe_axpy");
  const ProbeParams params{x.as<float>(), y.as<float>(), scale, static_cast<int32_t>(kCount), 0};
  ex.launch({"axpy"}, [&gpu, kernel, params] {
    gpu.launch(*kernel, {.x = kCount / 256}, 256, 0, &params, sizeof(params));
  });
}

TEST_P(HipBeside, TheyMeetBeforeAndAfter) {
  const auto gpu = open();
  const auto filled = [&](float value) {
    const std::vector<float> values(kCount, value);
    return tensor_from(*gpu, {kCount}, values.data());
  };
  const Tensor one = filled(1), x = filled(0), side = filled(0), y = filled(0);
  Arena arena(*gpu);
  // What a graph begins with, its first part of 96 launches, would end between a fork and its join.
  constexpr int kForks = 40, kMeanwhile = 7;
  Program program("forks", arena, [&](Exec& ex) {
    for (int i = 1; i <= kForks; ++i) {
      add(ex, *gpu, one, x, 1);  // the side reads it behind the fork, and before it changes again
      Beside beside(ex);
      beside.run([&] {
        add(ex, *gpu, x, side, 1);
        add(ex, *gpu, x, side, 1);
      });
      for (int k = 0; k < kMeanwhile; ++k) add(ex, *gpu, one, y, 1);
      beside.join();
      add(ex, *gpu, side, y, 1);
    }
  });
  double on_x = 0, on_side = 0, want = 0;
  for (int run = 0; run < 4; ++run) {  // run, recorded, replayed; then in order
    Profiler profiler;
    program.run(run == 3 ? &profiler : nullptr);
    for (int i = 1; i <= kForks; ++i) {
      on_x += 1;
      on_side += 2 * on_x;
      want += kMeanwhile + on_side;
    }
    EXPECT_EQ(to_floats(*gpu, x)[0], on_x) << run;
    EXPECT_EQ(to_floats(*gpu, side)[kCount - 1], on_side) << run;
    EXPECT_EQ(to_floats(*gpu, y)[kCount - 1], static_cast<float>(want)) << run;
  }
  EXPECT_GE(calls("hipGraphLaunch"), 4u);  // two runs in two parts
  EXPECT_EQ(calls("hipStreamCreateWithPriority"), 1u);
}

// Without a join of its own the launches behind it still wait.
TEST_P(HipBeside, AnErrorAmongThemJoinsThem) {
  const auto gpu = open();
  const std::vector<float> ones(kCount, 1.0f);
  const Tensor one = tensor_from(*gpu, {kCount}, ones.data()), y = tensor_from(*gpu, {kCount}, ones.data());
  Arena arena(*gpu);
  Exec ex(arena);
  try {
    Beside beside(ex);
    beside.run([&] {
      add(ex, *gpu, one, y, 1);
      throw UsageError("among them");
    });
  } catch (const UsageError&) {
  }
  EXPECT_FALSE(ex.is_beside());
  add(ex, *gpu, one, y, 1);
  EXPECT_EQ(to_floats(*gpu, y)[0], 3);
}

}  // namespace
}  // namespace rocm_sd
