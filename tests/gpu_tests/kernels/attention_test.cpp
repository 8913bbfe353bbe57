// attention on the GPU: every kernel and split against the double-precision reference; masks, strides, hidden
// rows, refusals.
#include "kernels/attention/attention.hpp"

#include <gmock/gmock.h>

#include "base/format.hpp"
#include "gpu_tests/against_reference.hpp"
#include "kernels/attention/flash_plan.hpp"
#include "kernels/gpu_launch.hpp"
#include "support/implementations.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;
using testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Case {
  int64_t batch, queries, keys, head_dim;
  int heads;
  bool causal = false;
  float scale = 0, spread = 1;
  float growth = 0;  // key j is 1 + growth * j times as large
};
std::string describe(const Case& c, DType dtype) {
  return fmt::format("{} {}x{}x{}x{}x{}{}", dtype, c.batch, c.heads, c.queries, c.keys, c.head_dim,
                     c.causal ? " causal" : "");
}

struct Inputs {
  Tensor q, k, v;
};
Inputs random_inputs(const Case& c, DType dtype, uint64_t seed) {
  const int64_t width = c.heads * c.head_dim;
  Inputs in{random_tensor({c.batch, c.queries, width}, dtype, seed, c.spread),
            random_tensor({c.batch, c.keys, width}, dtype, seed + 1, c.spread),
            random_tensor({c.batch, c.keys, width}, dtype, seed + 2)};
  if (c.growth > 0) {
    std::vector<float> k = to_floats(host_device(), in.k);
    for (size_t i = 0; i < k.size(); ++i)
      k[i] *= 1 + c.growth * static_cast<float>(static_cast<int64_t>(i) / width % c.keys);
    in.k = tensor_from(host_device(), in.k.shape(), k.data(), dtype);
  }
  return in;
}

// Weights and results are rounded to the type, each weight independently; scores err in the exponent by the
// rounding of a float times their size.
double tolerance(const Case& c, DType dtype) {
  const double weights = dtype == DType::kF32 ? 0 : 3 * unit_roundoff(dtype);
  return 2 * unit_roundoff(dtype) + weights +
         8 * reduction_tolerance(DType::kF32, c.head_dim + c.keys) * std::max(1.0f, c.spread * c.spread) *
             (1 + c.growth * static_cast<float>(c.keys));
}

PlacedOp op_of(const Inputs& in, const Case& c, const Tensor* mask) {
  return [&in, c, mask](Exec& ex, const Place& place) {
    Tensor placed;
    if (mask) placed = place(*mask);
    return attention(
        ex, place(in.q), place(in.k), place(in.v),
        {.heads = c.heads, .scale = c.scale, .causal = c.causal, .mask = mask ? &placed : nullptr});
  };
}

void check(const Case& c, DType dtype, const Tensor* mask = nullptr) {
  const Inputs in = random_inputs(c, dtype, 7);
  expect_like_reference("attention", op_of(in, c, mask), tolerance(c, dtype), describe(c, dtype));
}

AttentionProblem problem_of(const Case& c, DType dtype, const Tensor& q, const Tensor& k, const Tensor& v) {
  const int64_t width = c.heads * c.head_dim;
  AttentionProblem p{.q = {q.data(), c.queries * width, width},
                     .k = {k.data(), c.keys * width, width},
                     .v = {v.data(), c.keys * width, width}};
  p.causal = c.causal;
  p.dtype = dtype;
  p.batch = c.batch;
  p.heads = c.heads;
  p.queries = c.queries;
  p.keys = c.keys;
  p.head_dim = c.head_dim;
  p.scale = c.scale != 0 ? c.scale : 1 / std::sqrt(static_cast<float>(c.head_dim));
  return p;
}

