// What exact results are computed with: sums in double precision that know what rounding may do to them.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/dtype.hpp"
#include "kernels/epilogue.hpp"
#include "kernels/op_problem.hpp"

namespace rocm_sd::exact {

inline constexpr double kFloatUnit = 0x1p-24;  // half a unit in the last place
inline constexpr double kSumUnits = 64;  // of a float sum's magnitude: Winograd's transforms lose about 20

inline double unit_of(DType type) {
  return type == DType::kF32 ? kFloatUnit : type == DType::kF16 ? 0x1p-11 : 0x1p-8;
}

inline double gelu(double v) { return 0.5 * v * std::erfc(-v / std::numbers::sqrt2); }

inline double activated(double v, Activation act) {
  switch (act) {
    case Activation::kNone: return v;
    case Activation::kSilu: return v / (1 + std::exp(-v));
    case Activation::kGelu: return gelu(v);
    case Activation::kQuickGelu: return v / (1 + std::exp(-1.702 * v));
    case Activation::kRelu: return std::max(v, 0.0);
  }
  return v;
}

// A sum and the magnitude of what was added.
struct Sum {
  double value = 0, magnitude = 0;
  void add(double term) {
    value += term;
    magnitude += std::fabs(term);
  }
};

// Stored as dtype, after an activation; none is steeper than 1.2.
inline ExactValue finished(const Sum& sum, Activation act, DType dtype) {
  const double value = activated(sum.value, act);
  return {value, 2 * unit_of(dtype) * std::fabs(value) + 1.2 * kSumUnits * kFloatUnit * sum.magnitude + 1e-7};
}

}  // namespace rocm_sd::exact
