// Weights in 8 bits on the GPU under test: dequantizing, and products whose weights are dequantized for them.
#include "kernels/eight_bit.hpp"

#include <gtest/gtest.h>

#include "base/format.hpp"
#include "gpu_tests/against_reference.hpp"
#include "kernels/conv/conv2d.hpp"
#include "kernels/conv/conv2d_gpu.hpp"
#include "kernels/dequantize/dequantize.hpp"
#include "kernels/family/gemm_map.hpp"
#include "kernels/gemm/linear_eight_bit.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;

// Random weights in 8 bits on the host, for products in 8 bits.
StoredWeight held(const Shape& shape, DType type, DType dtype, uint64_t seed) {
  const float deviation = 1 / std::sqrt(static_cast<float>(shape.numel() / shape[0]));
  const auto from = to_floats(host_device(), random_tensor(shape, DType::kF32, seed, deviation));
  const Tensor values = make_tensor(host_device(), shape, type);
  const Tensor scales = make_tensor(host_device(), {shape[0]}, DType::kF32);
  quantise_rows(from.data(), shape[0], shape.numel() / shape[0], type, values.data(), scales.as<float>());
  return {values, scales, dtype, true};
}

Tensor bytes_on(Device& device, const Tensor& host) {
  const Tensor y = make_tensor(device, host.shape(), host.dtype());
  device.copy_to_device(y.data(), host.data(), host.bytes());
  return y;
}
Weight eight_bit_on(Device& device, const StoredWeight& w) {
  return Weight(StoredWeight(bytes_on(device, w.values), bytes_on(device, w.scales), w.dtype, w.products));
}
// The same values in the products' type.
Weight dequantized_on(Device& device, const StoredWeight& w) {
  return Weight(bytes_on(device, dequantized(w.values, w.scales, w.dtype)));
}

class GpuEightBitTest : public testing::TestWithParam<std::tuple<DType, DType>> {
 protected:
  DType type = std::get<0>(GetParam()), dtype = std::get<1>(GetParam());
};
INSTANTIATE_TEST_SUITE_P(All, GpuEightBitTest,
                         testing::Combine(testing::Values(DType::kI8, DType::kF8E4M3),
                                          testing::Values(DType::kF16, DType::kBF16, DType::kF32)),
                         [](const auto& info) {
                           return fmt::format("{}_{}", std::get<0>(info.param), std::get<1>(info.param));
                         });

TEST_P(GpuEightBitTest, DequantizesToTheHostsBits) {
  for (const Shape& shape :
       {Shape{1, 1}, Shape{3, 5}, Shape{40, 320}, Shape{2, 3, 3, 3}, Shape{31, 77}, Shape{515, 8}}) {
    const StoredWeight w = held(shape, type, dtype, 3);
    const auto on = [&](Device& device, Exec& ex, const char* impl) {
      const ForcedImpl only("dequantize", impl);
      return to_floats(device, dequantize(ex, bytes_on(device, w.values), bytes_on(device, w.scales), dtype));
    };
    GpuTestExec gpu;
    TestExec host;
    EXPECT_EQ(on(gpu.device, gpu.ex, "gpu"), on(host_device(), host.ex, "scalar")) << concat(shape);
  }
}

TEST_P(GpuEightBitTest, ProductsTakeTheDequantizedValues) {
  GpuTestExec gpu;
  const ForcedImpl only("linear", "gpu");
  for (const auto& [rows, in, out] :
       {std::tuple{1, 64, 48}, {5, 40, 24}, {70, 72, 136}, {33, 51, 26}, {130, 640, 40}, {300, 320, 192}}) {
    const StoredWeight w = held({out, in}, type, dtype, 7);
    const Tensor x = gpu.to_gpu(random_tensor({rows, in}, dtype, 8));
    const LinearWeight eight{eight_bit_on(gpu.device, w), std::nullopt},
        wide{dequantized_on(gpu.device, w), std::nullopt};
    EXPECT_EQ(to_floats(gpu.device, linear(gpu.ex, x, eight)),
              to_floats(gpu.device, linear(gpu.ex, x, wide)));
    EXPECT_EQ(to_floats(gpu.device, linear_geglu(gpu.ex, x, eight)),
              to_floats(gpu.device, linear_geglu(gpu.ex, x, wide)));
    // Rows that are no whole pieces of 16 bytes in the type of the products are stored once more, with zeros
    // behind them.
    const int64_t whole = conv_padded_channels(in, dtype);
    const int64_t more = rows > kGemvRows && whole != in ? whole * out : 0;
    EXPECT_EQ(eight.weight.stored_bytes(), static_cast<size_t>(in * out + 4 * out + more));
  }
}

