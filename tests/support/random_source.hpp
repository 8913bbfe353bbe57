// A source of made-up parameters: seeded random values, scaled so that activations keep their size.
#pragma once

#include <cmath>
#include <map>
#include <random>
#include <set>
#include <string>

#include "base/dtype.hpp"
#include "models/parameters.hpp"

namespace rocm_sd::testing_support {

class RandomSource : public ParameterSource {
 public:
  std::string title() const override { return "random source"; }
  bool has(const std::string& name) const override { return !absent.contains(name); }
  void read(const std::string& name, const Shape& shape, DType dtype, void* dst) const override {
    const auto other = shapes.find(name);
    require(other == shapes.end() || other->second == shape, name, ": expected ", shape, ", the file has ",
            other == shapes.end() ? shape : other->second);
    read_names.insert(name);
    // Norm gains near 1, biases small, matrices with unit gain over their fan-in.
    const bool vector = shape.rank() == 1;
    const bool gain = vector && name.ends_with("weight");
    const double fan_in = vector ? 1 : static_cast<double>(shape.numel()) / static_cast<double>(shape[0]);
    std::mt19937_64 random(std::hash<std::string>()(name));
    std::normal_distribution<float> normal(gain ? 1.0f : 0.0f,
                                           vector ? 0.1f : static_cast<float>(1 / std::sqrt(fan_in)));
    std::vector<float> values(static_cast<size_t>(shape.numel()));
    for (float& value : values) value = normal(random);
    convert_elements(values.data(), DType::kF32, dst, dtype, shape.numel());
  }
  void ignore(const std::string& name) const override { ignored.insert(name); }

  std::set<std::string> absent;         // names that the file lacks
  std::map<std::string, Shape> shapes;  // names that have another shape there
  mutable std::set<std::string> read_names, ignored;
};

}  // namespace rocm_sd::testing_support