// Every kernel that could take the case, whole and in splits.
void check_every_plan(const Case& c, DType dtype, bool warpgroups = false) {
  const Inputs in = random_inputs(c, dtype, 5);
  const std::vector<double> want = on_host("attention", op_of(in, c, nullptr));
  GpuTestExec gpu;
  const Tensor q = gpu.to_gpu(in.q), k = gpu.to_gpu(in.k), v = gpu.to_gpu(in.v);
  AttentionProblem p = problem_of(c, dtype, q, k, v);
  const std::vector<FlashKernel> kernels = flash_candidates(p, gpu.device.traits());
  EXPECT_FALSE(kernels.empty());
  for (const FlashKernel& kernel : kernels)
    for (const int splits : {1, 3}) {
      const bool by_warpgroups = kernel.name.find("flash_wgmma") == 0 || kernel.name.find("flash_tma") == 0 ||
                                 kernel.name.find("flash_single_tile_kv") == 0;
      if (by_warpgroups != warpgroups) continue;
      const Tensor y = gpu.ex.alloc({c.batch, c.queries, c.heads * c.head_dim}, dtype);
      p.y = y.data();
      const FlashPlan plan = plan_flash(kernel, splits, p, gpu.device.traits());
      run_flash(gpu.ex, p, plan);
      const std::vector<float> got = to_floats(gpu.device, y);
      expect_near({got.begin(), got.end()}, want, tolerance(c, dtype),
                  fmt::format("{} {} in {}", describe(c, dtype), kernel.name, plan.splits));
    }
}

// Kernels that hold all keys, in runs of tiles that end within heads and take every warpgroup several times.
void check_runs(const Case& c, DType dtype) {
  const Inputs in = random_inputs(c, dtype, 5);
  const std::vector<double> want = on_host("attention", op_of(in, c, nullptr));
  GpuTestExec gpu;
  const Tensor q = gpu.to_gpu(in.q), k = gpu.to_gpu(in.k), v = gpu.to_gpu(in.v);
  AttentionProblem p = problem_of(c, dtype, q, k, v);
  int checked = 0;
  for (const FlashKernel& kernel : flash_candidates(p, gpu.device.traits()))
    for (const int64_t run : {1, 2, 5, 6, 11}) {
      FlashPlan plan = plan_flash(kernel, 1, p, gpu.device.traits());
      if (kernel.algorithm != FlashAlgorithm::kSingleTileKv || run > plan.tiles + 1) continue;
      plan.run_tiles = run;
      p.pdl_keys_ready = run % 2 == 0;
      const Tensor y = gpu.ex.alloc({c.batch, c.queries, c.heads * c.head_dim}, dtype);
      p.y = y.data();
      run_flash(gpu.ex, p, plan);
      const std::vector<float> got = to_floats(gpu.device, y);
      expect_near({got.begin(), got.end()}, want, tolerance(c, dtype),
                  fmt::format("{} {} runs of {}", describe(c, dtype), kernel.name, run));
      ++checked;
    }
  EXPECT_GT(checked, 0);
}

class GpuAttentionTest : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(All, GpuAttentionTest, testing::Values(DType::kF16, DType::kBF16),
                         [](const auto& info) { return fmt::format("{}", info.param); });

TEST_P(GpuAttentionTest, EveryPlanMatchesReference) {
  for (const int64_t dim : {32, 40, 64, 80, 104, 128, 160, 512}) {
    check_every_plan({1, 1, 1, dim, 1}, GetParam());
    check_every_plan({2, 65, 154, dim, 2}, GetParam());
    check_every_plan({1, 37, 300, dim, 2}, GetParam());
  }
}

TEST_P(GpuAttentionTest, EveryGeneralPlanMatchesReference) {
  for (const int64_t dim : {32, 40, 64, 80, 104, 128, 160, 512}) {
    check_every_plan({1, 77, 77, dim, 2, true}, GetParam());
    check_every_plan({1, 150, 90, dim, 1, true}, GetParam());
    check_every_plan({2, 33, 210, dim, 1, false, -0.2f}, GetParam());
  }
}

