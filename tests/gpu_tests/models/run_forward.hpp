// A forward on the host, or on a GPU planned, recorded and replayed; and how far two results are apart.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "kernels/elementwise/elementwise.hpp"
#include "runtime/exec.hpp"
#include "support/tensor_testing.hpp"

namespace rocm_sd::testing_support {

// 20 log10(rms of the signal / rms of the error); not finite values give minus infinity.
inline double signal_to_noise(const std::vector<float>& got, const std::vector<float>& want) {
  EXPECT_EQ(got.size(), want.size());
  double signal = 0, noise = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double w = want[i], d = static_cast<double>(got[i]) - w;
    signal += w * w;
    noise += d * d;
  }
  return std::isfinite(noise) ? 10 * std::log10(signal / noise) : -HUGE_VAL;
}

// A forward on a device: upload(x) places host values there.
using Upload = std::function<Tensor(const Tensor&, DType)>;
using Forward = std::function<Tensor(Exec&, const Upload&)>;

// Eagerly on the host; on a GPU planned, run, recorded and replayed as well, `replays` times, which must give
// the same bits.
inline std::vector<float> run_on(Device& device, const Forward& forward, int replays = 3) {
  std::vector<Tensor> inputs;  // a graph reads them again
  size_t next = 0;
  const Upload upload_once = [&](const Tensor& x, DType dtype) {
    if (next == inputs.size()) {
      if (x.dtype() == DType::kI32) {
        inputs.push_back(make_tensor(device, x.shape(), DType::kI32));
        device.copy_to_device(inputs.back().data(), x.data(), x.bytes());
      } else {
        inputs.push_back(tensor_from(device, x.shape(), to_floats(host_device(), x).data(), dtype));
      }
    }
    return inputs[next++];
  };
  Arena arena(device);
  Tensor kept;
  {
    Exec ex(arena);
    next = 0;
    const Tensor eager = forward(ex, upload_once);
    kept = make_tensor(device, eager.shape(), DType::kF32);
    copy_into(ex, eager, kept);
  }
  const std::vector<float> values = to_floats(device, kept);
  if (device.kind() == DeviceKind::kHost || replays == 0) return values;
  Program program("model", arena, [&](Exec& ex) {
    next = 0;
    copy_into(ex, forward(ex, upload_once), kept);
  });
  for (int round = 0; round < replays; ++round) {
    program.run();
    EXPECT_EQ(to_floats(device, kept), values) << "round " << round;
  }
  return values;
}

}  // namespace rocm_sd::testing_support
