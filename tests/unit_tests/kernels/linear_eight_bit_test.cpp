// The GEMM of 8-bit operands on the scalar architecture, against its formula in double from the same bytes,
// and how the GPU's launcher cuts problems.
#include "kernels/gemm/linear_eight_bit.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <set>

#include "base/format.hpp"
#include "composable_kernels/fused/gemm_eight_bit.hpp"
#include "kernels/eight_bit.hpp"
#include "kernels/scalar_launch.hpp"
#include "support/tensor_testing.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;

struct Case {
  int rows = 0, depth = 0, out = 0;
  bool bias = true, residual = false, gated = false;
  int splits = 1;
};

template <class EightBit>
constexpr DType kType = std::is_same_v<EightBit, Int8> ? DType::kI8 : DType::kF8E4M3;

// Quantised operands and what they multiply to.
template <class EightBit>
struct Operands {
  std::vector<EightBit> x, w;
  std::vector<float> x_scales, w_scales, bias, residual;

  explicit Operands(const Case& c) {
    const int columns = c.gated ? 2 * c.out : c.out;
    const auto quantised = [&](int rows, uint64_t seed, float deviation, std::vector<EightBit>& to,
                               std::vector<float>& scales) {
      const auto from =
          to_floats(host_device(), random_tensor({rows, c.depth}, DType::kF32, seed, deviation));
      to.resize(from.size());
      scales.resize(static_cast<size_t>(rows));
      quantise_rows(from.data(), rows, c.depth, kType<EightBit>, to.data(), scales.data());
    };
    quantised(c.rows, 1, 1, x, x_scales);
    quantised(columns, 2, 1 / std::sqrt(static_cast<float>(c.depth)), w, w_scales);
    bias = to_floats(host_device(), random_tensor({columns}, DType::kF32, 3));
    residual = to_floats(host_device(), random_tensor({c.rows, c.out}, DType::kF32, 4));
  }

  double product(const Case& c, int row, int column) const {
    double sum = 0;
    for (int k = 0; k < c.depth; ++k)
      sum += static_cast<double>(to_float(x[static_cast<size_t>(row * c.depth + k)])) *
             to_float(w[static_cast<size_t>(column * c.depth + k)]);
    return sum * x_scales[static_cast<size_t>(row)] * w_scales[static_cast<size_t>(column)] +
           (c.bias ? bias[static_cast<size_t>(column)] : 0.0f);
  }
  std::vector<double> want(const Case& c) const {
    std::vector<double> out;
    for (int row = 0; row < c.rows; ++row)
      for (int column = 0; column < c.out; ++column) {
        double v = product(c, row, column);
        if (c.gated) {
          const double gate = product(c, row, c.out + column);
          v *= 0.5 * gate * std::erfc(-gate / std::sqrt(2.0));
        }
        if (c.residual) v += residual[out.size()];
        out.push_back(v);
      }
    return out;
  }
};

template <class EightBit, class Cfg, bool kGated>
void run_tiles(const EightBitGemmParams<EightBit, float>& p) {
  const int columns = kGated ? 2 * p.epilogue.channels : p.epilogue.channels;
  const int tiles =
      (p.epilogue.rows + Cfg::kBlockM - 1) / Cfg::kBlockM * ((columns + Cfg::kBlockN - 1) / Cfg::kBlockN);
  for (int split = 0; split < p.splits; ++split)
    for (int tile = 0; tile < tiles; ++tile) {
      alignas(16) char lds[Cfg::kLdsBytes];
      eight_bit_gemm_body<Scalar, Cfg, kGated>(p, tile, split, lds);
    }
}

template <class EightBit>
std::vector<double> run(const Case& c, const Operands<EightBit>& o) {
  using Tile = ProductCfg<EightBit, TileShape{.block_m = 32, .block_n = 32, .block_k = 32}>;
  using SplitTile = ProductCfg<EightBit, TileShape{.block_m = 16, .block_n = 48, .block_k = 32, .stages = 1}>;
  std::vector<float> y(static_cast<size_t>(c.rows * c.out), std::numeric_limits<float>::quiet_NaN());
  EightBitGemmParams<EightBit, float> p{};
  p.x = o.x.data();
  p.w = o.w.data();
  p.x_scales = o.x_scales.data();
  p.w_scales = o.w_scales.data();
  p.epilogue.y = y.data();
  p.epilogue.bias = c.bias ? o.bias.data() : nullptr;
  p.epilogue.residual = c.residual ? o.residual.data() : nullptr;
  p.epilogue.y_stride = p.epilogue.channels = c.out;
  p.epilogue.rows = c.rows;
  p.epilogue.rows_per_image = 1;
  p.depth = c.depth;
  p.splits = c.splits;
  p.split_steps = ((c.depth + 31) / 32 + c.splits - 1) / c.splits;
  std::vector<float> partials;
  if (c.splits > 1) {
    GemmReduceParams<float> reduce{nullptr, p.epilogue, c.splits, c.gated};
    if (c.gated) p.epilogue.channels *= 2;
    partials.assign(static_cast<size_t>(c.splits * c.rows * p.epilogue.channels),
                    std::numeric_limits<float>::quiet_NaN());
    reduce.partials = p.partials = partials.data();
    run_tiles<EightBit, SplitTile, false>(p);
    for (int64_t i = 0; i < static_cast<int64_t>(c.rows) * ((c.out + 7) / 8); ++i)
      gemm_reduce_body<Scalar>(reduce, i);
  } else if (c.gated) {
    run_tiles<EightBit, Tile, true>(p);
  } else {
    run_tiles<EightBit, Tile, false>(p);
  }
  return {y.begin(), y.end()};
}

