// Weights and inputs of whole models for benchmarks: random, of a size that keeps every value finite.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "models/parameters.hpp"
#include "runtime/tensor.hpp"

namespace rocm_sd::bench {

// Uniform values whose deviation is a power of two near that of unit gain over the fan-in, cut from pools
// that are made once: 2.6 billion of them take as long as copying them.
class PoolSource final : public ParameterSource {
 public:
  std::string title() const override { return "random weights"; }
  bool has(const std::string&) const override { return true; }
  void ignore(const std::string&) const override {}
  void read(const std::string& name, const Shape& shape, DType dtype, void* dst) const override {
    read_part(name, shape, 0, shape.numel(), dtype, dst);
  }
  void read_part(const std::string& name, const Shape& shape, int64_t begin, int64_t count, DType dtype,
                 void* dst) const override {
    const bool vector = shape.rank() == 1, gain = vector && name.ends_with("weight");
    const double fan_in = vector ? 300 : static_cast<double>(shape.numel()) / static_cast<double>(shape[0]);
    // Uniform on -s..s has the deviation s / sqrt(3); 0.6 keeps sums over residuals in range.
    const int exponent = gain ? 99 : static_cast<int>(std::lround(std::log2(0.6 * std::sqrt(3 / fan_in))));
    const std::vector<char>& pool = pool_of(exponent, dtype);
    const size_t size = dtype_size(dtype);
    size_t at = (std::hash<std::string>()(name) + static_cast<size_t>(begin)) % kPool;
    char* to = static_cast<char*>(dst);
    for (auto left = static_cast<size_t>(count); left > 0;) {
      const size_t piece = std::min(left, kPool - at);
      std::memcpy(to, pool.data() + at * size, piece * size);
      to += piece * size;
      left -= piece;
      at = 0;
    }
  }

 private:
  static constexpr size_t kPool = 4'000'037;
  const std::vector<char>& pool_of(int exponent, DType dtype) const {
    std::vector<char>& pool = pools_[{exponent, dtype}];
    if (!pool.empty()) return pool;
    std::vector<float> values(kPool);
    uint64_t state = 0x9e3779b97f4a7c15u + static_cast<uint64_t>(exponent);
    for (float& v : values) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const double uniform = static_cast<double>(state >> 40) * 0x1p-23 - 1;
      v = static_cast<float>(exponent == 99 ? 1 + 0.1 * uniform : std::ldexp(uniform, exponent));
    }
    pool.resize(kPool * dtype_size(dtype));
    convert_elements(values.data(), DType::kF32, pool.data(), dtype, static_cast<int64_t>(kPool));
    return pool;
  }
  mutable std::map<std::pair<int, DType>, std::vector<char>> pools_;
};

// Values about -1..1 that do not repeat.
inline Tensor waves(Device& device, const Shape& shape, DType dtype) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] =
        static_cast<float>(std::sin(0.7 * static_cast<double>(i) + 0.01 * std::sqrt(static_cast<double>(i))));
  return tensor_from(device, shape, values.data(), dtype);
}

}  // namespace rocm_sd::bench