// Tiles whose keys all of a wave's queries see, beside tiles with hidden keys, in whole and in splits of the
// keys of which some end before the diagonal and some begin behind it.
TEST_P(GpuAttentionTest, EveryGeneralPlanMatchesReferenceBesideTheDiagonal) {
  for (const int64_t dim : {32, 40, 64, 80, 104, 128, 160, 512}) {
    check_every_plan({1, 205, 205, dim, 1, true}, GetParam());
    check_every_plan({1, 75, 230, dim, 1, true}, GetParam());
    check_every_plan({1, 135, 131, dim, 1, true, -0.2f}, GetParam());
  }
}

TEST_P(GpuAttentionTest, MasksBroadcastOverCausalTiles) {
  for (const int64_t dim : {40, 64})
    for (int broadcast = 0; broadcast < 8; ++broadcast) {
      const Case c{2, 135, 150, dim, 2, true, broadcast % 3 == 0 ? -0.2f : 0};
      const Shape shape = {broadcast & 1 ? 1 : c.batch, broadcast & 2 ? 1 : c.heads,
                           broadcast & 4 ? 1 : c.queries, c.keys};
      std::vector<float> values = to_floats(host_device(), random_tensor(shape, DType::kF32, 17));
      for (size_t i = 0; i < values.size(); i += 5) values[i] = -kInfinity;
      const Tensor mask = tensor_from(host_device(), shape, values.data());
      check(c, GetParam(), &mask);
    }
}

TEST_P(GpuAttentionTest, MasksBroadcast) {
  for (const int64_t dim : {40, 64, 512})
    for (int broadcast = 0; broadcast < 8; ++broadcast) {
      const Case c{2, 35, 77, dim, 2};
      const Shape shape = {broadcast & 1 ? 1 : c.batch, broadcast & 2 ? 1 : c.heads,
                           broadcast & 4 ? 1 : c.queries, c.keys};
      std::vector<float> values = to_floats(host_device(), random_tensor(shape, DType::kF32, 13));
      for (size_t i = 0; i < values.size(); i += 3) values[i] = -kInfinity;
      for (int64_t j = 0; j < c.keys; ++j)
        values[static_cast<size_t>(j)] = -kInfinity;  // a row that sees nothing
      const Tensor mask = tensor_from(host_device(), shape, values.data());
      check(c, GetParam(), &mask);
    }
}

TEST_P(GpuAttentionTest, HiddenRowsGiveZeros) {
  const Case c{1, 6, 400, 64, 2};
  const Inputs in = random_inputs(c, GetParam(), 3);
  std::vector<float> values(static_cast<size_t>(c.queries * c.keys), 0.0f);
  for (int64_t j = 0; j < c.keys; ++j) values[static_cast<size_t>(2 * c.keys + j)] = -kInfinity;
  for (int64_t j = 0; j < 390; ++j) values[static_cast<size_t>(3 * c.keys + j)] = -kInfinity;
  const Tensor mask = tensor_from(host_device(), {1, 1, c.queries, c.keys}, values.data());
  const std::vector<double> got = on_gpu("attention", op_of(in, c, &mask));
  for (size_t i = 0; i < 128; ++i) EXPECT_EQ(got[2 * 128 + i], 0.0);
}

TEST_P(GpuAttentionTest, NoKeysGiveZerosAndNoQueriesNothing) {
  for (const int64_t dim : {40, 512}) {
    const Inputs none = random_inputs({1, 3, 0, dim, 1}, GetParam(), 1);
    for (const double y : on_gpu("attention", op_of(none, {1, 3, 0, dim, 1}, nullptr))) EXPECT_EQ(y, 0.0);
    const Inputs empty = random_inputs({2, 0, 5, dim, 1}, GetParam(), 1);
    EXPECT_TRUE(on_gpu("attention", op_of(empty, {2, 0, 5, dim, 1}, nullptr)).empty());
  }
}

// Maxima that move from tile to tile, and scores of hundreds.
TEST_P(GpuAttentionTest, FollowsLargeScores) {
  for (const int64_t dim : {40, 64, 512}) check({1, 33, 700, dim, 1, false, 0, 6}, GetParam());
}