template <class EightBit>
class LinearEightBit : public testing::Test {};
using Elements = testing::Types<Int8, Fp8>;
TYPED_TEST_SUITE(LinearEightBit, Elements);

TYPED_TEST(LinearEightBit, MatchesTheFormula) {
  for (const Case& c : {Case{1, 16, 1}, Case{33, 48, 40, false}, Case{40, 80, 30, true, true},
                        Case{5, 320, 24, true, true, false, 3}, Case{37, 64, 24, true, false, true},
                        Case{3, 16, 13, false, false, true}, Case{18, 288, 26, true, false, true, 2}}) {
    const Operands<TypeParam> o(c);
    expect_near(run(c, o), o.want(c), reduction_tolerance(DType::kF32, c.depth),
                fmt::format("{}x{}x{} splits {}", c.rows, c.out, c.depth, c.splits));
  }
}

// The largest sums of integers that the depth allows do not overflow.
TEST(LinearEightBitSums, FitAtTheGreatestDepth) {
  EXPECT_LT(int64_t{65535} * 127 * 127, int64_t{std::numeric_limits<int32_t>::max()});
}

TYPED_TEST(LinearEightBit, QuantisesRowsLikeTheHost) {
  constexpr int kRows = 7, kDepth = 48, kStride = 64;
  const Tensor from = random_tensor({kRows, kStride}, DType::kF16, 9);
  auto values = to_floats(host_device(), from);
  auto* elements = static_cast<Half*>(from.data());
  for (int i = 0; i < kStride; ++i) elements[2 * kStride + i].bits = 0;  // a row of zeros
  elements[3 * kStride + 5].bits = 0x7c00;                               // an infinity
  elements[4 * kStride + 6].bits = 0x7e00;                               // a NaN
  std::vector<TypeParam> got(kRows * kDepth), want(kRows * kDepth);
  std::vector<float> scales(kRows, -1), want_scales(kRows);
  QuantiseParams<TypeParam, Half> p{elements, got.data(), scales.data(), kStride, 4.0f, kRows, kDepth, 1};
  for_each_block(3, [&](const Block<Scalar>& block) { quantise_body<Scalar>(p, block); });
  for (int row : {0, 1, 5, 6}) {
    quantise_rows(values.data() + row * kStride, 1, kDepth, kType<TypeParam>, want.data(),
                  want_scales.data());
    EXPECT_FLOAT_EQ(scales[row], 4 * want_scales[0]);
    for (int k = 0; k < kDepth; ++k) EXPECT_EQ(to_float(got[row * kDepth + k]), to_float(want[k]));
  }
  EXPECT_EQ(scales[2], 0);
  EXPECT_TRUE(std::isnan(scales[3]));
  EXPECT_TRUE(std::isnan(scales[4]));
  for (int k = 0; k < kDepth; ++k) EXPECT_EQ(to_float(got[2 * kDepth + k]), 0);
}

TEST(LinearEightBitChoice, CoversTheDepthAndFillsTheDevice) {
  const Tensor none;
  const LinearWeight weight;
  const Epilogue epilogue;
  for (const auto& [arch, family] : {std::pair{"gfx1201", GpuFamily::kRdna4},
                                     {"gfx942", GpuFamily::kCdna3},
                                     {"sm_89", GpuFamily::kNvidia},
                                     {"sm_90", GpuFamily::kNvidia}}) {
    GpuTraits traits{.arch = arch, .family = family};
    traits.compute_units = 100;
    traits.tma = traits.arch == "sm_90";
    traits.lds_per_group = family == GpuFamily::kNvidia ? 227 << 10 : 64 << 10;
    for (const bool gated : {false, true}) {
      const auto problem = [&](int64_t rows, int64_t out, int64_t in) {
        return LinearProblem{none, weight, epilogue, gated, none, rows, in, out, in};
      };
      const LinearProblem large = problem(8192, 1280, 1280), small = problem(64, 1280, 5120);
      EXPECT_EQ(eight_bit_default(traits, large).splits, 1) << arch;
      // TMA's gated products are never split.
      EXPECT_EQ(eight_bit_default(traits, small).splits > 1, !(gated && traits.tma)) << arch;
      EXPECT_EQ(eight_bit_default(traits, large).tma(), traits.tma);
      const LinearProblem odd = problem(8192, 1272, 1280);
      EXPECT_FALSE(eight_bit_default(traits, odd).tma()) << "channels in blocks of 32";
      std::set<std::string> names;
      for (const EightBitChoice& choice : eight_bit_candidates(traits, small)) {
        EXPECT_TRUE(names.insert(describe(choice)).second) << describe(choice);
        const int64_t steps = (5120 + choice.depth() - 1) / choice.depth();
        const int64_t part = (steps + choice.splits - 1) / choice.splits;
        EXPECT_LT(part * (choice.splits - 1), steps) << "every part has a step";
      }
    }
  }
  EXPECT_TRUE(eight_bit_candidates({.arch = "gfx1100", .family = GpuFamily::kRdna3},
                                   LinearProblem{none, weight, epilogue, false, none, 64, 64, 64, 64})
                  .empty());
}

}  // namespace
}  // namespace rocm_sd
