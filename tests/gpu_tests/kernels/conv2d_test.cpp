// conv2d on the test's GPU against the double-precision reference on the host, from the same rounded
// operands.
#include "kernels/conv/conv2d.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "gpu_tests/gpu_test.hpp"
#include "kernels/conv/conv2d_winograd_gpu.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/family/kernel_tables.hpp"
#include "support/conv2d_testing.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;

constexpr uint16_t kPoison = 0x7fff;  // NaN in f16 and bf16, and doubled in f32

// A tensor of the GPU full of NaN, so that an element nobody wrote is seen.
Tensor poisoned(GpuDevice& gpu, const Shape& shape, DType dtype) {
  Tensor y = make_tensor(gpu, shape, dtype);
  const std::vector<uint16_t> nans(y.bytes() / 2, kPoison);
  gpu.copy_to_device(y.data(), nans.data(), y.bytes());
  return y;
}

// The operands on the GPU and the reference's result from the host's copy of them.
struct Prepared {
  ConvOperands host, gpu;
  ConvWeight weight;
  Tensor want;  // on the host
  // result: the type of y, by default dtype.
  Prepared(const ConvCase& c, DType dtype, uint64_t seed, std::optional<DType> result = std::nullopt)
      : host(host_device(), c, dtype, seed, result),
        gpu(test_gpu(), c, dtype, seed, result),
        weight(gpu.conv_weight(test_gpu(), c)) {
    TestExec test;
    want = reference_conv2d(test.ex, host.x, host.conv_weight(host_device(), c), host.args(c));
    want = moved(host_device(), want);
  }
};

std::vector<double> on_host(const Tensor& t) {
  const std::vector<float> values = to_floats(test_gpu(), t);
  return {values.begin(), values.end()};
}

// The case by each of choices(extent), into NaNs; returns how many there were.
template <class Choices>
int match_by(const ConvCase& c, DType dtype, uint64_t seed, const Choices& choices) {
  const Prepared s(c, dtype, seed);
  const ConvArgs args = s.gpu.args(c);
  Arena arena(test_gpu());
  Exec ex(arena);
  const Tensor shape = poisoned(test_gpu(), s.want.shape(), dtype);
  const ConvProblem problem{s.gpu.x, s.weight, args, shape};
  const std::vector<ConvChoice> all = choices(conv_extent(problem));
  for (const ConvChoice& choice : all) {
    const Tensor y = poisoned(test_gpu(), s.want.shape(), dtype);
    conv2d_gpu_by(ex, ConvProblem{s.gpu.x, s.weight, args, y}, choice);
    expect_near(on_host(y), to_doubles(s.want), conv_tolerance(problem), describe(c, choice));
  }
  return static_cast<int>(all.size());
}

class Conv2dOnGpu : public testing::TestWithParam<DType> {};

void match_the_reference(DType dtype, DType result) {
  uint64_t seed = 1;
  for (const ConvCase& c : conv_cases()) {
    const Prepared s(c, dtype, seed += 11, result);
    Arena arena(test_gpu());
    Exec ex(arena);
    const ConvArgs args = s.gpu.args(c);
    const Tensor y = poisoned(test_gpu(), s.want.shape(), result);
    const ConvProblem problem{s.gpu.x, s.weight, args, y};
    const Refusal refusal = conv2d_supports_gpu(ex, problem);
    ASSERT_FALSE(refusal) << *refusal;
    ConvChoice choice = conv_default(test_gpu().traits(), conv_extent(problem));
    // Warpgroups that take whole tiles in turn have no parts of k.
    if (c.splits && !is_ping_pong(choice.config.algorithm)) choice.splits = c.splits;
    conv2d_gpu_by(ex, problem, choice);
    expect_near(on_host(y), to_doubles(s.want), conv_tolerance(problem), describe(c, choice));
  }
}

TEST_P(Conv2dOnGpu, MatchesTheReference) { match_the_reference(GetParam(), GetParam()); }
TEST(Conv2dOnGpuTypes, Bf16GivesFloat) { match_the_reference(DType::kBF16, DType::kF32); }

