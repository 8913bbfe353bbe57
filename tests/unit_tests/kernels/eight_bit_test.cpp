// Weights in 8 bits: the formats, quantising, dequantizing, and what a Weight held so gives to products.
#include "kernels/eight_bit.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/dtype.hpp"
#include "base/format.hpp"
#include "composable_kernels/eight_bit.hpp"
#include "kernels/conv/conv2d.hpp"
#include "kernels/dequantize/dequantize.hpp"
#include "kernels/gemm/linear.hpp"
#include "kernels/select.hpp"
#include "support/tensor_testing.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;

float fp8_of(float value) {
  Fp8 to;
  store(to, value);
  return to_float(to);
}

TEST(EightBit, EveryFp8CodeIsRead) {
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7f) == 0x7f) continue;  // NaN, which is never stored
    const float value = f8e4m3_to_float(static_cast<uint8_t>(code));
    EXPECT_EQ(to_float(Fp8{static_cast<uint8_t>(code)}), value) << code;
    Fp8 back;
    store(back, value);
    EXPECT_EQ(back.bits, code == 0x80 ? 0 : code);
  }
}

TEST(EightBit, RoundsToTheNearestFp8) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<float> exponent(-14, 8.8f);
  for (int i = 0; i < 20'000; ++i) {
    const float value = std::copysign(std::exp2(exponent(random)), i % 2 ? -1.0f : 1.0f);
    const float want = f8e4m3_to_float(float_to_f8e4m3(value));
    EXPECT_EQ(fp8_of(value), std::isnan(want) ? std::copysign(448.0f, value) : want) << value;
  }
  for (int code = 0; code < 0x7e; ++code) {  // half way: to the even code
    const float low = f8e4m3_to_float(static_cast<uint8_t>(code)),
                high = f8e4m3_to_float(static_cast<uint8_t>(code + 1));
    EXPECT_EQ(fp8_of((low + high) / 2), code % 2 ? high : low) << code;
  }
  EXPECT_EQ(fp8_of(1e30f), 448.0f);
  EXPECT_EQ(fp8_of(-465.0f), -448.0f);
  Fp8 zero;
  store(zero, -0.0f);
  EXPECT_EQ(zero.bits, 0);
  store(zero, -1e-20f);
  EXPECT_EQ(zero.bits, 0);
}

class EightBitTest : public testing::TestWithParam<DType> {
 protected:
  // A matrix in 8 bits of random normal values, and those values.
  struct Held {
    Tensor values, scales;
    std::vector<float> from;
  };
  Held held(const Shape& shape, uint64_t seed) const {
    Held out;
    const Tensor plain = random_tensor(shape, DType::kF32, seed, 0.2f);
    out.from = to_floats(host_device(), plain);
    out.values = make_tensor(host_device(), shape, GetParam());
    out.scales = make_tensor(host_device(), {shape[0]}, DType::kF32);
    quantise_rows(out.from.data(), shape[0], shape.numel() / shape[0], GetParam(), out.values.data(),
                  out.scales.as<float>());
    return out;
  }
};
INSTANTIATE_TEST_SUITE_P(Formats, EightBitTest, testing::Values(DType::kI8, DType::kF8E4M3),
                         [](const auto& info) { return fmt::format("{}", info.param); });

