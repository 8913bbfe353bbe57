// Weights that are stored in 16 bits for products in f32: every implementation of the host against the
// reference, with x of f32; and what memory they take.
#include <gtest/gtest.h>

#include <array>

#include "kernels/conv/conv2d.hpp"
#include "kernels/gemm/linear.hpp"
#include "unit_tests/kernels/product_testing.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;

Weight short_weight(const Shape& shape, DType held, uint64_t seed) {
  return Weight(StoredWeight(random_tensor(shape, held, seed), Tensor(), DType::kF32));
}

TEST(ShortWeight, IsPlainInTheProductsType) {
  for (const DType held : {DType::kBF16, DType::kF16}) {
    const Weight weight = short_weight({5, 7}, held, 3);
    EXPECT_EQ(weight.dtype(), DType::kF32);
    EXPECT_EQ(weight.stored_as(), held);
    EXPECT_TRUE(weight.is_stored_short());
    EXPECT_EQ(weight.stored().values.dtype(), held);
    EXPECT_EQ(weight.plain().dtype(), DType::kF32);
    EXPECT_EQ(to_doubles(weight.plain()), to_doubles(random_tensor({5, 7}, held, 3)));
  }
  EXPECT_FALSE(Weight(random_tensor({5, 7}, DType::kBF16, 3)).is_stored_short());
  EXPECT_FALSE(Weight(random_tensor({5, 7}, DType::kF32, 3)).is_stored_short());
}

TEST(ShortWeight, LinearMatchesTheReference) {
  for (const DType held : {DType::kBF16, DType::kF16})
    for (const auto [rows, in, out] : {std::array<int64_t, 3>{1, 3, 5}, {37, 330, 128}, {140, 64, 70}})
      for (const bool gated : {false, true}) {
        const Tensor x = random_tensor({rows, in}, DType::kF32, 1);
        const Tensor bias = random_tensor({out}, DType::kF32, 2);
        const auto run = [&](TestExec& test) {
          const LinearWeight w{short_weight({out, in}, held, 4), bias};
          return gated ? linear_geglu(test.ex, x, w) : linear(test.ex, x, w);
        };
        if (gated && out % 2) continue;
        TestExec reference;
        std::string refusal;
        const auto want = under("linear", "ref", [&] { return run(reference); }, &refusal);
        ASSERT_TRUE(want.has_value()) << refusal;
        for (const char* impl : {"tiled", "onednn", "scalar"}) {
          TestExec test;
          const auto got = under("linear", impl, [&] { return run(test); }, &refusal);
          if (got)
            expect_tensor_near(*got, to_doubles(*want), reduction_tolerance(DType::kF32, in),
                               concat(impl, " ", rows, "x", out, "x", in, gated ? " gated" : ""));
          else
            EXPECT_STRNE(impl, "tiled") << refusal;
        }
      }
}

struct ConvCase {
  const char* name;
  Shape x, filter;
  ConvArgs args;
};

std::vector<ConvCase> conv_cases() {
  return {{"3x3", {2, 7, 5, 12}, {20, 12, 3, 3}, {.pad = Padding::same(1)}},
          {"stride 2", {1, 9, 6, 16}, {33, 16, 3, 3}, {.stride = 2, .pad = Padding::same(1)}},
          {"1x1", {1, 4, 4, 322}, {64, 322, 1, 1}, {}},
          {"doubled", {1, 5, 6, 16}, {24, 16, 3, 3}, {.pad = Padding::same(1), .upsample2x = true}},
          {"winograd's", {1, 12, 12, 64}, {64, 64, 3, 3}, {.pad = Padding::same(1)}}};
}

TEST(ShortWeight, ConvolutionMatchesTheReference) {
  for (const DType held : {DType::kBF16, DType::kF16})
    for (const ConvCase& c : conv_cases()) {
      const Tensor x = random_tensor(c.x, DType::kF32, 1);
      const Tensor bias = random_tensor({c.filter[0]}, DType::kF32, 2);
      const auto run = [&](TestExec& test) {
        return conv2d(test.ex, x, ConvWeight{short_weight(c.filter, held, 4), bias}, c.args);
      };
      TestExec reference;
      std::string refusal;
      const auto want = under("conv2d", "ref", [&] { return run(reference); }, &refusal);
      ASSERT_TRUE(want.has_value()) << refusal;
      // A doubled image's taps are summed and rounded to the type that they are stored in.
      const DType precision = c.args.upsample2x ? held : DType::kF32;
      for (const char* impl : {"tiled", "onednn", "winograd"}) {
        TestExec test;
        const auto got = under("conv2d", impl, [&] { return run(test); }, &refusal);
        const auto depth = c.filter[1] * c.filter[2] * c.filter[3];
        const double allowed =
            reduction_tolerance(precision, depth) * (std::string(impl) == "winograd" ? 8 : 1);
        if (got)
          expect_tensor_near(*got, to_doubles(*want), allowed, concat(impl, " ", c.name));
        else
          EXPECT_STRNE(impl, "tiled") << refusal;
      }
    }
}

// The tiled kernels read it as it is stored: two bytes an element but for the padding of panels, once.
TEST(ShortWeight, TakesTwoBytesAnElement) {
  for (const bool doubled : {false, true}) {
    const ConvWeight conv{short_weight({64, 32, 3, 3}, DType::kBF16, 4), std::nullopt};
    const LinearWeight matrix{short_weight({64, 96}, DType::kBF16, 5), std::nullopt};
    TestExec test;
    const ForcedImpl tiled_conv("conv2d", "tiled"), tiled_linear("linear", "tiled");
    conv2d(test.ex, random_tensor({1, 6, 6, 32}, DType::kF32, 1), conv,
           {.pad = Padding::same(1), .upsample2x = doubled});
    linear(test.ex, random_tensor({9, 96}, DType::kF32, 1), matrix);
    // Of a doubled one the four phases, 16/9 of it, beside the plain filter.
    EXPECT_EQ(conv.weight.stored_bytes(), 2u * 64 * 32 * (doubled ? 9 + 16 : 9));
    EXPECT_EQ(matrix.weight.stored_bytes(), 2u * 64 * 96);
    EXPECT_EQ(matrix.weight.stored().values.dtype(), DType::kBF16);
    EXPECT_EQ(to_doubles(matrix.weight.plain()), to_doubles(random_tensor({64, 96}, DType::kBF16, 5)));
  }
}

}  // namespace
}  // namespace rocm_sd
