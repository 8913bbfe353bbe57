// attention by Composable Kernel against the double-precision reference on the host.
#include "kernels/attention/attention.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/format.hpp"
#include "gpu_tests/against_reference.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;

struct Case {
  int64_t batch, queries, keys, head_dim;
  int heads;
  float scale = 0;
  bool packed = false;  // q, k and v are parts of one row
  bool causal = false;
};

// q, k, v as parts of [batch,tokens,3*width] or each for itself.
struct Inputs {
  Tensor q, k, v, packed;
  Inputs(const Case& c, DType dtype, uint64_t seed) {
    const int64_t width = c.heads * c.head_dim;
    if (c.packed) packed = random_tensor({c.batch, c.queries, 3 * width}, dtype, seed);
    q = random_tensor({c.batch, c.queries, width}, dtype, seed + 1);
    k = random_tensor({c.batch, c.keys, width}, dtype, seed + 2);
    v = random_tensor({c.batch, c.keys, width}, dtype, seed + 3);
  }
  Tensor run(const Case& c, Exec& ex, const Place& place) const {
    const AttentionArgs args{.heads = c.heads, .scale = c.scale, .causal = c.causal};
    if (!c.packed) return attention(ex, place(q), place(k), place(v), args);
    const Tensor all = place(packed);
    const int64_t width = c.heads * c.head_dim;
    return attention(ex, all.narrow(-1, 0, width), all.narrow(-1, width, width),
                     all.narrow(-1, 2 * width, width), args);
  }
};

// Each weight is rounded to 16 bits for itself, and so is the result.
double tolerance(const Case& c, DType dtype) {
  return 5 * unit_roundoff(dtype) + 8 * reduction_tolerance(DType::kF32, c.head_dim + c.keys);
}

// "ck" by name: a refusal throws, so that no problem here goes untested.
std::vector<double> by_ck(const PlacedOp& op) {
  GpuTestExec gpu;
  const ForcedImpl forced("attention", "ck");
  const Tensor y = op(gpu.ex, [&](const Tensor& x) { return gpu.to_gpu(x); });
  const std::vector<float> values = to_floats(gpu.device, y);
  return {values.begin(), values.end()};
}

class CkAttentionTest : public testing::TestWithParam<DType> {};

TEST_P(CkAttentionTest, MatchesTheReference) {
  const std::vector<Case> cases = {
      {1, 128, 128, 64, 1},         // whole tiles
      {1, 1, 1, 8, 1},              // nearly nothing of a tile
      {2, 130, 77, 40, 3},          // SD 1.5's heads over a text
      {1, 200, 300, 64, 2, 0.3f},   // several steps of keys, a scale of its own
      {1, 96, 96, 80, 2, 0, true},  // a head of a wide piece of columns, out of packed rows
      {1, 256, 128, 128, 1},        // whole wide tiles
      {1, 70, 140, 160, 1},         // of two wide pieces, and of a deep product
  };
  uint64_t seed = 1;
  for (const Case& c : cases) {
    const Inputs inputs(c, GetParam(), seed += 10);
    const PlacedOp op = [&](Exec& ex, const Place& place) { return inputs.run(c, ex, place); };
    expect_near(by_ck(op), on_host("attention", op), tolerance(c, GetParam()),
                fmt::format("{}x{}x{}x{}x{}", c.batch, c.heads, c.queries, c.keys, c.head_dim));
  }
}

TEST_P(CkAttentionTest, CausalOnCdna) {
  if (GpuTestExec().device.traits().lanes != 64) GTEST_SKIP() << "CDNA has the instances";
  const std::vector<Case> cases = {
      {1, 256, 256, 64, 2, 0, false, true},  // tiles that are passed over
      {1, 200, 300, 40, 1, 0, false, true},  // parts of tiles
      {2, 200, 130, 128, 1, 0, false, true},
  };
  uint64_t seed = 101;
  for (const Case& c : cases) {
    const Inputs inputs(c, GetParam(), seed += 10);
    const PlacedOp op = [&](Exec& ex, const Place& place) { return inputs.run(c, ex, place); };
    expect_near(by_ck(op), on_host("attention", op), tolerance(c, GetParam()),
                fmt::format("{}x{}x{}x{}x{}", c.batch, c.heads, c.queries, c.keys, c.head_dim));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CkAttentionTest, testing::Values(DType::kF16, DType::kBF16),
                         [](const auto& info) { return concat(info.param); });

TEST(CkAttention, IsListedForTheTuner) {
  GpuTestExec gpu;
  const Case c{1, 64, 77, 40, 2};
  const Inputs inputs(c, DType::kF16, 5);
  const CandidateRecord record("attention");
  inputs.run(c, gpu.ex, [&](const Tensor& x) { return gpu.to_gpu(x); });
  EXPECT_THAT(record.candidates(), testing::Contains("ck"));
  EXPECT_NE(record.candidates().front(), "ck") << "our own kernels come first";
}

TEST(CkAttention, RefusesWithASentence) {
  const auto refusal = [](const Case& c, DType dtype) {
    const Inputs inputs(c, dtype, 9);
    try {
      by_ck([&](Exec& ex, const Place& place) { return inputs.run(c, ex, place); });
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string("taken");
  };
  EXPECT_THAT(refusal({1, 8, 8, 64, 1}, DType::kF32), testing::HasSubstr("16-bit types only"));
  EXPECT_THAT(refusal({1, 8, 8, 32, 1, 0, false, true}, DType::kF16), testing::HasSubstr("causal instances"));
  EXPECT_THAT(refusal({1, 8, 8, 20, 1}, DType::kF16), testing::HasSubstr("16-byte pieces"));
}

}  // namespace
}  // namespace rocm_sd
