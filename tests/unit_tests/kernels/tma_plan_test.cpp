// Which clusters TMA's products run in: what holds for any product, measured or not.
#include "kernels/tma_plan.hpp"

#include <gtest/gtest.h>

#include "kernels/conv/conv2d_gpu.hpp"

namespace rocm_sd {
namespace {

constexpr int kWidths[] = {64, 128, 160, 256};
constexpr TmaRows kSources[] = {TmaRows::kMatrix, TmaRows::kGathered, TmaRows::kBoxes, TmaRows::kHalo};

GpuTraits h200() {
  GpuTraits traits;
  traits.family = GpuFamily::kNvidia;
  traits.arch = "sm_90";
  traits.compute_units = 132;
  traits.tma = true;
  return traits;
}

// The products of SD1.5's and SDXL's widths at other sizes and batches: rows of latents of 64 to 128 on a
// side and their halvings, each of the depths and widths that occur there.
std::vector<TmaExtent> extents(TmaRows from) {
  std::vector<TmaExtent> out;
  for (const int64_t side : {64, 96, 128})
    for (const int64_t batch : {1, 2, 5, 8})
      for (const int64_t halving : {1, 2, 4, 8})
        for (const int64_t columns : {320, 640, 1280, 3840})
          for (const int64_t depth : {320, 1280, 2880, 11520})
            out.push_back({batch * side * side / (halving * halving), columns, depth, 1, false, from});
  return out;
}

GemmConfig tile(int columns, GemmAlgorithm algorithm = GemmAlgorithm::kTma) {
  return tma_gemm({.columns = columns, .stages = 4}, algorithm);
}

std::string describe(const TmaExtent& e) {
  return std::to_string(e.rows) + "x" + std::to_string(e.columns) + "x" + std::to_string(e.depth) +
         (e.from == TmaRows::kMatrix     ? ""
          : e.from == TmaRows::kGathered ? " gathered"
                                         : " in boxes");
}

// The least estimate of all that may be chosen.
double best_ns(const GpuTraits& traits, const TmaExtent& e) {
  double least = -1;
  const auto consider = [&](const GemmConfig& config) {
    for (const TmaSplit& s : tma_splits(traits, config, e, true))
      if (const double ns = tma_ns(traits, config, e, s); least < 0 || ns < least) least = ns;
  };
  for (const int columns : kWidths) consider(tile(columns));
  if (e.from != TmaRows::kMatrix)
    for (const int columns : {64, 128, 160}) consider(tile(columns, GemmAlgorithm::kTmaPingPong));
  return least;
}

TEST(TmaPlan, PartsOfTheDepthAreNeverEmptyAndFillTheDeviceOnce) {
  const GpuTraits traits = h200();
  for (const TmaExtent& e : extents(TmaRows::kMatrix))
    for (const int columns : kWidths)
      for (const TmaSplit& s : tma_splits(traits, tile(columns), e, true)) {
        EXPECT_LE(s.multicast_size * s.splits, 8) << describe(e);  // the largest portable cluster
        const int64_t steps = (e.depth + 63) / 64, part = (steps + s.splits - 1) / s.splits;
        EXPECT_GT(steps, part * (s.splits - 1)) << describe(e);
        const int64_t tiles = (e.rows + 127) / 128 * ((e.columns + columns - 1) / columns);
        if (s.splits > 1) EXPECT_LE(tiles * s.splits, traits.compute_units) << describe(e);
      }
}

TEST(TmaPlan, NoPartsOfProductsThatCannotBeSummedOrThatTakeTurns) {
  const TmaExtent small{128, 1280, 11520};
  for (const TmaSplit& s : tma_splits(h200(), tile(128), small, false)) EXPECT_EQ(s.splits, 1);
  for (const TmaSplit& s : tma_splits(h200(), tile(128, GemmAlgorithm::kTmaPingPong), small, true))
    EXPECT_EQ(s.splits, 1);
  EXPECT_GT(tma_splits(h200(), tile(128), small, true).size(), 4u);
}

// An estimate below what the matrix units can do would be a sign that a term is missing.
TEST(TmaPlan, EstimatesStayAboveTheMatrixUnitsPeak) {
  constexpr double kPeak = 989e3;  // operations a nanosecond
  for (const TmaRows from : kSources)
    for (const TmaExtent& e : extents(from))
      EXPECT_GT(best_ns(h200(), e), 2.0 * static_cast<double>(e.rows * e.columns * e.depth) / kPeak)
          << describe(e);
}

// Even where the last round of tiles is nearly empty.
TEST(TmaPlan, TheBestEstimateIsDecentForLargeProducts) {
  constexpr double kDecent = 300e3;  // operations a nanosecond
  for (const TmaRows from : kSources)
    for (const TmaExtent& e : extents(from)) {
      const double operations = 2.0 * static_cast<double>(e.rows * e.columns * e.depth);
      if (e.depth < 1280 || operations < 2e10) continue;
      EXPECT_LT(best_ns(h200(), e), operations / kDecent) << describe(e);
    }
}

TEST(TmaPlan, MoreWorkTakesNoLessTime) {
  for (const TmaRows from : kSources)
    for (const TmaExtent& e : extents(from)) {
      const double ns = best_ns(h200(), e);
      for (const auto& grow : {&TmaExtent::rows, &TmaExtent::columns, &TmaExtent::depth}) {
        TmaExtent twice = e;
        twice.*grow *= 2;
        // Fits of several kernels cross: two tiles can share weights, one cannot.
        EXPECT_GE(best_ns(h200(), twice), 0.97 * ns) << describe(e) << " and " << describe(twice);
      }
    }
}

// Of maps whose kernels were timed on an H200 (share/cost/hopper.json): which of them a convolution takes
// whose filter LDS can hold. Where they came within 8 % of each other, either.
TEST(TmaPlan, FiltersStayInLdsWhereThatWasFaster) {
  const auto resident = [](int64_t side, int64_t channels, int64_t outputs) {
    const int64_t boxes = std::max<int64_t>(1, side / 8) * std::max<int64_t>(1, side / 16);
    const ConvExtent extent{.pixels = side * side,
                            .outputs = outputs,
                            .depth = 9 * channels,
                            .whole_steps = true,
                            .whole_blocks = channels % 64 == 0 && outputs % 32 == 0,
                            .boxed_pixels = boxes * 128,
                            .halo_pixels = boxes * 128,
                            .resident_channels = channels};
    return conv_default(h200(), extent).config.algorithm == GemmAlgorithm::kTmaResident;
  };
  for (const auto& [side, channels, outputs] : {std::tuple<int64_t, int64_t, int64_t>{512, 64, 32},
                                                {512, 96, 32},
                                                {512, 160, 32},
                                                {512, 192, 64},
                                                {512, 64, 64},
                                                {2048, 64, 64},
                                                {1024, 128, 128},
                                                {512, 256, 64},
                                                {2048, 64, 3},
                                                {1024, 128, 3}})
    EXPECT_TRUE(resident(side, channels, outputs)) << side << " " << channels << "->" << outputs;
  for (const auto& [side, channels, outputs] : {std::tuple<int64_t, int64_t, int64_t>{64, 64, 64},
                                                {128, 64, 64},
                                                {256, 64, 64},
                                                {256, 128, 128},
                                                {512, 256, 128},
                                                {256, 256, 256},
                                                {64, 320, 320},
                                                {64, 320, 4}})
    EXPECT_FALSE(resident(side, channels, outputs)) << side << " " << channels << "->" << outputs;
}

// A small map must be cut along the depth, a large one must not; a few outputs take none of these kernels.
TEST(TmaPlan, ConvolutionsTakeTheLeastEstimate) {
  const GpuTraits traits = h200();
  const auto of = [](int64_t pixels, int64_t outputs, int64_t depth, int64_t boxed = 0) {
    return ConvExtent{.pixels = pixels,
                      .outputs = outputs,
                      .depth = depth,
                      .whole_steps = true,
                      .whole_blocks = true,
                      .boxed_pixels = boxed};
  };
  for (const TmaRows from : {TmaRows::kGathered, TmaRows::kBoxes})
    for (const TmaExtent& e : extents(from)) {
      const ConvChoice choice =
          conv_default(traits, of(e.rows, e.columns, e.depth, from == TmaRows::kBoxes ? e.rows : 0));
      ASSERT_TRUE(uses_tma(choice.config.algorithm)) << describe(e);
      EXPECT_DOUBLE_EQ(tma_ns(traits, choice.config, e, {choice.multicast_size, choice.splits}),
                       best_ns(traits, e))
          << describe(e);
    }
  EXPECT_GT(conv_default(traits, of(128, 1280, 11520)).splits, 3);
  // 64 outputs take tiles of 64.
  EXPECT_EQ(conv_default(traits, of(1048576, 64, 576)).config.shape.block_n, 64);
  EXPECT_EQ(conv_default(traits, of(1048576, 64, 576, 1048576)).config.shape.block_n, 64);
  EXPECT_EQ(conv_default(traits, of(262144, 128, 1152)).splits, 1);
  const ConvChoice few = conv_default(traits, of(4096, 4, 2880));
  EXPECT_FALSE(uses_tma(few.config.algorithm));
}

}  // namespace
}  // namespace rocm_sd
