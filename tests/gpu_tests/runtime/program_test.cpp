// A Program on a GPU: captured, recorded as one graph of the device, replayed, profiled.
#include "base/error.hpp"
#include "gpu_tests/gpu_test.hpp"
#include "runtime/exec.hpp"
#include "runtime/probe.hpp"

namespace rocm_sd {
namespace {

constexpr int64_t kCount = 1000;

// y += 3 x, by way of a temporary; `waits` makes a launch that no graph can hold.
struct Forward {
  Tensor x, y;
  int launches = 0;
  bool waits = false;
  int additions = 1;  // of the temporary to y

  void axpy(Exec& ex, const Tensor& from, const Tensor& to, float scale) {
    const GpuKernel* kernel = test_gpu().find_kernel("probe_axpy");
    const ProbeParams params{from.as<float>(), to.as<float>(), scale, static_cast<int32_t>(kCount), 0};
    ex.launch({"axpy", "probe", 2.0 * kCount, 12.0 * kCount}, [this, kernel, params] {
      ++launches;
      if (waits) test_gpu().synchronize();
      test_gpu().launch(*kernel, {.x = (kCount + 255) / 256}, 256, 0, &params, sizeof(params));
    });
  }
  void operator()(Exec& ex) {
    const Tensor temporary = ex.alloc_like(x);
    void* data = temporary.data();
    const size_t bytes = temporary.bytes();
    ex.launch({"zero", "probe"}, [this, data, bytes] {
      ++launches;
      test_gpu().fill_zero(data, bytes);
    });
    axpy(ex, x, temporary, 3);
    for (int i = 0; i < additions; ++i) axpy(ex, temporary, y, 1);
  }
};

class GpuProgram : public testing::Test {
 protected:
  GpuProgram() {
    const std::vector<float> zeros(kCount, 0), ones(kCount, 1);
    forward.x = tensor_from(test_gpu(), {kCount}, ones.data());
    forward.y = tensor_from(test_gpu(), {kCount}, zeros.data());
  }
  void expect_y(float value) {
    EXPECT_EQ(to_floats(test_gpu(), forward.y), std::vector<float>(kCount, value));
  }

  Arena arena{test_gpu()};
  Forward forward;
  Program program{"probe", arena, [this](Exec& ex) { forward(ex); }};
};

TEST_F(GpuProgram, ReplaysAsOneGraph) {
  program.plan();
  EXPECT_EQ(forward.launches, 0);
  program.run();  // launches
  expect_y(3);
  EXPECT_EQ(forward.launches, 3);
  for (int round = 2; round <= 4; ++round) {
    program.run();
    expect_y(3.0f * static_cast<float>(round));
  }
  EXPECT_EQ(forward.launches, 6) << "recorded once, then replayed by the device";
}

// More launches than the first part of a long graph has: all run, in their order, once for each replay.
TEST_F(GpuProgram, ReplaysALongGraphInParts) {
  forward.additions = 500;
  for (int round = 1; round <= 4; ++round) {
    program.run();
    expect_y(1500.0f * static_cast<float>(round));
  }
  EXPECT_EQ(forward.launches, 2 * 502);
}

TEST_F(GpuProgram, RecordsAgainWhereTheArenaMoved) {
  program.run();
  program.run();
  arena.reserve(1 << 20);
  program.run();
  program.run();
  expect_y(12);
}

TEST_F(GpuProgram, GoesOnWithoutAGraph) {
  forward.waits = true;
  program.run();
  program.run();
  program.run();
  expect_y(9);
}

TEST_F(GpuProgram, ProfilesByEvents) {
  Profiler profiler;
  program.run(&profiler);
  program.run(&profiler);
  expect_y(6);
  const std::string table = profiler.table();
  EXPECT_NE(table.find("axpy"), std::string::npos) << table;
  EXPECT_NE(table.find("zero"), std::string::npos) << table;
}

TEST_F(GpuProgram, StopsWhenCancelled) {
  program.run();
  bool stop = false;
  const CancelCheck cancel = [&] { return stop; };
  program.run(nullptr, &cancel);
  stop = true;
  EXPECT_THROW(program.run(nullptr, &cancel), CancelledError);
  expect_y(6);
}

TEST_F(GpuProgram, EagerLaunchesAreProfiledToo) {
  Profiler profiler;
  Exec ex(arena);
  ex.profiler = &profiler;
  forward(ex);
  expect_y(3);
  EXPECT_NE(profiler.table().find("axpy"), std::string::npos);
}

}  // namespace
}  // namespace rocm_sd