// By every configuration, whole and split.
void every_configuration(const std::vector<ConvCase>& cases, DType dtype, GemmAlgorithm algorithm,
                         DType result) {
  for (const ConvCase& c : cases) {
    const Prepared s(c, dtype, 3, result);
    const ConvArgs args = s.gpu.args(c);
    for (const GemmConfig& config : conv_configs_of(test_gpu().traits(), dtype))
      for (const int splits : {1, 3}) {
        if (config.algorithm != algorithm) continue;
        Arena arena(test_gpu());
        Exec ex(arena);
        const Tensor y = poisoned(test_gpu(), s.want.shape(), result);
        const ConvChoice choice{config, splits};
        const ConvProblem problem{s.gpu.x, s.weight, args, y};
        conv2d_gpu_by(ex, problem, choice);
        expect_near(on_host(y), to_doubles(s.want), conv_tolerance(problem), describe(c, choice));
      }
  }
}

// Pixels and outputs beyond a tile of every configuration, two inputs, odd sizes.
void every_configuration(DType dtype, GemmAlgorithm algorithm, std::optional<DType> asked = std::nullopt) {
  every_configuration({{{2, 13, 15, 40}, 16, 264, 3, 1, Padding::same(1), false, true, true, true},
                       {{1, 9, 20, 64}, 0, 44, 3, 2, Padding{0, 0, 1, 1}},
                       {{1, 7, 12, 96}, 0, 20, 3, 1, Padding::same(1), true},
                       // Channels in whole blocks, which AMD's kernels gather otherwise.
                       {{2, 7, 9, 64}, 128, 72, 3, 1, Padding::same(1), false, true},
                       // In halves of such, of both inputs or of one.
                       {{1, 8, 9, 96}, 32, 40, 3, 1, Padding::same(1), false, true},
                       {{1, 5, 13, 160}, 0, 32, 3, 2, Padding{0, 0, 1, 1}},
                       {{1, 6, 11, 64}, 0, 24, 5, 1, Padding{2, 1, 2, 3}}},
                      dtype, algorithm, asked.value_or(dtype));
}

TEST_P(Conv2dOnGpu, EveryConfigurationMatchesTheReference) {
  every_configuration(GetParam(), GemmAlgorithm::kTiles);
  every_configuration(GetParam(), GemmAlgorithm::kLoadsToLds);
}
// Main loops take several steps in turn: depths of one step and more, until every number of them was left
// over.
TEST_P(Conv2dOnGpu, EveryNumberOfSteps) {
  std::vector<ConvCase> cases;
  for (const int64_t blocks : {1, 2, 3, 4, 5, 6})  // whole ones, and with 8 channels more
    for (const int64_t more : {0, 8})
      cases.push_back({{1, 5, 7, 64 * blocks + more}, 0, 40, 1, 1, Padding{0, 0, 0, 0}});
  every_configuration(cases, GetParam(), GemmAlgorithm::kTiles, GetParam());
  every_configuration(cases, GetParam(), GemmAlgorithm::kLoadsToLds, GetParam());
}
// More tiles than compute units: those of the last round alone are cut; of a doubled image in each phase.
TEST_P(Conv2dOnGpu, TilesOfTheLastRound) {
  const GpuTraits& traits = test_gpu().traits();
  if (!kernel_tables(traits).sums_parts() || GetParam() == DType::kF32)
    GTEST_SKIP() << "another launch sums parts, or f32";
  const int64_t rows = traits.compute_units + 3;  // of 64 pixels
  for (const ConvCase& c : {ConvCase{{1, rows, 64, 264}, 0, 40, 1, 1, Padding{0, 0, 0, 0}},
                            ConvCase{{1, rows, 64, 72}, 0, 24, 3, 1, Padding::same(1), true}}) {
    const Prepared s(c, GetParam(), 3, GetParam());
    const ConvArgs args = s.gpu.args(c);
    for (const GemmConfig& config : conv_configs_of(traits, GetParam())) {
      if (config.shape.block_m != 64) continue;
      Arena arena(test_gpu());
      Exec ex(arena);
      const Tensor y = poisoned(test_gpu(), s.want.shape(), GetParam());
      const ConvChoice choice{config, 3, 1, SharedTileSet::kLastRound};
      const ConvProblem problem{s.gpu.x, s.weight, args, y};
      conv2d_gpu_by(ex, problem, choice);
      expect_near(on_host(y), to_doubles(s.want), conv_tolerance(problem), describe(c, choice));
    }
  }
}