TEST_P(GpuAttentionTest, NanStaysInItsRow) {
  for (const int64_t dim : {40, 64, 512}) {
    const Case c{1, 20, 150, dim, 1};
    Inputs in = random_inputs(c, GetParam(), 9);
    std::vector<float> values = to_floats(host_device(), in.q);
    values[static_cast<size_t>(3 * dim + 7)] = std::numeric_limits<float>::quiet_NaN();
    in.q = tensor_from(host_device(), in.q.shape(), values.data(), GetParam());
    const std::vector<double> got = on_gpu("attention", op_of(in, c, nullptr));
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(std::isnan(got[i]), static_cast<int64_t>(i) / dim == 3) << dim << " " << i;
  }
}

TEST_P(GpuAttentionTest, TakesThirdsOfAPackedProduct) {
  const Tensor packed = random_tensor({2, 90, 3 * 160}, GetParam(), 5);
  const PlacedOp op = [&](Exec& ex, const Place& place) {
    const Tensor x = place(packed);
    return attention(ex, x.narrow(2, 0, 160), x.narrow(2, 160, 160), x.narrow(2, 320, 160), {.heads = 4});
  };
  expect_like_reference("attention", op, tolerance({2, 90, 90, 40, 4}, GetParam()));
}

TEST_P(GpuAttentionTest, ReplaysTheSameBits) {
  for (const Case& c : {Case{1, 70, 130, 40, 2}, Case{1, 20, 900, 64, 1}, Case{1, 70, 300, 512, 1}}) {
    const Inputs in = random_inputs(c, GetParam(), 23);
    expect_same_bits_as_graph(op_of(in, c, nullptr), describe(c, GetParam()));
  }
}

TEST_P(GpuAttentionTest, ShapesOfModels) {
  for (const Case& c : {Case{2, 256, 256, 160, 8}, Case{2, 64, 77, 160, 8}, Case{2, 77, 77, 64, 12, true},
                        Case{1, 256, 231, 64, 20}, Case{2, 256, 77, 80, 8}, Case{1, 257, 257, 104, 4}})
    check(c, GetParam());
}

TEST_P(GpuAttentionTest, WarpgroupPlansMatchReference) {
  if (test_gpu().traits().arch != "sm_90") GTEST_SKIP() << "only Hopper multiplies by warpgroups";
  for (const int64_t dim : {40, 64, 80, 128, 512}) {
    check_every_plan({1, 1, 1, dim, 1}, GetParam(), true);
    check_every_plan({2, 65, 154, dim, 2}, GetParam(), true);
    check_every_plan({1, 300, 900, dim, 2}, GetParam(), true);
    check_every_plan({1, 33, 700, dim, 1, false, 0, 6}, GetParam(), true);
    // Maxima that grow from tile to tile, a little and beyond what a float's exponent holds.
    check_every_plan({1, 70, 600, dim, 1, false, 0, 1, 0.1f}, GetParam(), true);
    check_every_plan({1, 70, 600, dim, 1, false, 0, 4, 1}, GetParam(), true);
    check_every_plan({2, 130, 77, dim, 3}, GetParam(), true);
  }
}

TEST_P(GpuAttentionTest, FewKeysAtOnce) {
  if (test_gpu().traits().arch != "sm_90") GTEST_SKIP() << "only Hopper multiplies by warpgroups";
  for (const int64_t dim : {40, 64, 80}) {
    check_runs({2, 300, 77, dim, 3}, GetParam());
    check_runs({1, 700, 80, dim, 2}, GetParam());
    check_runs({3, 65, 1, dim, 2}, GetParam());
    check_runs({1, 128, 33, dim, 2, false, 0, 6}, GetParam());
    check_runs({1, 64, 77, dim, 2, false, 0, 1, 1}, GetParam());
  }
}

