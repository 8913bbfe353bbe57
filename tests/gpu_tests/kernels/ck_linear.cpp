// linear by Composable Kernel against the double-precision reference on the host.
#include "kernels/gemm/linear.hpp"

#include <gtest/gtest.h>

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "base/format.hpp"
#include "gpu_tests/against_reference.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;

struct Case {
  int64_t rows, in, out;
  bool bias = false, residual = false;
  int64_t extra_columns = 0;  // x is the end of rows that are this much longer
};

std::string describe(const Case& c) {
  return fmt::format("{}x{}x{}{}{} extra {}", c.rows, c.out, c.in, c.bias ? " bias" : "",
                     c.residual ? " residual" : "", c.extra_columns);
}

struct Operands {
  Tensor x, weight, bias, residual;
  Operands(const Case& c, DType dtype, uint64_t seed)
      : x(random_tensor({c.rows, c.in + c.extra_columns}, dtype, seed)),
        weight(random_tensor({c.out, c.in}, dtype, seed + 1, 1 / std::sqrt(static_cast<float>(c.in)))),
        bias(random_tensor({c.out}, DType::kF32, seed + 2)),
        residual(random_tensor({c.rows, c.out}, dtype, seed + 3)) {}

  Tensor run(const Case& c, Exec& ex, const Place& place) const {
    const Tensor rows = place(x).narrow(-1, c.extra_columns, c.in);
    LinearWeight w{Weight(place(weight)), std::nullopt};
    if (c.bias) w.bias = place(bias);
    const Tensor addend = c.residual ? place(residual) : Tensor();
    return linear(ex, rows, w, {.residual = c.residual ? &addend : nullptr});
  }
};

// "ck" by name: a refusal throws, so that no problem here goes untested.
std::vector<double> by_ck(const PlacedOp& op) {
  GpuTestExec gpu;
  const ForcedImpl forced("linear", "ck");
  const Tensor y = op(gpu.ex, [&](const Tensor& x) { return gpu.to_gpu(x); });
  const std::vector<float> values = to_floats(gpu.device, y);
  return {values.begin(), values.end()};
}

class CkLinearTest : public testing::TestWithParam<DType> {};

TEST_P(CkLinearTest, MatchesTheReference) {
  const std::vector<Case> cases = {
      {128, 192, 128},                    // whole tiles
      {1, 136, 8},                        // nearly nothing of a tile
      {77, 320, 640, true},               // tails of rows; SD's text
      {130, 264, 136, true, true},        // tails of everything
      {200, 200, 328, false, false, 24},  // rows of a longer matrix
      {257, 136, 384, true, true, 8},     // and all of it
  };
  uint64_t seed = 1;
  for (const Case& c : cases) {
    const Operands operands(c, GetParam(), seed += 10);
    const PlacedOp op = [&](Exec& ex, const Place& place) { return operands.run(c, ex, place); };
    expect_near(by_ck(op), on_host("linear", op), reduction_tolerance(GetParam(), c.in), describe(c));
  }
}
INSTANTIATE_TEST_SUITE_P(Types, CkLinearTest, testing::Values(DType::kF16, DType::kBF16),
                         [](const auto& info) { return concat(info.param); });

TEST(CkLinear, IsListedForTheTuner) {
  GpuTestExec gpu;
  const Case c{64, 320, 320, true};
  const Operands operands(c, DType::kF16, 5);
  const CandidateRecord record("linear");
  operands.run(c, gpu.ex, [&](const Tensor& x) { return gpu.to_gpu(x); });
  const std::vector<std::string>& names = record.candidates();
  EXPECT_EQ(std::count(names.begin(), names.end(), "ck"), 1);
  EXPECT_NE(names.front(), "ck") << "our own kernels come first";
}

TEST(CkLinear, RefusesWithASentence) {
  const auto refusal = [](const std::function<void(Exec&, const Place&)>& op) {
    GpuTestExec gpu;
    const ForcedImpl forced("linear", "ck");
    try {
      op(gpu.ex, [&](const Tensor& x) { return gpu.to_gpu(x); });
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string("taken");
  };
  const auto plain = [&](const Case& c, DType dtype, Activation act, bool residual) {
    const Operands operands(c, dtype, 9);
    return refusal([&](Exec& ex, const Place& place) {
      const Tensor addend = place(operands.residual);
      linear(ex, place(operands.x), {Weight(place(operands.weight)), std::nullopt},
             {.residual = residual ? &addend : nullptr, .act = act});
    });
  };
  EXPECT_THAT(plain({8, 320, 64}, DType::kF32, {}, false), testing::HasSubstr("16-bit types only"));
  EXPECT_THAT(plain({8, 320, 64}, DType::kF16, Activation::kSilu, false), testing::HasSubstr("activation"));
  EXPECT_THAT(plain({8, 320, 64}, DType::kF16, {}, true), testing::HasSubstr("no bias"));
  EXPECT_THAT(plain({8, 64, 64}, DType::kF16, {}, false), testing::HasSubstr("fewer than"));
  EXPECT_THAT(plain({8, 324, 64}, DType::kF16, {}, false), testing::HasSubstr("16-byte pieces"));
  EXPECT_THAT(plain({8, 320, 60}, DType::kF16, {}, false), testing::HasSubstr("16-byte pieces"));
}

}  // namespace
}  // namespace rocm_sd