TEST_P(Conv2dOnGpu, EveryWarpgroupConfigurationMatchesTheReference) {
  if (GetParam() == DType::kF32 || test_gpu().traits().arch != "sm_90")
    GTEST_SKIP() << "warpgroup products multiply 16-bit types on sm_90";
  every_configuration(GetParam(), GemmAlgorithm::kWgmma);
}

// Odd sizes, strides, padding, two inputs and phases, in every cluster of every tile.
TEST_P(Conv2dOnGpu, EveryTmaClusterMatchesTheReference) {
  if (GetParam() == DType::kF32 || !test_gpu().traits().tma)
    GTEST_SKIP() << "TMA's kernels multiply 16-bit types on sm_90";
  uint64_t seed = 0;
  for (const ConvCase& c :
       {ConvCase{{2, 13, 15, 64}, 128, 352, 3, 1, Padding::same(1), false, true, true, true},
        ConvCase{{3, 9, 21, 128}, 0, 96, 3, 2, Padding{0, 0, 1, 1}},
        ConvCase{{2, 10, 12, 192}, 0, 160, 3, 2, Padding::same(1), false, false, true},
        ConvCase{{1, 7, 12, 64}, 0, 288, 3, 1, Padding::same(1), true},
        ConvCase{{2, 11, 31, 320}, 64, 64, 1, 1, Padding{0, 0, 0, 0}, false, true},
        // Two and three rounds of tiles on a compute unit.
        ConvCase{{3, 60, 61, 64}, 0, 160, 3, 1, Padding::same(1), false, true, true},
        ConvCase{{4, 60, 61, 64}, 64, 288, 1, 1, Padding{0, 0, 0, 0}},
        ConvCase{{1, 6, 140, 64}, 0, 32, 5, 1, Padding{2, 1, 2, 3}},
        // In boxes: of one row, of several, of several images, and with some beyond the images.
        ConvCase{{1, 3, 256, 64}, 0, 96, 3, 1, Padding::same(1), false, true, true, true},
        ConvCase{{2, 32, 32, 64}, 64, 64, 3, 1, Padding::same(1), false, true, true, true},
        ConvCase{{2, 24, 40, 64}, 0, 160, 3, 1, Padding::same(1), false, true, true, true},
        ConvCase{{5, 8, 8, 128}, 0, 288, 3, 1, Padding::same(1), false, true, true, true},
        ConvCase{{2, 32, 16, 64}, 0, 64, 3, 2, Padding{0, 0, 1, 1}},
        ConvCase{{3, 16, 32, 128}, 0, 96, 3, 2, Padding::same(1), false, true},
        ConvCase{{2, 8, 16, 64}, 0, 64, 3, 1, Padding::same(1), true, true},
        ConvCase{{2, 16, 12, 192}, 64, 64, 1, 1, Padding{0, 0, 0, 0}, false, true}}) {
    const int tried = match_by(c, GetParam(), 4 + seed++ % 2, [](const ConvExtent& extent) {
      std::vector<ConvChoice> all = conv_candidates(test_gpu().traits(), extent);
      std::erase_if(all, [](const ConvChoice& choice) { return !uses_tma(choice.config.algorithm); });
      return all;
    });
    EXPECT_GT(tried, 3);
  }
}

