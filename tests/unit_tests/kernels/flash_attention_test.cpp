// The portable bodies of flash attention with one lane, against the double-precision reference.
#include "composable_kernels/fused/flash_attention.hpp"

#include <gtest/gtest.h>

#include <span>

#include "base/format.hpp"
#include "composable_kernels/arch/scalar.hpp"
#include "composable_kernels/fused/flash_large_d.hpp"
#include "composable_kernels/fused/flash_merge.hpp"
#include "kernels/attention/attention.hpp"
#include "support/implementations.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <class Storage, int kDim_, int kKeys_, int kAtoms, int kStages_, bool kGeneral_, bool kTransposed_,
          bool kInLds = false, class Policy = RegisterStaged>
struct Cfg {
  using T = Storage;
  using Pipeline = Policy;
  static constexpr int kDim = kDim_, kQueryAtoms = kAtoms, kKeys = kKeys_, kWaves = 1, kStages = kStages_;
  static constexpr bool kGeneral = kGeneral_, kTransposed = kTransposed_, kQueriesInLds = kInLds;
};

template <class Storage, int kChunk, int kStages_, bool kTransposed_, class Policy = RegisterStaged,
          bool kInLds = true>
struct LargeDCfg {
  using T = Storage;
  using Pipeline = Policy;
  static constexpr bool kQueriesInLds = kInLds;
  static constexpr int kDim = 96, kQueries = 32, kKeys = 48, kWavesQ = 1, kWavesK = 1;
  static constexpr int kChunkDim = kChunk, kChunkKeys = 16, kStages = kStages_;
  static constexpr bool kTransposed = kTransposed_;
};

struct Case {
  int64_t batch, heads, queries, keys;
  bool causal = false, masked = false;
  int splits = 1;
  float scale = 0, spread = 1;
};

template <class T>
constexpr DType kDType = std::is_same_v<T, Half> ? DType::kF16 : DType::kBF16;

// Inputs as thirds of packed rows, [batch, tokens, 3 heads D] with the rest poisoned.
template <class T>
struct Problem {
  Problem(const Case& shape, int64_t head_dim, uint64_t seed) : c(shape), dim(head_dim) {
    const int64_t width = c.heads * dim;
    const auto fill = [&](int64_t tokens, int third, uint64_t s) {
      const Tensor values = random_tensor({c.batch, tokens, width}, kDType<T>, s, c.spread);
      std::vector<T> packed(static_cast<size_t>(c.batch * tokens * 3 * width));
      for (T& x : packed) store(x, std::numeric_limits<float>::quiet_NaN());
      for (int64_t row = 0; row < c.batch * tokens; ++row)
        std::copy_n(values.as<T>() + row * width, width, packed.data() + (row * 3 + third) * width);
      return packed;
    };
    q = fill(c.queries, 0, seed);
    k = fill(c.keys, 1, seed + 1);
    v = fill(c.keys, 2, seed + 2);
    if (c.masked) {
      mask = to_floats(host_device(), random_tensor({c.heads, c.queries, c.keys}, DType::kF32, seed + 3));
      for (size_t i = 0; i < mask.size(); i += 3) mask[i] = -kInfinity;
      for (int64_t j = 0; j < c.keys; ++j)
        mask[static_cast<size_t>(c.keys * (c.queries / 2) + j)] = -kInfinity;
    }
    scale = c.scale != 0 ? c.scale : 1 / std::sqrt(static_cast<float>(dim));
  }

  // The reference from the same rounded inputs, in f32.
  std::vector<double> reference() const {
    const int64_t width = c.heads * dim;
    const auto unpack = [&](const std::vector<T>& packed, int64_t tokens, int third) {
      std::vector<float> out;
      for (int64_t row = 0; row < c.batch * tokens; ++row)
        for (int64_t i = 0; i < width; ++i)
          out.push_back(to_float(packed[static_cast<size_t>((row * 3 + third) * width + i)]));
      return tensor_from(host_device(), {c.batch, tokens, width}, out.data());
    };
    const ForcedImpl forced("attention", "ref");
    TestExec test;
    const Tensor mask_tensor =
        c.masked ? tensor_from(host_device(), {1, c.heads, c.queries, c.keys}, mask.data()) : Tensor();
    const AttentionArgs args{.heads = static_cast<int>(c.heads),
                             .scale = scale,
                             .causal = c.causal,
                             .mask = c.masked ? &mask_tensor : nullptr};
    return to_doubles(
        attention(test.ex, unpack(q, c.queries, 0), unpack(k, c.keys, 1), unpack(v, c.keys, 2), args));
  }

