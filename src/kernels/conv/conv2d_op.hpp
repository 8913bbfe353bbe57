// The convolution's description: its text, operands, counts and exact result.
#pragma once

#include "kernels/op.hpp"

namespace rocm_sd {

// x [batch,height,width,channels], weight [out_channels, channels + second_channels, filter_h, filter_w].
struct ConvSpec {
  DType dtype = DType::kF32;
  int64_t batch = 0, height = 1, width = 1, channels = 1, second_channels = 0, out_channels = 1;
  int64_t filter_h = 1, filter_w = 1;
  int stride = 1, pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;
  std::optional<DType> weight, result;  // where they are not dtype; result: f32
  bool upsample2x = false, bias = false, shift = false, residual = false;
  Activation act = Activation::kNone;
  int64_t scales = 0;         // parts of the pixels with a scale of channels each; 0: none
  bool shared_scale = false;  // with one factor for all channels
  bool slopes = false;        // for values below zero, of each channel

  static constexpr const char* kOp = "conv2d";
  static constexpr const char* kExample = "1x9x7x32+16->8 3x3 s1 p1,1,1,1 f32 bias shift residual silu";
  static void text(auto& p, auto& t) {
    // A convolution in 8 bits says so of itself, and is not measured alone.
    static constexpr DType kWeights[] = {DType::kF16, DType::kBF16};
    t.extent(p.batch).word("x").extent(p.height, 1).word("x").extent(p.width, 1).word("x");
    t.extent(p.channels, 1).optional_extent("+", p.second_channels).word("->").extent(p.out_channels, 1);
    t.word(" ").extent(p.filter_h, 1).word("x").extent(p.filter_w, 1).word(" s").extent(p.stride, 1);
    t.word(" p").extent(p.pad_top).word(",").extent(p.pad_left).word(",");
    t.extent(p.pad_bottom).word(",").extent(p.pad_right).word(" ").type(p.dtype);
    t.optional_type(" by ", p.weight, kWeights);
    t.check(!p.weight || *p.weight == p.dtype || *p.weight == DType::kBF16 || p.dtype == DType::kF32,
            "a filter of another type than bf16, or f16 under f32, is not measured alone");
    t.optional_type("->", p.result, kOnlyF32);
    t.flag(" upsample2x", p.upsample2x).flag(" bias", p.bias).flag(" shift", p.shift);
    t.flag(" residual", p.residual).activation(p.act);
    t.optional_extent(" scale ", p.scales).flag(" shared", p.shared_scale).flag(" slopes", p.slopes);
    t.check(!p.slopes || p.act == Activation::kNone, "slopes take the place of an activation");
    t.check(p.out_h() >= 1 && p.out_w() >= 1, "the filter is larger than the padded image");
    t.check(p.scales ? p.batch * p.out_h() * p.out_w() % p.scales == 0 : !p.shared_scale,
            "the pixels are so many equal parts");
  }
  int64_t out_h() const { return extent_after(height, pad_top + pad_bottom, filter_h); }
  int64_t out_w() const { return extent_after(width, pad_left + pad_right, filter_w); }
  int64_t all_channels() const { return channels + second_channels; }
  DType result_type() const { return result.value_or(dtype); }
  double flops() const;
  double bytes() const;
  double reads_per_output() const { return static_cast<double>(filter_h * filter_w * all_channels()); }
  OutputExtent extent() const;
  void check() const;
  std::vector<Operand> operands() const;
  std::vector<Result> run(Exec& ex, const Operands& in, const Weight& weight) const;
  ExactValue exact(const OperandValues& in, int64_t i) const;

 private:
  int64_t scale() const { return upsample2x ? 2 : 1; }  // of the input
  int64_t extent_after(int64_t size, int64_t pads, int64_t filter) const {
    const int64_t room = scale() * size + pads - filter;
    return room < 0 || stride < 1 ? 0 : room / stride + 1;
  }
};

}  // namespace rocm_sd
