// GEGLU's description: value * gelu(gate) of x [rows, 2 * channels], values first.
#pragma once

#include "kernels/elementwise/elementwise.hpp"
#include "kernels/exact.hpp"
#include "kernels/op.hpp"

namespace rocm_sd {

struct GegluSpec {
  DType dtype = DType::kF32;
  int64_t rows = 0, columns = 2;  // of x

  static constexpr const char* kOp = "geglu";
  static constexpr const char* kExample = "f16 [4096,2560]";
  static void text(auto& p, auto& t) {
    t.type(p.dtype).word(" [").extent(p.rows).word(",").extent(p.columns, 2).word("]");
    t.check(p.columns % 2 == 0, "the columns are a value and a gate each");
  }
  int64_t channels() const { return columns / 2; }
  double flops() const { return static_cast<double>(rows * channels()); }
  double bytes() const { return 3 * flops() * static_cast<double>(dtype_size(dtype)); }
  void check() const {
    require_extent(kOp, "rows", rows, 0);
    require_extent(kOp, "channels", channels(), 1);
  }
  std::vector<Operand> operands() const {
    return {dense(Role::kX, {rows, columns}, dtype), dense(Role::kY, {rows, channels()}, dtype, true)};
  }
  std::vector<Result> run(Exec& ex, const Operands& in, const Weight&) const {
    return {{Role::kY, 0, geglu(ex, in.at(Role::kX))}};
  }
  ExactValue exact(const OperandValues& in, int64_t i) const {
    const int64_t at = i / channels() * columns + i % channels();
    exact::Sum sum;
    sum.add(in.value(Role::kX, at) * exact::gelu(in.value(Role::kX, at + channels())));
    return exact::finished(sum, Activation::kNone, dtype);
  }
};

}  // namespace rocm_sd