// Filters that stay in LDS: blocks of 64 channels and half ones, pieces of outputs, phases, boxes of two
// images, some of them beyond the images, and several rounds of boxes on a compute unit.
TEST_P(Conv2dOnGpu, EveryResidentFilterMatchesTheReference) {
  if (GetParam() == DType::kF32 || !test_gpu().traits().tma)
    GTEST_SKIP() << "filters stay in LDS on sm_90, of 16-bit types";
  uint64_t seed = 0;
  for (const ConvCase& c :
       {ConvCase{{1, 16, 24, 64}, 0, 32}, ConvCase{{2, 15, 23, 32}, 0, 32},
        with_slopes({{1, 47, 63, 96}, 0, 32}), ConvCase{{1, 32, 48, 64}, 0, 3},
        with_slopes({{2, 16, 24, 128}, 0, 20, 3, 1, Padding::same(1), true, true}),
        with_slopes({{2, 32, 16, 160}, 0, 32, 3, 1, Padding::same(1), false, true, true, true}),
        ConvCase{
            {1, 46, 64, 128}, 0, 96, 3, 1, Padding::same(1), false, false, false, true, Activation::kSilu},
        ConvCase{{1, 31, 40, 192}, 0, 64, 3, 1, Padding::same(1), false, true, false, true},
        ConvCase{{2, 8, 16, 64}, 0, 64, 3, 1, Padding::same(1), true, true},
        with_slopes({{1, 32, 32, 128}, 0, 64, 3, 1, Padding::same(1), true}),
        ConvCase{{4, 8, 8, 128}, 0, 128, 3, 1, Padding::same(1), false, true, true, true},
        ConvCase{
            {3, 31, 39, 96}, 0, 64, 2, 1, Padding{1, 0, 0, 1}, false, true, true, false, Activation::kGelu},
        // Many boxes to a workgroup, of one and more blocks of channels.
        ConvCase{{1, 200, 260, 64}, 0, 96, 3, 1, Padding::same(1), false, true, true, true},
        ConvCase{{1, 64, 64, 96}, 0, 1024}, ConvCase{{1, 64, 64, 224}, 0, 512},
        ConvCase{{1, 184, 200, 64}, 0, 64, 3, 1, Padding{0, 2, 2, 0}, false, true, true, true}}) {
    const int tried = match_by(c, GetParam(), 4 + seed++ % 2, [&](const ConvExtent& extent) {
      std::vector<ConvChoice> all;
      for (const GemmConfig& config : conv_configs_of(test_gpu().traits(), GetParam()))
        if (config.algorithm == GemmAlgorithm::kTmaResident && extent.resident_channels > 0 &&
            extent.resident_channels <= config.shape.block_k &&
            (c.out < config.shape.block_n || c.out % config.shape.block_n == 0))
          all.push_back({config});
      return all;
    });
    EXPECT_GT(tried, 0) << describe(c);
  }
}

TEST_P(Conv2dOnGpu, SlopesOfValuesBelowZero) {
  for (const ConvCase& c : slope_cases())
    EXPECT_GT(match_by(c, GetParam(), 5,
                       [](const ConvExtent& e) { return conv_candidates(test_gpu().traits(), e); }),
              0);
}

TEST(Conv2dOnGpuTypes, EveryConfigurationGivesFloat) {
  every_configuration(DType::kBF16, GemmAlgorithm::kTiles, DType::kF32);
  every_configuration(DType::kBF16, GemmAlgorithm::kLoadsToLds, DType::kF32);
  if (test_gpu().traits().arch == "sm_90")
    every_configuration(DType::kBF16, GemmAlgorithm::kWgmma, DType::kF32);
}

TEST_P(Conv2dOnGpu, HoldsFiltersOnceAndGivesThemBack) {
  for (const auto& [first, second] : {std::pair<int64_t, int64_t>{64, 0}, {40, 24}, {9, 3}}) {
    const ConvCase c{{1, 6, 6, first}, second, 24};
    const Prepared s(c, GetParam(), 6);
    Arena arena(test_gpu());
    Exec ex(arena);
    (void)conv2d(ex, s.gpu.x, s.weight, s.gpu.args(c));
    const int64_t padded = conv_padded_channels(first, GetParam()) + conv_padded_channels(second, GetParam());
    EXPECT_EQ(s.weight.weight.stored_bytes(), static_cast<size_t>(24 * 9 * padded) * dtype_size(GetParam()));
    EXPECT_EQ(on_host(s.weight.weight.plain()), to_doubles(s.host.weight)) << first << "+" << second;
  }
}

