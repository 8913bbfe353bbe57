// Launches beside others on a real GPU: run, recorded, replayed and profiled, they meet where they should.
#include "runtime/beside.hpp"

#include "gpu_tests/gpu_test.hpp"
#include "runtime/probe.hpp"

namespace rocm_sd {
namespace {

TEST(GpuBeside, LaunchesMeetBeforeAndAfter) {
  GpuDevice& gpu = test_gpu();
  const int64_t count = test_gpu_is_emulated() ? 1000 : int64_t{1} << 22;
  const auto filled = [&](float value) {
    const std::vector<float> values(static_cast<size_t>(count), value);
    return tensor_from(gpu, {count}, values.data());
  };
  const Tensor one = filled(1), x = filled(0), side = filled(0), y = filled(0);
  const auto add = [&](Exec& ex, const Tensor& from, const Tensor& to) {
    const GpuKernel* kernel = gpu.find_kernel("probe_axpy");
    const ProbeParams params{from.as<float>(), to.as<float>(), 1, static_cast<int32_t>(count), 0};
    ex.launch({"axpy"}, [&gpu, kernel, params, count] {
      gpu.launch(*kernel, {.x = static_cast<uint32_t>((count + 255) / 256)}, 256, 0, &params, sizeof(params));
    });
  };
  Arena arena(gpu);
  const int forks = test_gpu_is_emulated() ? 3 : 60;
  Program program("forks", arena, [&](Exec& ex) {
    for (int i = 0; i < forks; ++i) {
      add(ex, one, x);  // the side reads it behind this, and before it changes again
      Beside beside(ex);
      beside.run([&] {
        add(ex, x, side);
        add(ex, x, side);
      });
      for (int k = 0; k < 5; ++k) add(ex, one, y);
      beside.join();
      add(ex, side, y);
    }
  });
  double on_x = 0, on_side = 0, on_y = 0;
  for (int run = 0; run < 4; ++run) {
    Profiler profiler;
    program.run(run == 3 ? &profiler : nullptr);
    for (int i = 0; i < forks; ++i) on_x += 1, on_side += 2 * on_x, on_y += 5 + on_side;
    for (const auto& [tensor, want] : {std::pair(x, on_x), std::pair(side, on_side), std::pair(y, on_y)}) {
      const std::vector<float> got = to_floats(gpu, tensor);
      EXPECT_EQ(got, std::vector<float>(got.size(), static_cast<float>(want))) << "run " << run;
    }
  }
}

}  // namespace
}  // namespace rocm_sd