TEST_P(EightBitTest, QuantisesWithinHalfAStep) {
  const Held h = held({37, 53}, 5);
  const auto wide = to_floats(host_device(), dequantized(h.values, h.scales, DType::kF32));
  const auto* bytes = static_cast<const uint8_t*>(h.values.data());
  for (int64_t row = 0; row < 37; ++row) {
    float most = 0, widest = 0;
    const double scale = h.scales.as<float>()[row];
    for (int64_t i = row * 53; i < (row + 1) * 53; ++i) {
      most = std::max(most, std::fabs(h.from[i]));
      widest = std::max(widest, std::fabs(wide[i]));
      // Half a step: of integers, or of 3 bits of mantissa and of subnormals; and the roundings in float.
      const double step =
          GetParam() == DType::kI8 ? scale / 2 : std::max(std::fabs(h.from[i]) / 16.0, scale * 0x1p-10);
      EXPECT_LE(std::fabs(wide[i] - h.from[i]), step * (1 + 1e-4));
      EXPECT_NE(bytes[i], 0x80);  // -128, or a negative zero
      if (GetParam() == DType::kF8E4M3) {
        EXPECT_NE(bytes[i] & 0x7f, 0x7f);
      }
    }
    EXPECT_NEAR(widest, most, most * 1e-6) << "the largest of a row is kept";
  }
}

TEST_P(EightBitTest, RowsOfZerosTinyAndDamagedOnes) {
  const float tiny = std::numeric_limits<float>::denorm_min(), inf = std::numeric_limits<float>::infinity(),
              nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> rows = {0, 0, 0, -0.0f, tiny, 0, -tiny, tiny,   1, inf,
                                   2, 3, 1, 2,     nan,  0, 1e38f, -3e38f, 1, 0};
  const Tensor values = make_tensor(host_device(), {5, 4}, GetParam());
  const Tensor scales = make_tensor(host_device(), {5}, DType::kF32);
  quantise_rows(rows.data(), 5, 4, GetParam(), values.data(), scales.as<float>());
  const auto wide = to_floats(host_device(), dequantized(values, scales, DType::kF32));
  for (int i = 0; i < 8; ++i) EXPECT_LE(std::fabs(wide[i]), 1e-36f) << i;
  for (int i = 8; i < 16; ++i) EXPECT_TRUE(std::isnan(wide[i])) << i;
  EXPECT_NEAR(wide[17], -3e38f, 1e33f);
}

TEST_P(EightBitTest, DequantizesLikeTheReference) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
    for (const Shape& shape : {Shape{1, 1}, Shape{3, 5}, Shape{7, 16}, Shape{5, 40}, Shape{2, 3, 3, 3},
                               Shape{31, 77}, Shape{64, 24}, Shape{4, 1}, Shape{0, 8}}) {
      const Held h = shape[0] ? held(shape, 11)
                              : Held{make_tensor(host_device(), shape, GetParam()),
                                     make_tensor(host_device(), {0}, DType::kF32),
                                     {}};
      TestExec test;
      const auto by = [&](const char* impl) {
        const ForcedImpl only("dequantize", impl);
        return to_doubles(dequantize(test.ex, h.values, h.scales, dtype));
      };
      const auto want = shape[0] ? by("ref") : std::vector<double>();
      // A product in float, then the type's rounding, against a product in double: neighbours at most.
      const auto got = by("scalar");
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_NEAR(got[i], want[i], 2 * unit_roundoff(dtype) * std::fabs(want[i]) + 0x1p-24)
            << concat(dtype, " ", shape);
    }
}

TEST_P(EightBitTest, DequantizeRefusesWhatDoesNotFit) {
  TestExec test;
  const Held h = held({4, 8}, 1);
  EXPECT_THROW(dequantize(test.ex, random_tensor({4, 8}, DType::kF32, 1), h.scales, DType::kF32), UsageError);
  EXPECT_THROW(dequantize(test.ex, h.values, h.scales, DType::kI8), UsageError);
  EXPECT_THROW(dequantize(test.ex, h.values, random_tensor({5}, DType::kF32, 1), DType::kF32), ShapeError);
  EXPECT_THROW(dequantize(test.ex, h.values, random_tensor({4}, DType::kF16, 1), DType::kF32), ShapeError);
}

