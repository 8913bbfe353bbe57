// Helpers of kernel tests: seeded random tensors, poisoned outputs, comparison with a double-precision
// reference.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/error.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd::testing_support {

// Normal values with the given standard deviation, rounded to dtype.
inline Tensor random_tensor(const Shape& shape, DType dtype, uint64_t seed, float stddev = 1.0f) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0f, stddev);
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (float& v : values) v = normal(random);
  return tensor_from(host_device(), shape, values.data(), dtype);
}

inline std::vector<double> to_doubles(const Tensor& tensor) {
  const std::vector<float> values = to_floats(host_device(), tensor);
  return {values.begin(), values.end()};
}

// Unit roundoff of the type: half a unit in the last place of 1.
inline double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::kF32: return 0x1p-24;
    case DType::kF16: return 0x1p-11;
    case DType::kBF16: return 0x1p-8;
    case DType::kF64: return 0x1p-53;
    default: return 0;
  }
}

// Error that a sum of `length` products may have, relative to the root mean square of the result: the
// rounding of the stored result, plus float accumulation, whose errors grow like sqrt(length) (Higham and
// Mary, 2019); 8 deviations wide.
inline double reduction_tolerance(DType dtype, int64_t length) {
  return 2 * unit_roundoff(dtype) + 8 * unit_roundoff(DType::kF32) * std::sqrt(static_cast<double>(length));
}

// Every element finite where the reference is, and |got - want| <= tolerance * (|want| + rms(want)).
inline void expect_near(const std::vector<double>& got, const std::vector<double>& want, double tolerance,
                        const std::string& what = "") {
  ASSERT_EQ(got.size(), want.size()) << what;
  double square = 0, worst = 0;
  for (const double w : want) square += w * w;
  const double rms = want.empty() ? 0 : std::sqrt(square / static_cast<double>(want.size()));
  size_t worst_at = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double error =
        std::fabs(got[i] - want[i]) / (std::fabs(want[i]) + rms + std::numeric_limits<double>::min());
    if (!(error <= worst)) {  // also catches NaN
      worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
      worst_at = i;
      if (std::isinf(worst)) break;
    }
  }
  EXPECT_LE(worst, tolerance) << what << " at element " << worst_at << ": got " << got[worst_at] << ", want "
                              << want[worst_at];
}

inline void expect_tensor_near(const Tensor& got, const std::vector<double>& want, double tolerance,
                               const std::string& what = "") {
  expect_near(to_doubles(got), want, tolerance, what);
}

// An arena whose fresh tensors are full of NaN, so that an element nobody wrote is seen. Of another kind than
// the host it stands for that kind where its memory is not touched.
class PoisonedDevice final : public Device {
 public:
  explicit PoisonedDevice(DeviceKind kind = DeviceKind::kHost) : kind_(kind) {}
  DeviceKind kind() const override { return kind_; }
  std::string name() const override { return "poisoned host"; }
  MemoryInfo memory() const override { return host_device().memory(); }
  void* allocate(size_t bytes) override {
    void* data = host_device().allocate(bytes);
    std::fill_n(static_cast<unsigned char*>(data), bytes, 0xff);  // NaN in f32, f16, bf16 and fp8
    return data;
  }
  void free(void* data, size_t bytes) noexcept override { host_device().free(data, bytes); }
  void copy_to_device(void* dst, const void* src, size_t bytes) override {
    host_device().copy_to_device(dst, src, bytes);
  }
  void copy_to_host(void* dst, const void* src, size_t bytes) override {
    host_device().copy_to_host(dst, src, bytes);
  }
  void copy_on_device(void* dst, const void* src, size_t bytes) override {
    host_device().copy_on_device(dst, src, bytes);
  }
  void synchronize() override {}
  DType preferred_dtype() const override { return DType::kF32; }

 private:
  DeviceKind kind_;
};

// An eager Exec over poisoned memory.
struct TestExec {
  PoisonedDevice device;
  Arena arena{device};
  Exec ex{arena};
};

}  // namespace rocm_sd::testing_support
