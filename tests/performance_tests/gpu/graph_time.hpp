// The measure of the GPU benchmarks: the time of one launch in a graph that is replayed, and operands for it.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "runtime/arena.hpp"
#include "runtime/exec.hpp"
#include "runtime/gpu.hpp"
#include "runtime/tensor.hpp"

namespace rocm_sd::bench {

constexpr int kReplays = 7;  // of which the median is taken

// Values in [mean - spread, mean + spread) that repeat after a prime number of elements: no two rows are
// alike.
inline Tensor random_on(Device& device, const Shape& shape, DType dtype, uint32_t seed, float spread = 2,
                        float mean = 0) {
  std::mt19937 random(seed);
  std::vector<float> period(1'000'003);
  for (float& v : period) v = (static_cast<float>(random() >> 8) * 0x1p-23f - 1.0f) * spread + mean;
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = period[i % period.size()];
  return tensor_from(device, shape, values.data(), dtype);
}

// Microseconds of one of the `launches` that a replay makes: the median of kReplays.
inline double median_us(GpuDevice& device, int launches, const std::function<void()>& replay) {
  replay();
  const auto begin = device.make_event(), end = device.make_event();
  std::vector<double> times;
  for (int i = 0; i < kReplays; ++i) {
    begin->record();
    replay();
    end->record();
    times.push_back(end->milliseconds_since(*begin) * 1000 / launches);
  }
  std::nth_element(times.begin(), times.begin() + kReplays / 2, times.end());
  return times[kReplays / 2];
}

// The same of once(0), once(1), ... in a graph; NaN where none can be made. They run once before, because
// what they need (loaded kernels, packed weights) cannot be made while they are recorded.
inline double median_us(GpuDevice& device, int launches, const std::function<void(int)>& once) {
  for (int i = 0; i < launches; ++i) once(i);
  device.synchronize();
  device.begin_capture();
  for (int i = 0; i < launches; ++i) once(i);
  const std::unique_ptr<GpuGraph> graph = device.end_capture();
  if (!graph) return std::nan("");
  return median_us(device, launches, [&] { graph->replay(); });
}

// The same of calls of an op, whose tensors lie where a plan of one call puts them: nothing may be allocated
// while launches are recorded.
inline double median_us(GpuDevice& device, int launches, const std::function<void(Exec&, int)>& op) {
  Arena arena(device);
  arena.begin_plan();
  {
    Exec planning(arena, Mode::kPlan);
    op(planning, 0);
  }
  const ArenaPlan plan = arena.end_plan();
  Exec ex(arena);
  return median_us(device, launches, [&](int i) {
    arena.begin_replay(plan);
    op(ex, i);
    arena.end_replay();
  });
}

}  // namespace rocm_sd::bench