TEST_P(GpuEightBitTest, ConvolutionsTakeTheDequantizedValues) {
  struct Case {
    Shape x;
    int64_t second = 0, out = 8;
    int kernel = 3, stride = 1;
    bool doubled = false;
  };
  for (const Case& c : {Case{{1, 6, 7, 64}, 0, 40}, Case{{2, 5, 4, 9}, 3, 24}, Case{{1, 8, 8, 72}, 40, 16, 1},
                        Case{{1, 9, 8, 16}, 0, 20, 3, 2}, Case{{1, 5, 6, 64}, 0, 24, 3, 1, true},
                        Case{{1, 4, 3, 20}, 0, 8, 3, 1, true}, Case{{2, 9, 8, 64}, 64, 96}}) {
    GpuTestExec gpu;
    const StoredWeight w = held({c.out, c.x[3] + c.second, c.kernel, c.kernel}, type, dtype, 17);
    const Tensor x = gpu.to_gpu(random_tensor(c.x, dtype, 18));
    Tensor second;
    if (c.second) second = gpu.to_gpu(random_tensor({c.x[0], c.x[1], c.x[2], c.second}, dtype, 19));
    const ConvArgs args{.stride = c.stride,
                        .pad = Padding::same(c.kernel / 2),
                        .upsample2x = c.doubled,
                        .second = c.second ? &second : nullptr};
    const ConvWeight eight{eight_bit_on(gpu.device, w), std::nullopt},
        wide{dequantized_on(gpu.device, w), std::nullopt};
    const auto got = to_floats(gpu.device, conv2d(gpu.ex, x, eight, args));
    const auto want = to_floats(gpu.device, conv2d(gpu.ex, x, wide, args));
    // The filters of a doubled image are sums of taps: of 8-bit values rounded once, or of rounded ones.
    if (c.doubled)
      expect_near({got.begin(), got.end()}, {want.begin(), want.end()},
                  2 * reduction_tolerance(dtype, 9 * c.x[3]));
    else
      EXPECT_EQ(got, want) << concat(c.x);
    EXPECT_EQ(to_floats(gpu.device, eight.weight.plain()), to_floats(gpu.device, wide.weight.plain()))
        << concat(c.x);
    EXPECT_EQ(eight.weight.stored().values.dtype(), type);
    const int64_t padded = (c.x[3] + 7) / 8 * 8 + (c.second + 7) / 8 * 8;
    EXPECT_LE(eight.weight.stored_bytes(), static_cast<size_t>(c.out * (padded * c.kernel * c.kernel + 4)));
  }
}

TEST_P(GpuEightBitTest, RunsInAGraph) {
  GpuTestExec gpu;  // before the weights, whose memory it gives
  const auto matrix_of = [&](const Shape& shape) {
    return LinearWeight{eight_bit_on(gpu.device, held(shape, type, dtype, 27)), std::nullopt};
  };
  const LinearWeight matrix = matrix_of({48, 64}), wide_matrix = matrix_of({320, 128}),
                     matrix_back = matrix_of({128, 320});
  const ConvWeight filter{eight_bit_on(gpu.device, held({24, 16, 3, 3}, type, dtype, 28)), std::nullopt};
  const ConvWeight wide_filter{eight_bit_on(gpu.device, held({64, 64, 3, 3}, type, dtype, 28)), std::nullopt};
  const Tensor x = gpu.to_gpu(random_tensor({40, 64}, dtype, 29)),
               wide_x = gpu.to_gpu(random_tensor({40, 128}, dtype, 29));
  const Tensor image = gpu.to_gpu(random_tensor({1, 6, 6, 16}, dtype, 30)),
               wide_image = gpu.to_gpu(random_tensor({1, 6, 6, 64}, dtype, 30));
  const std::function<Tensor(Exec&)> ops[] = {
      [&](Exec& ex) { return linear(ex, x, matrix); },
      [&](Exec& ex) { return conv2d(ex, image, filter, {.pad = Padding::same(1), .upsample2x = true}); },
      // By TMA where there is one: what was just dequantized is waited for.
      [&](Exec& ex) {
        const ForcedImpl dequantized("linear", "gpu");
        return linear(ex, linear(ex, wide_x, wide_matrix), matrix_back);
      },
      [&](Exec& ex) {
        const ConvArgs args{.pad = Padding::same(1)};
        return conv2d(ex, conv2d(ex, wide_image, wide_filter, args), wide_filter, args);
      }};
  for (const auto& op : ops) {
    const Tensor eager = op(gpu.ex), kept = make_tensor(gpu.device, eager.shape(), dtype);
    Arena arena(gpu.device);
    Program program("op", arena, [&](Exec& ex) { copy_into(ex, op(ex), kept); });
    for (int round = 0; round < 3; ++round) {  // live, recorded, replayed
      gpu.device.fill_zero(kept.data(), kept.bytes());
      program.run();
      gpu.device.synchronize();
      EXPECT_EQ(to_floats(gpu.device, kept), to_floats(gpu.device, eager)) << round;
    }
  }
}