// A NaN among the values hurts its own head only, and those of a query its own row.
TEST_P(GpuAttentionTest, NanStaysWithFewKeys) {
  for (const int64_t dim : {40, 64, 80}) {
    const Case c{1, 20, 50, dim, 2};
    Inputs in = random_inputs(c, GetParam(), 9);
    std::vector<float> queries = to_floats(host_device(), in.q), values = to_floats(host_device(), in.v);
    queries[static_cast<size_t>(3 * 2 * dim + 7)] = std::numeric_limits<float>::quiet_NaN();
    values[static_cast<size_t>(dim + 5)] = std::numeric_limits<float>::quiet_NaN();
    in.q = tensor_from(host_device(), in.q.shape(), queries.data(), GetParam());
    in.v = tensor_from(host_device(), in.v.shape(), values.data(), GetParam());
    const std::vector<double> got = on_gpu("attention", op_of(in, c, nullptr));
    for (size_t i = 0; i < got.size(); ++i) {
      const auto row = static_cast<int64_t>(i) / (2 * dim), column = static_cast<int64_t>(i) % (2 * dim);
      ASSERT_EQ(std::isnan(got[i]), (row == 3 && column < dim) || column == dim + 5) << dim << " " << i;
    }
  }
}

class GpuWaveAttentionTest : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(All, GpuWaveAttentionTest, testing::Values(DType::kF16, DType::kBF16, DType::kF32),
                         [](const auto& info) { return fmt::format("{}", info.param); });

TEST_P(GpuWaveAttentionTest, TakesAnyHeadDim) {
  for (const Case& c : {Case{2, 5, 8, 2, 3}, Case{1, 13, 27, 37, 3}, Case{1, 77, 77, 64, 2, true},
                        Case{1, 40, 130, 96, 2}, Case{1, 30, 77, 512, 1}, Case{1, 3, 0, 8, 2}}) {
    const Inputs in = random_inputs(c, GetParam(), 7);
    const std::vector<double> want = on_host("attention", op_of(in, c, nullptr));
    GpuTestExec gpu;
    const ForcedImpl forced("attention", "gpu_wave");
    const std::vector<float> got =
        to_floats(gpu.device, op_of(in, c, nullptr)(gpu.ex, [&](const Tensor& x) { return gpu.to_gpu(x); }));
    expect_near({got.begin(), got.end()}, want, tolerance(c, GetParam()), describe(c, GetParam()));
  }
}

TEST(GpuAttention, ChoosesAndRefuses) {
  GpuTestExec gpu;
  const auto message = [&](const char* impl, int64_t dim, int64_t offset, DType dtype) {
    const ForcedImpl forced("attention", impl);
    const Tensor x = gpu.to_gpu(random_tensor({1, 4, dim + 8}, dtype, 1)).narrow(2, offset, dim);
    return message_of<UsageError>([&] { attention(gpu.ex, x, x, x, {}); });
  };
  EXPECT_THAT(message("gpu", 48, 0, DType::kF16), HasSubstr("has no kernel for f16 and head_dim 48"));
  EXPECT_THAT(message("gpu", 64, 1, DType::kF16), HasSubstr("multiples of 16 bytes"));
  EXPECT_THAT(message("gpu", 64, 0, DType::kF32), HasSubstr("takes f16 and bf16 only"));
  {  // rows of which a tile reaches beyond what offsets of 32 bits do
    const ForcedImpl forced("attention", "gpu");
    const Tensor far = gpu.to_gpu(random_tensor({1, 2, (1 << 21) + 8}, DType::kF16, 1)).narrow(2, 0, 64);
    EXPECT_THAT(message_of<UsageError>([&] { attention(gpu.ex, far, far, far, {}); }),
                HasSubstr("at most 2^21 elements apart"));
  }
  EXPECT_THAT(message("gpu_wave", 520, 0, DType::kF16), HasSubstr("head_dim 520 exceeds 512"));
  for (const char* host : {"host", "onednn", "host_bf16", "scalar", "ref"})
    EXPECT_THAT(message(host, 64, 0, DType::kBF16),
                testing::AnyOf(HasSubstr("runs on the host only"), HasSubstr("does not multiply bf16")));
}

}  // namespace
}  // namespace rocm_sd
