// Linear's description: its text, operands, counts and exact result.
#pragma once

#include "kernels/op.hpp"

namespace rocm_sd {

// x [rows,in], weight [columns,in] -> y [rows,out()].
struct LinearSpec {
  DType dtype = DType::kF32;
  int64_t rows = 0, columns = 1, in = 1;
  std::optional<DType> weight, result;  // where they are not dtype; result: f32
  bool products = false;                // may multiply a weight of 8 bits as it is
  bool bias = false, residual = false, gated = false;
  Activation act = Activation::kNone;
  int64_t scales = 0;         // parts of the rows with a scale of channels each; 0: none
  bool shared_scale = false;  // with one factor for all channels
  int64_t rank = 0;           // of a low-rank term; 0: none
  int64_t x_stride = 0;       // of a row; 0: in. The text does not say it

  static constexpr const char* kOp = "linear";
  static constexpr const char* kExample = "128x320x64 bf16->f32 bias residual silu";
  static void text(auto& p, auto& t) {
    static constexpr DType kWeights[] = {DType::kI8, DType::kF8E4M3, DType::kF16, DType::kBF16};
    t.extent(p.rows).word("x").extent(p.columns, 1).word("x").extent(p.in, 1).word(" ").type(p.dtype);
    t.optional_type(" by ", p.weight, kWeights);
    if (p.eight_bit_weight()) t.flag(" products", p.products);
    t.optional_type("->", p.result, kOnlyF32);
    t.flag(" bias", p.bias).flag(" residual", p.residual).flag(" geglu", p.gated).activation(p.act);
    t.optional_extent(" scale ", p.scales).flag(" shared", p.shared_scale).optional_extent(" term ", p.rank);
    t.check(!p.gated || (p.columns % 2 == 0 && !p.residual && p.act == Activation::kNone && !p.scales),
            "geglu takes an even number of columns, no residual, no activation and no scale");
    t.check(p.scales ? p.rows % p.scales == 0 : !p.shared_scale, "the rows are so many equal parts");
  }
  int64_t out() const { return gated ? columns / 2 : columns; }
  DType result_type() const { return result.value_or(dtype); }
  std::optional<DType> eight_bit_weight() const;
  double flops() const;
  double bytes() const;
  double reads_per_output() const { return static_cast<double>(gated ? 2 * in : in); }
  OutputExtent extent() const { return {1, static_cast<double>(rows), static_cast<double>(columns)}; }
  void check() const;
  std::vector<Operand> operands() const;
  std::vector<Result> run(Exec& ex, const Operands& in, const Weight& weight) const;
  ExactValue exact(const OperandValues& values, int64_t i) const;
};

}  // namespace rocm_sd