  FlashParams<T> params(int tile_keys) {
    const int64_t width = c.heads * dim, rows = c.batch * c.heads * c.queries;
    y.resize(static_cast<size_t>(rows * dim));
    for (T& x : y) store(x, std::numeric_limits<float>::quiet_NaN());
    sums.assign(static_cast<size_t>(c.splits * rows * dim), std::numeric_limits<float>::quiet_NaN());
    stats.assign(static_cast<size_t>(c.splits * rows * 2), std::numeric_limits<float>::quiet_NaN());
    FlashParams<T> p{};
    p.q = {q.data(), c.queries * 3 * width, 3 * width};
    p.k = {k.data() + width, c.keys * 3 * width, 3 * width};
    p.v = {v.data() + 2 * width, c.keys * 3 * width, 3 * width};
    p.y = y.data();
    p.partial_sums = sums.data();
    p.partial_stats = stats.data();
    if (c.masked) {
      p.mask = mask.data();
      p.mask_strides[1] = c.queries * c.keys;
      p.mask_strides[2] = c.keys;
      p.mask_strides[3] = 1;
    }
    p.heads = static_cast<int>(c.heads);
    p.batch_heads = static_cast<int>(c.batch * c.heads);
    p.queries = static_cast<int>(c.queries);
    p.keys = static_cast<int>(c.keys);
    p.splits = c.splits;
    const int64_t tiles = (c.keys + tile_keys - 1) / tile_keys;
    p.keys_per_split = static_cast<int>((tiles + c.splits - 1) / c.splits * tile_keys);
    p.scale = scale * 1.44269504088896f;
    p.causal = c.causal;
    return p;
  }

  // Sums in float over 16-bit weights: their roundings are independent and relative to sums of size rms(v);
  // the scores' own rounding enters the exponent.
  double tolerance() const {
    const double u = unit_roundoff(kDType<T>);
    return 5 * u + 8 * reduction_tolerance(DType::kF32, dim + c.keys) * std::max(1.0f, c.spread * c.spread);
  }

  Case c;
  int64_t dim;
  float scale;
  std::vector<T> q, k, v, y;
  std::vector<float> mask, sums, stats;
};

template <class Body, class T>
void run_grid(const FlashParams<T>& p, int queries_per_group, int lds_elements) {
  for (int tile = 0; tile * queries_per_group < p.queries; ++tile)
    for (int head = 0; head < p.batch_heads; ++head)
      for (int split = 0; split < p.splits; ++split) {
        std::vector<T> lds(static_cast<size_t>(lds_elements) + 8);
        for (T& x : lds) store(x, std::numeric_limits<float>::quiet_NaN());
        auto* aligned = reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(lds.data()) + 15) / 16 * 16);
        const auto body = std::make_unique<Body>(p, aligned, FlashGroup{tile, head, split});
        body->run();
      }
}

template <class Config, class Body = FlashAttention<Scalar, Config>>
void check(const Case& c, uint64_t seed = 5) {
  using T = typename Config::T;
  SCOPED_TRACE(fmt::format("{}x{}x{}x{}x{}{}{} in {} splits", c.batch, c.heads, c.queries, c.keys,
                           Config::kDim, c.causal ? " causal" : "", c.masked ? " masked" : "", c.splits));
  Problem<T> problem(c, Config::kDim, seed);
  const FlashParams<T> p = problem.params(Config::kKeys);
  run_grid<Body>(p, Body::kQueries, Body::kLdsElements);
  if (c.splits > 1) {
    const FlashMergeParams<T> merge{p.partial_sums, p.partial_stats,           p.y,          p.heads,
                                    p.queries,      p.batch_heads * p.queries, Config::kDim, p.splits};
    for (int64_t row = 0; row < merge.rows; ++row) flash_merge<Scalar>(merge, row, 0, 1);
  }
  std::vector<double> got;
  for (const T& x : problem.y) got.push_back(to_float(x));
  expect_near(got, problem.reference(), problem.tolerance());
}

template <class T>
class FlashAttentionTest : public testing::Test {};
using Types = testing::Types<Half, Bf16>;
TYPED_TEST_SUITE(FlashAttentionTest, Types);

const Case kPlain[] = {{1, 1, 1, 1}, {2, 2, 37, 77}, {1, 1, 65, 130}};
const Case kMasked[] = {{1, 2, 77, 77, true},
                        {2, 2, 33, 50, false, true},
                        {1, 1, 40, 20, true, true},
                        {1, 1, 20, 40, true},
                        {1, 2, 17, 90, false, false, 1, -0.3f}};
const Case kSplit[] = {
    {1, 2, 21, 200, false, false, 3}, {1, 1, 16, 40, false, false, 4}, {1, 2, 70, 130, true, true, 2}};

// Tiles whose keys all queries see beside tiles with hidden keys and tiles that a mask is added to.
const Case kDiagonal[] = {{1, 2, 130, 130, true},
                          {1, 1, 70, 200, true},
                          {1, 1, 200, 70, true},
                          {2, 1, 97, 131, true, false, 1, -0.3f},
                          {1, 1, 130, 130, false, false, 1, -0.3f},
                          {1, 2, 97, 131, true, true},
                          {1, 1, 130, 130, true, false, 3},
                          {1, 1, 97, 200, true, false, 5},
                          {1, 1, 97, 131, true, true, 2, -0.3f},
                          {1, 1, 70, 200, true, false, 1, 0, 6}};