// Operands and result that are parts of maps' channels, of every configuration: as whole ones give it, and
// nothing beside the result is written.
TEST_P(Conv2dOnGpu, PartsOfMaps) {
  const int64_t piece = 16 / static_cast<int64_t>(dtype_size(GetParam()));
  for (const ConvCase& c : {ConvCase{{2, 9, 13, 64}, 0, 32, 3, 1, Padding::same(1), false, true, false, true},
                            ConvCase{{1, 7, 18, 32}, 96, 64, 3, 1, Padding::same(1), false, true, true, true},
                            ConvCase{{1, 6, 10, 128}, 64, 96, 1, 2, Padding{0, 0, 0, 0}, false, true},
                            ConvCase{{1, 5, 6, 40}, 0, 24, 3, 1, Padding::same(1), true, true}}) {
    const Prepared s(c, GetParam(), 7);
    Arena arena(test_gpu());
    Exec ex(arena);
    // In a map with `before` and `after` channels more.
    const auto part = [&](const Tensor& whole, int64_t before, int64_t after) {
      Shape shape = whole.shape();
      shape[3] += before + after;
      const Tensor map = poisoned(test_gpu(), shape, whole.dtype());
      const Tensor out = map.narrow(3, before, whole.dim(3));
      copy_into(ex, whole, out);
      return out;
    };
    const Tensor x = part(s.gpu.x, piece, 2 * piece),
                 second = c.second ? part(s.gpu.second, 0, piece) : Tensor();
    const Tensor residual = part(s.gpu.residual, 0, 5 * piece);
    ConvArgs args = s.gpu.args(c);
    if (c.second) args.second = &second;
    if (c.residual) args.epilogue.residual = &residual;
    ASSERT_TRUE(conv2d_takes_parts(ex));
    Shape wider = s.want.shape();
    wider[3] += 5 * piece;
    const auto check = [&](const auto& run, const std::string& what,
                           std::optional<double> allowed = std::nullopt) {
      const Tensor map = poisoned(test_gpu(), wider, GetParam());
      const Tensor into = map.narrow(3, 2 * piece, c.out);
      run(into);
      const Tensor dense = ex.alloc(s.want.shape(), GetParam());
      copy_into(ex, into, dense);
      const ConvProblem problem{x, s.weight, args, into};
      expect_near(on_host(dense), to_doubles(s.want), allowed.value_or(conv_tolerance(problem)), what);
      int64_t poison = 0;
      for (const float v : to_floats(test_gpu(), map)) poison += std::isnan(v);
      EXPECT_EQ(poison, map.numel() - into.numel()) << what;
    };
    check(
        [&](const Tensor& into) {
          args.into = &into;
          (void)conv2d(ex, x, s.weight, args);
          args.into = nullptr;
        },
        describe(c));
    const Tensor y = poisoned(test_gpu(), wider, GetParam()).narrow(3, 2 * piece, c.out);
    const ConvProblem problem{x, s.weight, args, y};
    for (const ConvChoice& choice : conv_candidates(test_gpu().traits(), conv_extent(problem)))
      check([&](const Tensor& into) { conv2d_gpu_by(ex, ConvProblem{x, s.weight, args, into}, choice); },
            describe(c, choice));
    if (!conv2d_refuses_winograd(ex, problem))
      check([&](const Tensor& into) { conv2d_winograd_gpu(ex, ConvProblem{x, s.weight, args, into}); },
            describe(c) + " by Winograd", winograd_tolerance(c.x[3]));
  }
}