// Every product of the host gives the bits that the dequantized weight gives, whatever packs it makes.
TEST_P(EightBitTest, ProductsTakeTheDequantizedValues) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Held matrix = held({48, 40}, 21), filter = held({24, 8, 3, 3}, 22);
    const Tensor x = random_tensor({5, 40}, dtype, 23), image = random_tensor({1, 6, 7, 8}, dtype, 24);
    const auto eight = [&](const Held& h) { return Weight(StoredWeight(h.values, h.scales, dtype)); };
    const auto plain = [&](const Held& h) { return Weight(dequantized(h.values, h.scales, dtype)); };
    for (int round = 0; round < 2; ++round) {
      TestExec test;
      const LinearWeight linear8{eight(matrix), std::nullopt}, linear16{plain(matrix), std::nullopt};
      const ConvWeight conv8{eight(filter), std::nullopt}, conv16{plain(filter), std::nullopt};
      const ConvArgs same{.pad = Padding::same(1)}, doubled{.pad = Padding::same(1), .upsample2x = true};
      EXPECT_EQ(to_doubles(linear(test.ex, x, linear8)), to_doubles(linear(test.ex, x, linear16)));
      EXPECT_EQ(to_doubles(linear_geglu(test.ex, x, linear8)),
                to_doubles(linear_geglu(test.ex, x, linear16)));
      EXPECT_EQ(to_doubles(conv2d(test.ex, image, conv8, same)),
                to_doubles(conv2d(test.ex, image, conv16, same)));
      EXPECT_EQ(to_doubles(conv2d(test.ex, image, conv8, doubled)),
                to_doubles(conv2d(test.ex, image, conv16, doubled)));
      const ForcedImpl ref("linear", "ref");
      EXPECT_EQ(to_doubles(linear(test.ex, x, linear8)), to_doubles(linear(test.ex, x, linear16)));
    }
  }
}

struct Copied final : Weight::Pack {
  explicit Copied(Tensor of) : held(std::move(of)) {}
  size_t bytes() const override { return held.bytes(); }
  Tensor unpack() const override { return held; }
  Tensor held;
};

TEST_P(EightBitTest, AWeightKeepsItsBytesUntilALayoutTakesTheirPlace) {
  const Held h = held({6, 10}, 31);
  const auto wide = to_doubles(dequantized(h.values, h.scales, DType::kBF16));
  const auto copy = [](const Tensor& t) { return std::make_shared<Copied>(t); };
  const Weight weight(StoredWeight(h.values, h.scales, DType::kBF16));
  EXPECT_EQ(weight.dtype(), DType::kBF16);
  EXPECT_EQ(weight.stored_bytes(), 60u + 24u);
  EXPECT_EQ(to_doubles(weight.plain()), wide);
  EXPECT_EQ(weight.stored_bytes(), 60u + 24u) << "plain() holds nothing";
  weight.packed_as_stored("bytes", copy);
  EXPECT_EQ(weight.stored_bytes(), 60u + 24u);
  EXPECT_EQ(weight.stored().values.dtype(), GetParam());
  EXPECT_EQ(to_doubles(weight.plain()), wide);
  weight.packed("wide", copy);
  EXPECT_EQ(to_doubles(weight.plain()), wide);
  EXPECT_EQ(weight.stored().values.dtype(), GetParam()) << "the layout in 8 bits stays the first";

  const Weight replaced(StoredWeight(h.values, h.scales, DType::kBF16));
  replaced.packed("wide", copy);
  EXPECT_EQ(replaced.stored_bytes(), 120u);
  EXPECT_FALSE(replaced.scales());
  EXPECT_EQ(replaced.stored().values.dtype(), DType::kBF16);
  EXPECT_EQ(to_doubles(replaced.plain()), wide);

  const Weight kept(StoredWeight(h.values, h.scales, DType::kBF16));
  kept.packed("wide", copy, true);
  EXPECT_EQ(kept.stored_bytes(), 60u + 24u + 120u);
  EXPECT_EQ(to_doubles(kept.plain()), wide);
}

}  // namespace
}  // namespace rocm_sd