TYPED_TEST(FlashAttentionTest, MatchesReferenceForEveryHeadDim) {
  using T = TypeParam;
  for (const Case& c : kPlain) {
    check<Cfg<T, 40, 32, 2, 2, false, true>>(c);
    check<Cfg<T, 40, 64, 1, 2, false, false>>(c);
    check<Cfg<T, 64, 32, 2, 1, false, false>>(c);
    check<Cfg<T, 160, 32, 1, 1, false, true, true>>(c);
    check<Cfg<T, 40, 32, 2, 3, false, false, false, AsyncCopies>>(c);
  }
}

TYPED_TEST(FlashAttentionTest, MatchesReferenceUnderMasksAndCausally) {
  for (const Case& c : kMasked) check<Cfg<TypeParam, 40, 32, 1, 2, true, true>>(c);
}

TYPED_TEST(FlashAttentionTest, MatchesReferenceBesideTheDiagonal) {
  for (const Case& c : kDiagonal) {
    check<Cfg<TypeParam, 40, 32, 1, 2, true, true>>(c);
    check<Cfg<TypeParam, 64, 32, 2, 1, true, false, true>>(c);
    check<Cfg<TypeParam, 40, 16, 2, 3, true, false, false, AsyncCopies>>(c);
  }
}

// A scale of zero keeps no order of scores: all visible keys weigh alike.
TYPED_TEST(FlashAttentionTest, ZeroScaleTakesTheMeanOfVisibleValues) {
  using Config = Cfg<TypeParam, 40, 32, 1, 2, true, true>;
  using Body = FlashAttention<Scalar, Config>;
  for (const bool masked : {false, true}) {
    Problem<TypeParam> problem({1, 1, 97, 131, true, masked, 1, 1e-30f}, 40, 11);
    FlashParams<TypeParam> p = problem.params(Config::kKeys);
    p.scale = 0;
    run_grid<Body>(p, Body::kQueries, Body::kLdsElements);
    std::vector<double> got;
    for (const TypeParam& x : problem.y) got.push_back(to_float(x));
    expect_near(got, problem.reference(), problem.tolerance());
  }
}

TYPED_TEST(FlashAttentionTest, MergesSplits) {
  for (const Case& c : kSplit) check<Cfg<TypeParam, 40, 32, 1, 2, true, true>>(c);
}

TYPED_TEST(FlashAttentionTest, LargeHeadDimMatchesReference) {
  using Rows = LargeDCfg<TypeParam, 32, 3, false>;
  using Transposed = LargeDCfg<TypeParam, 48, 1, true>;
  using Async = LargeDCfg<TypeParam, 32, 3, false, AsyncCopies>;
  using InRegisters = LargeDCfg<TypeParam, 48, 1, true, RegisterStaged, false>;
  for (const std::span<const Case> cases : {std::span<const Case>(kPlain), std::span<const Case>(kMasked),
                                            std::span<const Case>(kDiagonal), std::span<const Case>(kSplit)})
    for (const Case& c : cases) {
      check<Rows, FlashLargeD<Scalar, Rows>>(c);
      check<Transposed, FlashLargeD<Scalar, Transposed>>(c);
      check<Async, FlashLargeD<Scalar, Async>>(c);
      check<InRegisters, FlashLargeD<Scalar, InRegisters>>(c);
    }
}

TYPED_TEST(FlashAttentionTest, NoKeysGiveZeros) {
  using LargeD = LargeDCfg<TypeParam, 48, 1, true>;
  check<Cfg<TypeParam, 40, 32, 1, 2, true, true>>({1, 2, 5, 0});
  check<LargeD, FlashLargeD<Scalar, LargeD>>({1, 2, 5, 0});
}

// Maxima that grow from tile to tile by more than the slack of the softmax's base, and scores of hundreds.
TYPED_TEST(FlashAttentionTest, FollowsGrowingScores) {
  using LargeD = LargeDCfg<TypeParam, 48, 1, true>;
  for (const Case& c :
       {Case{1, 1, 33, 300, false, false, 1, 0, 6}, Case{1, 1, 33, 300, false, false, 2, 0, 6}}) {
    check<Cfg<TypeParam, 40, 32, 1, 2, true, true>>(c);
    check<LargeD, FlashLargeD<Scalar, LargeD>>(c);
  }
}

TYPED_TEST(FlashAttentionTest, NanStaysInItsRow) {
  using T = TypeParam;
  using Config = Cfg<T, 40, 32, 1, 2, true, true>;
  Problem<T> problem({1, 1, 20, 50}, 40, 9);
  store(problem.q[3 * 120 + 7], std::numeric_limits<float>::quiet_NaN());
  const FlashParams<T> p = problem.params(Config::kKeys);
  run_grid<FlashAttention<Scalar, Config>>(p, FlashAttention<Scalar, Config>::kQueries,
                                           FlashAttention<Scalar, Config>::kLdsElements);
  for (size_t i = 0; i < problem.y.size(); ++i)
    EXPECT_EQ(std::isnan(to_float(problem.y[i])), i / 40 == 3) << i;
}

}  // namespace
}  // namespace rocm_sd
