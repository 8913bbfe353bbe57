// Conversions of the small float formats: exhaustive round trips and the rounding cases that matter.
#include "base/dtype.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace rocm_sd {
namespace {

TEST(DType, EverySmallFloatSurvivesARoundTrip) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    if (const float x = f16_to_float(half); !std::isnan(x)) {
      EXPECT_EQ(float_to_f16(x), half);
    }
    if (const float x = bf16_to_float(half); !std::isnan(x)) {
      EXPECT_EQ(float_to_bf16(x), half);
    }
  }
  for (uint32_t bits = 0; bits < 256; ++bits) {
    const auto byte = static_cast<uint8_t>(bits);
    if (const float x = f8e4m3_to_float(byte); !std::isnan(x)) {
      EXPECT_EQ(float_to_f8e4m3(x), byte);
    }
    if (const float x = f8e5m2_to_float(byte); !std::isnan(x)) {
      EXPECT_EQ(float_to_f8e5m2(x), byte);
    }
  }
}

TEST(DType, RoundsToNearestEven) {
  EXPECT_EQ(float_to_f16(1.0f + 0x1p-11f), 0x3c00);      // tie, down to even
  EXPECT_EQ(float_to_f16(1.0f + 3 * 0x1p-11f), 0x3c02);  // tie, up to even
  EXPECT_EQ(float_to_f16(65519.0f), 0x7bff);             // below the tie with infinity
  EXPECT_EQ(float_to_f16(65520.0f), 0x7c00);             // the tie goes to infinity
  EXPECT_EQ(float_to_f16(0x1p-25f), 0x0000);             // half the smallest subnormal, to even
  EXPECT_EQ(float_to_f16(0x1.8p-25f), 0x0001);
  EXPECT_EQ(float_to_bf16(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(float_to_bf16(1.0f + 3 * 0x1p-8f), 0x3f82);
  EXPECT_EQ(float_to_f8e4m3(448.0f), 0x7e);
  EXPECT_EQ(float_to_f8e4m3(464.0f), 0x7e);  // tie, to even
  EXPECT_EQ(float_to_f8e4m3(465.0f), 0x7f);  // e4m3fn has no infinity
  EXPECT_EQ(float_to_f8e5m2(61440.0f), 0x7c);
  EXPECT_EQ(float_to_f8e4m3(-0.0f), 0x80);
}

TEST(DType, SpecialValues) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(float_to_f16(inf), 0x7c00);
  EXPECT_EQ(float_to_bf16(-inf), 0xff80);
  EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(NAN))));
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(NAN))));
  EXPECT_TRUE(std::isnan(f8e4m3_to_float(float_to_f8e4m3(NAN))));
  EXPECT_TRUE(std::isinf(f8e5m2_to_float(float_to_f8e5m2(inf))));
}

TEST(DType, ConvertsAndSaturates) {
  const std::vector<double> values = {-1e30, -129.0, -1.5, 0.0, 1.5, 300.0, 1e30, NAN};
  std::vector<int8_t> bytes(values.size());
  convert_elements(values.data(), DType::kF64, bytes.data(), DType::kI8, static_cast<int64_t>(values.size()));
  EXPECT_EQ(bytes, (std::vector<int8_t>{-128, -128, -1, 0, 1, 127, 127, 0}));
  std::vector<int64_t> longs(values.size());
  convert_elements(values.data(), DType::kF64, longs.data(), DType::kI64,
                   static_cast<int64_t>(values.size()));
  EXPECT_EQ(longs[6], std::numeric_limits<int64_t>::max());
}

// Many at once are converted by the CPU's own instructions: the same bits as one by one, of every half, of
// floats about every rounding, of NaN, infinities and what overflows, at odd counts and addresses.
TEST(DType, HalvesInBlocksHaveTheBitsOfEach) {
  std::vector<uint16_t> halves(65536 + 1);
  for (size_t i = 0; i < 65536; ++i) halves[i + 1] = static_cast<uint16_t>(i);
  std::vector<float> floats(65536);
  for (const size_t count : {size_t{65536}, size_t{65535}, size_t{7}, size_t{1}}) {
    std::fill(floats.begin(), floats.end(), 77.0f);
    convert_elements(&halves[1], DType::kF16, floats.data(), DType::kF32, static_cast<int64_t>(count));
    for (size_t i = 0; i < floats.size(); ++i)
      ASSERT_EQ(std::bit_cast<uint32_t>(floats[i]),
                std::bit_cast<uint32_t>(i < count ? f16_to_float(halves[i + 1]) : 77.0f))
          << i;
  }
  std::vector<float> values = {1e30f,    -1e30f,    65519.9f, 65520.0f, NAN,   -NAN,
                               INFINITY, -INFINITY, 0.0f,     -0.0f,    1e-8f, -2.98e-8f};
  for (uint32_t high = 0; high < 65536; high += 3)  // about every half's rounding
    for (const uint32_t low : {0x0000u, 0x0fffu, 0x1000u, 0x1001u, 0x7fffu})
      values.push_back(std::bit_cast<float>(high << 16 | low));
  for (const size_t begin : {size_t{0}, size_t{3}}) {
    std::vector<uint16_t> got(values.size() - begin, 0x5555);
    convert_elements(&values[begin], DType::kF32, got.data(), DType::kF16, static_cast<int64_t>(got.size()));
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(got[i], float_to_f16(values[begin + i])) << values[begin + i];
  }
}

TEST(DType, SafetensorsNamesRoundTrip) {
  for (const DType type :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2, DType::kI64, DType::kBool})
    EXPECT_EQ(dtype_from_safetensors(dtype_to_safetensors(type)), type);
  EXPECT_FALSE(dtype_from_safetensors("F4").has_value());
}

}  // namespace
}  // namespace rocm_sd