TEST_P(Conv2dOnGpu, RefusesPartsThatAreNotOfPieces) {
  const ConvCase c{{1, 4, 4, 16}, 0, 8};
  const Prepared s(c, GetParam(), 2);
  Arena arena(test_gpu());
  Exec ex(arena);
  const Tensor map = ex.alloc({1, 4, 4, 34}, GetParam());
  EXPECT_THROW((void)conv2d(ex, map.narrow(3, 1, 16), s.weight, s.gpu.args(c)), ShapeError);
  const Tensor narrow = ex.alloc({1, 4, 4, 9}, GetParam()).narrow(3, 0, 8);
  ConvArgs args = s.gpu.args(c);
  args.into = &narrow;
  EXPECT_THROW((void)conv2d(ex, s.gpu.x, s.weight, args), ShapeError);
  const Tensor other = ex.alloc({1, 4, 4, 16}, GetParam()), residual = ex.alloc({1, 4, 4, 8}, GetParam());
  const Tensor into = other.narrow(3, 0, 8);
  args.into = &into;
  args.epilogue.residual = &residual;  // denser than the result
  EXPECT_THROW((void)conv2d(ex, s.gpu.x, s.weight, args), ShapeError);
}

TEST_P(Conv2dOnGpu, GivesTheSameBitsTwice) {
  const ConvCase c{{2, 8, 8, 320}, 0, 64, 3, 1, Padding::same(1), false, true, true, true};
  const Prepared s(c, GetParam(), 5);
  std::vector<double> results[2];
  for (auto& result : results) {
    Arena arena(test_gpu());
    Exec ex(arena);
    const ConvArgs args = s.gpu.args(c);
    const Tensor y = poisoned(test_gpu(), s.want.shape(), GetParam());
    const ConvProblem problem{s.gpu.x, s.weight, args, y};
    ConvChoice choice = conv_default(test_gpu().traits(), conv_extent(problem));
    choice.splits = 4;
    conv2d_gpu_by(ex, problem, choice);
    result = on_host(y);
  }
  EXPECT_EQ(results[0], results[1]);
}

// Layers that the list of SD 1.5's and SDXL's shapes (tests/gpu_tests/measurement) does not have: the first
// one of inpainting, and the VAE's of a picture that is no square.
TEST_P(Conv2dOnGpu, LayersOfOtherModelsFull) {
  for (const ConvCase& c :
       {ConvCase{{2, 64, 64, 9}, 0, 320, 3},
        ConvCase{{1, 96, 64, 256}, 0, 128, 3, 1, Padding::same(1), false, true, false, true},
        ConvCase{{1, 72, 40, 128}, 0, 128, 3, 2, Padding{0, 0, 1, 1}}}) {
    const Prepared s(c, GetParam(), 8);
    Arena arena(test_gpu());
    Exec ex(arena);
    const ConvArgs args = s.gpu.args(c);
    const Tensor y = conv2d(ex, s.gpu.x, s.weight, args);
    const ConvProblem problem{s.gpu.x, s.weight, args, y};
    const bool winograd = !conv2d_refuses_winograd(ex, problem) && conv2d_prefers_winograd(ex, problem);
    expect_near(on_host(y), to_doubles(s.want),
                winograd ? winograd_tolerance(c.x[3]) : conv_tolerance(problem), describe(c, {}));
  }
}

INSTANTIATE_TEST_SUITE_P(All, Conv2dOnGpu, testing::Values(DType::kF16, DType::kBF16, DType::kF32),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

TEST(Conv2dOnGpu, CpuRowsRefuse) {
  const ConvCase c{{1, 6, 6, 8}, 0, 8};
  const ConvOperands operands(test_gpu(), c, DType::kF32, 1);
  const ConvWeight w = operands.conv_weight(test_gpu(), c);
  Arena arena(test_gpu());
  Exec ex(arena);
  for (const char* impl : {"ref", "tiled", "onednn", "winograd"}) {
    const ForcedImpl only("conv2d", impl);
    EXPECT_THROW((void)conv2d(ex, operands.x, w, operands.args(c)), UsageError) << impl;
  }
}

}  // namespace
}  // namespace rocm_sd