// Products of 8-bit elements, where the device has them, against the formula in double from the same bytes.
TEST_P(GpuEightBitTest, MultipliesEightBits) {
  GpuTestExec gpu;
  if (dtype == DType::kF32) return;  // the next test says what then
  if (!multiplies_eight_bit(gpu.device, type))
    GTEST_SKIP() << concat("no products of ", type, " on ", gpu.device.traits().arch);
  struct Case {
    int64_t rows, in, out;
    bool residual = false, gated = false, float_result = false;
  };
  for (const Case& c :
       {Case{9, 16, 8}, Case{70, 80, 136, true}, Case{33, 320, 26}, Case{131, 144, 40, false, true},
        Case{20, 1280, 24, true}, Case{40, 640, 48, false, true}, Case{70, 80, 136, true, false, true},
        Case{300, 1296, 96, true}, Case{140, 272, 160, true, false, true},
        Case{260, 320, 128, false, true}}) {
    if (c.float_result && dtype != DType::kBF16) continue;
    const DType result = c.float_result ? DType::kF32 : dtype;
    const StoredWeight w = held({c.gated ? 2 * c.out : c.out, c.in}, type, dtype, 37);
    const Tensor x = random_tensor({c.rows, c.in}, dtype, 38),
                 bias = random_tensor({w.values.dim(0)}, DType::kF32, 39),
                 residual = random_tensor({c.rows, c.out}, result, 40);
    // The activations as the device rounds them: to the bytes of the host.
    const auto from = to_floats(host_device(), x);
    const Tensor bytes = make_tensor(host_device(), x.shape(), type),
                 scales = make_tensor(host_device(), {c.rows}, DType::kF32);
    quantise_rows(from.data(), c.rows, c.in, type, bytes.data(), scales.as<float>());
    const auto a = to_floats(host_device(), dequantized(bytes, scales, DType::kF32));
    const auto b = to_floats(host_device(), dequantized(w.values, w.scales, DType::kF32));
    const auto biases = to_floats(host_device(), bias), addends = to_floats(host_device(), residual);
    std::vector<double> want;
    const auto product = [&](int64_t row, int64_t column) {
      double sum = biases[static_cast<size_t>(column)];
      for (int64_t k = 0; k < c.in; ++k)
        sum += static_cast<double>(a[static_cast<size_t>(row * c.in + k)]) *
               b[static_cast<size_t>(column * c.in + k)];
      return sum;
    };
    for (int64_t row = 0; row < c.rows; ++row)
      for (int64_t column = 0; column < c.out; ++column) {
        double v = product(row, column);
        if (c.gated) {
          const double gate = product(row, c.out + column);
          v *= 0.5 * gate * std::erfc(-gate / std::sqrt(2.0));
        }
        if (c.residual) v += addends[want.size()];
        want.push_back(v);
      }
    const Tensor gpu_x = gpu.to_gpu(x), gpu_residual = gpu.to_gpu(residual);
    const LinearWeight weight{eight_bit_on(gpu.device, w), gpu.to_gpu(bias)};
    const Epilogue epilogue{.residual = c.residual ? &gpu_residual : nullptr};
    const Tensor y = gpu.ex.alloc({c.rows, c.out}, result);
    const LinearProblem p{gpu_x, weight, epilogue, c.gated, y, c.rows, c.in, c.out, c.in};
    const Refusal refusal = linear_supports_eight_bit(gpu.ex, p);
    ASSERT_FALSE(refusal) << *refusal;
    for (const EightBitChoice& choice : eight_bit_candidates(gpu.device.traits(), p)) {
      linear_eight_bit_as(gpu.ex, p, choice);
      const auto got = to_floats(gpu.device, y);
      // Hopper adds each 32 products of e4m3 to a sum of some 14 bits. A gated result has the errors of two
      // products.
      const double sums = type == DType::kF8E4M3 ? static_cast<double>(c.in / 32 + 1) * 0x1p-12 : 0;
      expect_near({got.begin(), got.end()}, want,
                  (c.gated ? 3 : 1) * (reduction_tolerance(result, c.in) + sums),
                  concat(p.describe(), " by ", describe(choice)));
    }
  }
}

TEST_P(GpuEightBitTest, ChoosesProductsOfEightBits) {
  GpuTestExec gpu;
  const bool has = dtype != DType::kF32 && multiplies_eight_bit(gpu.device, type);
  StoredWeight w = held({48, 64}, type, dtype, 27);
  const Tensor x = gpu.to_gpu(random_tensor({40, 64}, dtype, 29));
  LinearWeight weight{eight_bit_on(gpu.device, w), std::nullopt};
  const auto chosen = to_floats(gpu.device, linear(gpu.ex, x, weight));
  const auto by = [&](const char* impl) {
    const ForcedImpl only("linear", impl);
    return to_floats(gpu.device, linear(gpu.ex, x, weight));
  };
  const auto dequantized = by("gpu");
  if (has) {
    EXPECT_EQ(chosen, by("gpu_eight_bit"));
    EXPECT_NE(chosen, dequantized) << "weights alone in 8 bits";
  } else {
    EXPECT_EQ(chosen, dequantized);
  }
  w.products = false;
  weight.weight = eight_bit_on(gpu.device, w);
  EXPECT_EQ(to_floats(gpu.device, linear(gpu.ex, x, weight)), dequantized) << "not asked for";
  EXPECT_THROW(by("gpu_eight_bit"), UsageError);
}

}  // namespace
}  // namespace rocm_sd
