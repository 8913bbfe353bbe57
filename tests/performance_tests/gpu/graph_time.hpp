// The measure of the GPU benchmarks: the time of one launch in a graph that is replayed, and operands for it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "measurement/energy.hpp"
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

// What a launch takes when it is repeated for long enough that the card's clocks settle, which under load
// they do at what its power limit allows.
struct Sustained {
  double us = 0;
  double joules = 0, watts = 0;  // NaN without a counter
};

// counter: of this device, or null. It ticks slowly: energy is that between two of its ticks.
inline Sustained sustained(GpuDevice& device, int launches, const std::function<void()>& replay,
                           measurement::EnergyCounter* counter, double seconds = 1) {
  using Clock = std::chrono::steady_clock;
  constexpr int kBurst = 8;
  constexpr double kSettling = 0.25;
  const auto begin = device.make_event(), end = device.make_event();
  std::vector<double> times;
  const auto burst = [&] {
    begin->record();
    for (int i = 0; i < kBurst; ++i) replay();
    end->record();
    times.push_back(end->milliseconds_since(*begin) * 1000 / (kBurst * launches));
  };
  const auto since = [](Clock::time_point t) {
    return std::chrono::duration<double>(Clock::now() - t).count();
  };
  for (const auto start = Clock::now(); since(start) < kSettling;) burst();
  const auto joules = [&] { return counter ? counter->joules() : std::nan(""); };
  const auto to_next_tick = [&] {
    const double now = joules();
    while (counter && joules() == now) burst();
  };
  to_next_tick();
  const double before = joules();
  const auto start = Clock::now();
  times.clear();
  while (since(start) < seconds) burst();
  to_next_tick();
  const double used = joules() - before, runs = static_cast<double>(times.size()) * kBurst * launches;
  const double watts = used / since(start);
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return {times[times.size() / 2], used / runs, watts};
}

// The same of once(0), once(1), ... in a graph; NaN where none can be made. They run once before, because
// what they need (loaded kernels, packed weights) cannot be made while they are recorded.
inline std::unique_ptr<GpuGraph> graph_of(GpuDevice& device, int launches,
                                          const std::function<void(int)>& once) {
  for (int i = 0; i < launches; ++i) once(i);
  device.synchronize();
  device.begin_capture();
  for (int i = 0; i < launches; ++i) once(i);
  return device.end_capture();
}
inline double median_us(GpuDevice& device, int launches, const std::function<void(int)>& once) {
  const std::unique_ptr<GpuGraph> graph = graph_of(device, launches, once);
  return graph ? median_us(device, launches, [&] { graph->replay(); }) : std::nan("");
}

// The same of calls of an op, whose tensors lie where a plan of one call puts them: nothing may be allocated
// while launches are recorded.
template <class Measure>
auto with_plan(GpuDevice& device, const std::function<void(Exec&, int)>& op, const Measure& measure) {
  Arena arena(device);
  arena.begin_plan();
  {
    Exec planning(arena, Mode::kPlan);
    op(planning, 0);
  }
  const ArenaPlan plan = arena.end_plan();
  Exec ex(arena);
  return measure([&](int i) {
    arena.begin_replay(plan);
    op(ex, i);
    arena.end_replay();
  });
}
inline double median_us(GpuDevice& device, int launches, const std::function<void(Exec&, int)>& op) {
  return with_plan(device, op,
                   [&](const std::function<void(int)>& once) { return median_us(device, launches, once); });
}
inline Sustained sustained(GpuDevice& device, int launches, const std::function<void(Exec&, int)>& op,
                           measurement::EnergyCounter* counter) {
  return with_plan(device, op, [&](const std::function<void(int)>& once) -> Sustained {
    const std::unique_ptr<GpuGraph> graph = graph_of(device, launches, once);
    if (!graph) return {std::nan(""), std::nan(""), std::nan("")};
    return sustained(device, launches, [&] { graph->replay(); }, counter, 0.5);
  });
}

}  // namespace rocm_sd::bench
