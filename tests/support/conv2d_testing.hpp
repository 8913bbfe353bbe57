// What the tests of conv2d share: cases with all that a convolution may have, operands on a device, and the
// reference.
#pragma once

#include <cmath>
#include <optional>
#include <random>
#include <vector>

#include "base/format.hpp"
#include "kernels/conv/conv2d_gpu.hpp"
#include "kernels/select.hpp"
#include "support/tensor_testing.hpp"

namespace rocm_sd::testing_support {

// One convolution of a test.
struct ConvCase {
  Shape x;  // [N,H,W,C]
  int64_t second = 0, out = 1, filter = 3;
  int stride = 1;
  Padding pad = Padding::same(1);
  bool upsample2x = false, bias = true, shift = false, residual = false;
  Activation act = Activation::kNone;
  int splits = 0;      // 0: the default choice
  int64_t scales = 0;  // parts of the pixels with a factor for each output; below 0: with one for all
  bool slopes = false;
};

inline std::string describe(const ConvCase& c) {
  return fmt::format(
      "{}+{}->{} {}x{} s{} p{}{}{}{} up {} bias {} shift {} residual {} act {} scales {} slopes {}", c.x,
      c.second, c.out, c.filter, c.filter, c.stride, c.pad.top, c.pad.left, c.pad.bottom, c.pad.right,
      c.upsample2x, c.bias, c.shift, c.residual, activation_name(c.act), c.scales, c.slopes);
}
inline std::string describe(const ConvCase& c, const ConvChoice& choice) {
  return fmt::format("{} by {}/{}", describe(c), describe(choice.config), choice.splits);
}

inline Shape output_of(const ConvCase& c) {
  const int64_t scale = c.upsample2x ? 2 : 1;
  return {c.x[0], (scale * c.x[1] + c.pad.top + c.pad.bottom - c.filter) / c.stride + 1,
          (scale * c.x[2] + c.pad.left + c.pad.right - c.filter) / c.stride + 1, c.out};
}

// The bytes of a tensor of the host in memory of the device.
inline Tensor moved(Device& device, const Tensor& t) {
  Tensor out = make_tensor(device, t.shape(), t.dtype());
  device.copy_to_device(out.data(), t.data(), t.bytes());
  return out;
}

struct ConvOperands {
  Tensor x, second, weight, bias, shift, residual, scale, slopes;
  // result: the type of y and of the residual, by default dtype.
  ConvOperands(Device& device, const ConvCase& c, DType dtype, uint64_t seed,
               std::optional<DType> result = std::nullopt) {
    const int64_t channels = c.x[3] + c.second;
    const float deviation = 1 / std::sqrt(static_cast<float>(channels * c.filter * c.filter));
    x = moved(device, random_tensor(c.x, dtype, seed));
    if (c.second) second = moved(device, random_tensor({c.x[0], c.x[1], c.x[2], c.second}, dtype, seed + 1));
    weight = moved(device, random_tensor({c.out, channels, c.filter, c.filter}, dtype, seed + 2, deviation));
    bias = moved(device, random_tensor({c.out}, DType::kF32, seed + 3));
    // A slice of a wider table, as the time embedding's projections are: seeds 4, 5, 8, 9, ... of pieces of
    // 16 bytes, others anywhere.
    const int64_t skip = seed / 2 % 2 == 0 ? 8 : 2;
    shift = moved(device, random_tensor({c.x[0], c.out + 2 * skip}, seed % 2 ? DType::kF32 : dtype, seed + 4))
                .narrow(1, skip, c.out);
    residual = moved(device, random_tensor(output_of(c), result.value_or(dtype), seed + 5));
    if (c.scales)
      scale =
          moved(device, random_tensor({std::abs(c.scales), c.scales < 0 ? 1 : c.out}, DType::kF32, seed + 6));
    if (c.slopes) slopes = moved(device, random_tensor({c.out}, DType::kF32, seed + 7, 0.5f));
  }
  // A fresh copy on the device of the operands, so that each use lays it out anew.
  ConvWeight conv_weight(Device& device, const ConvCase& c) const {
    Tensor copy = make_tensor(device, weight.shape(), weight.dtype());
    device.copy_on_device(copy.data(), weight.data(), weight.bytes());
    ConvWeight w{Weight(copy), std::nullopt};
    if (c.bias) w.bias = bias;
    return w;
  }
  ConvArgs args(const ConvCase& c) const {
    return {.stride = c.stride,
            .pad = c.pad,
            .upsample2x = c.upsample2x,
            .second = c.second ? &second : nullptr,
            .epilogue = {.channel_shift = c.shift ? &shift : nullptr,
                         .residual = c.residual ? &residual : nullptr,
                         .act = c.act,
                         .dtype = residual.dtype(),
                         .channel_scale = c.scales ? &scale : nullptr,
                         .slopes = c.slopes ? &slopes : nullptr}};
  }
};

inline std::vector<ConvCase> conv_cases() {
  const Padding none, lower{0, 0, 1, 1};
  std::vector<ConvCase> out = {
      {{1, 1, 1, 1}, 0, 1, 1, 1, none},
      {{1, 1, 1, 3}, 0, 4, 3},
      {{2, 5, 7, 4}, 0, 32, 3},
      {{2, 8, 8, 9}, 0, 13, 3, 1, Padding::same(1), false, true, true},
      {{1, 9, 6, 8}, 0, 8, 3, 2},
      {{1, 8, 8, 16}, 0, 24, 3, 2, lower},
      {{2, 7, 5, 64}, 0, 3, 3},
      {{3, 6, 6, 40}, 24, 48, 3, 1, Padding::same(1), false, true, true, true},
      {{2, 4, 4, 64}, 32, 40, 1, 1, none, false, true, false, false, Activation::kSilu},
      {{1, 5, 4, 16}, 0, 20, 3, 1, Padding::same(1), true},
      {{2, 6, 7, 32}, 0, 33, 3, 1, Padding::same(1), true, true, true, true},
      {{1, 5, 4, 6}, 3, 20, 3, 1, Padding::same(1), true, false},
      {{1, 3, 4, 5}, 0, 7, 3, 2, Padding{2, 1, 0, 1}, true},
      {{1, 14, 14, 3}, 0, 16, 14, 14, none, false, false},
      {{2, 8, 8, 128}, 64, 72, 3, 1, Padding::same(1), false, true, true, true, Activation::kSilu, 5},
      {{2, 8, 8, 64}, 0, 4, 3, 1, Padding::same(1), false, true, false, true, Activation::kGelu, 2},
      {{1, 9, 7, 40}, 24, 13, 3, 1, Padding::same(1), false, true, true, true, Activation::kRelu, 3},
      {{1, 16, 16, 32}, 0, 160, 1, 1, none, false, true, false, true, Activation::kQuickGelu},
      {{2, 7, 9, 64}, 0, 32, 3, 1, Padding::same(1), false, false, false, false, Activation::kNone, 2, 2},
      {{3, 5, 6, 24}, 8, 33, 3, 2, Padding::same(1), false, true, true, true, Activation::kSilu, 0, 3},
      {{2, 5, 4, 64}, 0, 64, 1, 1, none, false, true, false, true, Activation::kNone, 0, -2},
      {{2, 3, 4, 40}, 0, 24, 1, 1, none, false, true, false, true, Activation::kNone, 3, -24},
      {{2, 4, 5, 64}, 0, 64, 3, 1, Padding::same(1), true, false, false, false, Activation::kNone, 0, 2},
  };
  std::mt19937 random(12);
  const auto pick = [&](int64_t most) { return 1 + static_cast<int64_t>(random() % most); };
  for (int i = 0; i < 20; ++i) {
    ConvCase c{{pick(3), pick(12), pick(12), pick(70)}};
    if (random() % 3 == 0) c.second = pick(40);
    c.out = pick(80);
    c.filter = random() % 3 == 0 ? 1 : 3;
    c.stride = static_cast<int>(pick(2));
    c.pad = {static_cast<int>(random() % 3), static_cast<int>(random() % 3), 2, 2};
    c.upsample2x = random() % 4 == 0;
    c.bias = random() % 2 == 0;
    c.shift = random() % 2 == 0;
    c.residual = random() % 2 == 0;
    c.act = static_cast<Activation>(random() % 5);
    c.splits = static_cast<int>(random() % 4);
    out.push_back(c);
  }
  return out;
}

// With slopes, which GPUs take.
inline ConvCase with_slopes(ConvCase c, int64_t scales = 0) {
  c.scales = scales;
  c.slopes = true;
  return c;
}
inline std::vector<ConvCase> slope_cases() {
  return {with_slopes({{2, 7, 9, 64}, 0, 72, 3, 1, Padding::same(1), false, true, true, true}),
          with_slopes({{1, 9, 6, 24}, 8, 33, 3, 2, Padding{0, 1, 2, 1}, false, false}, 3),
          with_slopes({{1, 5, 4, 40}, 0, 13, 1, 1, Padding{0, 0, 0, 0}, true, true, false, true}),
          with_slopes({{1, 8, 9, 96}, 0, 32, 3, 1, Padding::same(1)})};
}

// Of a result in the problem's type. Phases round the sums of their weights once more: an independent
// relative error of a roundoff at most in each product, so of as much in the root mean square of the result;
// 4 deviations wide.
inline double conv_tolerance(const ConvProblem& p) {
  const int64_t length = (p.channels() + p.second_channels()) * p.filter_h() * p.filter_w();
  const double again = conv_has_phases(p) ? 4 * unit_roundoff(p.dtype()) : 0;
  return reduction_tolerance(p.out_dtype(), length) + again;
}

// Of Winograd's kernel on GPUs, for so many channels. Roundings of products: windows twice, filters once,
// each of 25/9 of the variance of the sum (Winograd's matrices on independent values); the tolerance is as
// wide as for a direct product, which has one of them.
inline double winograd_tolerance(int64_t channels) {
  return reduction_tolerance(DType::kF16, 9 * channels) +
         4 * std::sqrt(3 * 25.0 / 9) * unit_roundoff(DType::kF16);
}

// By the double-precision reference, on the host; every operand must lie in the host's memory.
inline Tensor reference_conv2d(Exec& ex, const Tensor& x, const ConvWeight& w, const ConvArgs& args) {
  const ForcedImpl only("conv2d", "ref");
  return conv2d(ex, x, w, args);
}

}  // namespace rocm_sd::testing_support
