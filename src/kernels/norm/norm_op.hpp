// The norms' descriptions: their texts, operands, counts and exact results.
#pragma once

#include "kernels/op.hpp"

namespace rocm_sd {

// x [batch,pixels,channels], beside it second [batch,pixels,second_channels] -> y of all channels.
struct GroupNormSpec {
  DType dtype = DType::kF32;
  std::optional<DType> result;  // bf16 where that is not dtype
  int64_t batch = 0, pixels = 0, channels = 1, second_channels = 0, groups = 1;
  Activation act = Activation::kNone;
  float eps = 1e-5f;  // the text does not say it

  static constexpr const char* kOp = "group_norm";
  static constexpr const char* kExample = "f32->bf16 [2,64,64+32] groups 32 silu";
  static void text(auto& p, auto& t) {
    t.type(p.dtype).optional_type("->", p.result, kOnlyBf16).word(" [").extent(p.batch).word(",");
    t.extent(p.pixels).word(",").extent(p.channels, 1).optional_extent("+", p.second_channels);
    t.word("] groups ").extent(p.groups, 1).activation(p.act);
    t.check(p.all_channels() % p.groups == 0, "the channels are no multiple of the groups");
  }
  int64_t all_channels() const { return channels + second_channels; }
  DType result_type() const { return result.value_or(dtype); }
  double elements() const { return static_cast<double>(batch * pixels * all_channels()); }
  double flops() const { return 8 * elements(); }
  double bytes() const {
    return elements() * static_cast<double>(dtype_size(dtype) + dtype_size(result_type()));
  }
  double reads_per_output() const {
    return 2 * static_cast<double>(pixels) * static_cast<double>(all_channels() / groups);
  }
  void check() const;
  std::vector<Operand> operands() const;
  std::vector<Result> run(Exec& ex, const Operands& in, const Weight& weight) const;
  ExactValue exact(const OperandValues& in, int64_t i) const;
};

// x [rows,channels]; under residual the norm of sum = x + residual, which is a result of its own.
struct LayerNormSpec {
  DType dtype = DType::kF32;
  std::optional<DType> result;  // bf16 where that is not dtype
  int64_t rows = 0, channels = 1;
  bool residual = false;
  float eps = 1e-5f;  // the text does not say it

  static constexpr const char* kOp = "layer_norm";
  static constexpr const char* kExample = "f32->bf16 [12,320]";
  static void text(auto& p, auto& t) {
    t.type(p.dtype).optional_type("->", p.result, kOnlyBf16).word(" [").extent(p.rows).word(",");
    t.extent(p.channels, 1).word("]").flag(" residual", p.residual);
  }
  DType result_type() const { return result.value_or(dtype); }
  double flops() const { return 8 * static_cast<double>(rows * channels); }
  double bytes() const {
    return static_cast<double>(rows * channels) *
           static_cast<double>(dtype_size(dtype) * (residual ? 3 : 1) + dtype_size(result_type()));
  }
  double reads_per_output() const { return 2 * static_cast<double>(channels); }
  void check() const;
  std::vector<Operand> operands() const;
  std::vector<Result> run(Exec& ex, const Operands& in, const Weight& weight) const;
  ExactValue exact(const OperandValues& in, int64_t i) const;
};

}  // namespace rocm_sd
