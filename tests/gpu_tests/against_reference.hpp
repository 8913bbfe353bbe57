// Compares an op on the GPU under test with its double-precision reference on the host.
#pragma once

#include <functional>
#include <string>

#include "gpu_tests/poisoned_gpu.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/select.hpp"
#include "support/tensor_testing.hpp"

namespace rocm_sd {

// Gives a host tensor's values on the device at hand.
using Place = std::function<Tensor(const Tensor&)>;
using PlacedOp = std::function<Tensor(Exec&, const Place&)>;

// op's result on the host under the implementation "ref" of `list`.
inline std::vector<double> on_host(const std::string& list, const PlacedOp& op) {
  testing_support::TestExec host;
  const ForcedImpl forced(list, "ref");
  return testing_support::to_doubles(op(host.ex, [](const Tensor& x) { return x; }));
}

// op's result on the GPU under "gpu", over poisoned memory.
inline std::vector<double> on_gpu(const std::string& list, const PlacedOp& op) {
  GpuTestExec gpu;
  const ForcedImpl forced(list, "gpu");
  const std::vector<float> values =
      to_floats(gpu.device, op(gpu.ex, [&](const Tensor& x) { return gpu.to_gpu(x); }));
  return {values.begin(), values.end()};
}

inline void expect_like_reference(const std::string& list, const PlacedOp& op, double tolerance,
                                  const std::string& what = "") {
  testing_support::expect_near(on_gpu(list, op), on_host(list, op), tolerance, what);
}

// A planned forward run live, then as a graph that is replayed, gives the bits of an eager run each time.
inline void expect_same_bits_as_graph(const PlacedOp& op, const std::string& what = "") {
  GpuTestExec gpu;
  std::vector<Tensor> inputs;  // kept, for a graph reads them again
  size_t next = 0;
  const Place place = [&](const Tensor& x) {
    if (next == inputs.size()) inputs.push_back(gpu.to_gpu(x));
    return inputs[next++];
  };
  const auto bytes_of = [&](const Tensor& y) {
    std::vector<char> bytes(y.bytes());
    gpu.device.copy_to_host(bytes.data(), y.data(), bytes.size());
    return bytes;
  };
  const Tensor eager = op(gpu.ex, place);
  const Tensor kept = make_tensor(gpu.device, eager.shape(), eager.dtype());
  Arena arena(gpu.device);
  Program program("op", arena, [&](Exec& ex) {
    next = 0;
    copy_into(ex, op(ex, place), kept);
  });
  for (int round = 0; round < 3; ++round) {
    gpu.device.fill_zero(kept.data(), kept.bytes());
    program.run();
    gpu.device.synchronize();
    EXPECT_EQ(bytes_of(kept), bytes_of(eager)) << what << " round " << round;
  }
}

}  // namespace rocm_sd
