// attention: every implementation against the double-precision one; masks, strides, hidden rows, bad input.
#include "kernels/attention/attention.hpp"

#include <gmock/gmock.h>

#include "base/format.hpp"
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
  float scale = 0;
};
std::string name_of(const Case& c) {
  return fmt::format("{}x{}x{}x{}x{}{}", c.batch, c.heads, c.queries, c.keys, c.head_dim,
                     c.causal ? "_causal" : "");
}

struct Inputs {
  Tensor q, k, v;
};
Inputs random_inputs(const Case& c, DType dtype, uint64_t seed) {
  const int64_t width = c.heads * c.head_dim;
  return {random_tensor({c.batch, c.queries, width}, dtype, seed),
          random_tensor({c.batch, c.keys, width}, dtype, seed + 1),
          random_tensor({c.batch, c.keys, width}, dtype, seed + 2)};
}

// The weights err by the rounding of a score times its size (up to 6 here), the sums like any other; products
// of bf16 round each weight once more, which a row of few keys shows at the size of v: three deviations.
double tolerance(const std::string& impl, DType dtype, const Case& c) {
  const bool rounded = impl == "host_bf16" || (impl == "onednn" && dtype == DType::kBF16 && host_has_bf16());
  const double weights = rounded ? 3 * unit_roundoff(DType::kBF16) : 0;
  return 2 * unit_roundoff(dtype) + weights + 8 * reduction_tolerance(DType::kF32, c.head_dim + c.keys);
}

std::vector<double> reference(const Inputs& in, const AttentionArgs& args) {
  const ForcedImpl forced("attention", "ref");
  TestExec test;
  return to_doubles(attention(test.ex, in.q, in.k, in.v, args));
}

using Param = std::tuple<std::string, DType, Case>;
class AttentionTest : public testing::TestWithParam<Param> {
 protected:
  // Compares with the reference computed from the same rounded inputs, stored in f32.
  void check(const Inputs& in, const Case& c, AttentionArgs args) {
    const auto& [impl, dtype, unused] = GetParam();
    args.heads = c.heads;
    args.causal = c.causal;
    args.scale = c.scale;
    with_implementation("attention", impl, [&] {
      TestExec test;
      const Tensor got = attention(test.ex, in.q, in.k, in.v, args);
      EXPECT_EQ(got.dtype(), dtype);
      EXPECT_EQ(got.shape(), Shape({c.batch, c.queries, c.heads * c.head_dim}));
      expect_tensor_near(got, reference(in, args), tolerance(impl, dtype, c));
    });
  }
};

TEST_P(AttentionTest, MatchesReference) {
  const auto& [impl, dtype, c] = GetParam();
  check(random_inputs(c, dtype, 7), c, {});
}

TEST_P(AttentionTest, MatchesReferenceUnderMasks) {
  const auto& [impl, dtype, c] = GetParam();
  const Inputs in = random_inputs(c, dtype, 11);
  for (int broadcast = 0; broadcast < 8; ++broadcast) {
    const Shape shape = {broadcast & 1 ? 1 : c.batch, broadcast & 2 ? 1 : c.heads,
                         broadcast & 4 ? 1 : c.queries, c.keys};
    std::vector<float> values = to_floats(host_device(), random_tensor(shape, DType::kF32, 13));
    for (size_t i = 0; i < values.size(); i += 3) values[i] = -kInfinity;
    const Tensor mask = tensor_from(host_device(), shape, values.data());
    check(in, c, {.mask = &mask});
    if (IsSkipped()) return;
  }
}

const auto kImpls = testing::Values("onednn", "host_bf16", "host", "scalar");
const auto kTypes = testing::Values(DType::kF32, DType::kBF16);
std::string name_of_param(const testing::TestParamInfo<Param>& info) {
  const auto& [impl, dtype, c] = info.param;
  return fmt::format("{}_{}_{}_{}", impl, dtype, name_of(c), info.index);
}

const Case kCases[] = {{1, 1, 1, 1, 1},
                       {2, 3, 5, 8, 2},
                       {1, 7, 77, 40, 3},
                       {2, 65, 154, 40, 2},
                       {1, 130, 231, 64, 2},
                       {1, 77, 77, 64, 2, true},
                       {1, 300, 300, 32, 1, true},
                       {1, 9, 4, 16, 1, true},
                       {1, 4, 9, 16, 1, true},
                       {1, 33, 600, 80, 1},
                       {1, 16, 16, 160, 1},
                       {1, 66, 390, 160, 1},
                       {1, 70, 210, 512, 1},
                       {2, 17, 49, 128, 1},
                       {1, 13, 27, 37, 3},
                       {1, 5, 97, 3, 2, false, 2.5f}};
INSTANTIATE_TEST_SUITE_P(Shapes, AttentionTest, testing::Combine(kImpls, kTypes, testing::ValuesIn(kCases)),
                         name_of_param);

std::vector<Case> random_cases() {
  std::mt19937 random(2024);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  std::vector<Case> cases;
  for (int i = 0; i < 12; ++i)
    cases.push_back(
        {pick(1, 2), pick(1, 150), pick(1, 500), pick(1, 90), static_cast<int>(pick(1, 3)), pick(0, 3) == 0});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(RandomShapes, AttentionTest,
                         testing::Combine(kImpls, kTypes, testing::ValuesIn(random_cases())), name_of_param);

class AttentionImplTest : public testing::TestWithParam<std::tuple<std::string, DType>> {};
INSTANTIATE_TEST_SUITE_P(All, AttentionImplTest,
                         testing::Combine(testing::Values("onednn", "host_bf16", "host", "scalar", "ref"),
                                          kTypes),
                         [](const auto& info) {
                           return fmt::format("{}_{}", std::get<0>(info.param), std::get<1>(info.param));
                         });

// The thirds of a packed QKV product, and every other image of a larger tensor.
TEST_P(AttentionImplTest, TakesStridedOperands) {
  const auto& [impl, dtype] = GetParam();
  const Tensor packed = random_tensor({2, 50, 3 * 48}, dtype, 5);
  const auto third = [&](int i) { return packed.narrow(2, 48 * i, 48); };
  with_implementation("attention", impl, [&] {
    TestExec test;
    const auto dense = [&](const Tensor& x) {
      const std::vector<float> all = to_floats(host_device(), packed);
      std::vector<float> out;
      const int64_t offset = (static_cast<const char*>(x.data()) - static_cast<const char*>(packed.data())) /
                             static_cast<int64_t>(dtype_size(dtype));
      for (int64_t row = 0; row < 100; ++row)
        out.insert(out.end(), all.begin() + row * 144 + offset, all.begin() + row * 144 + offset + 48);
      return tensor_from(host_device(), {2, 50, 48}, out.data(), dtype);
    };
    const AttentionArgs args{.heads = 3};
    const Tensor strided = attention(test.ex, third(0), third(1), third(2), args);
    const Tensor plain = attention(test.ex, dense(third(0)), dense(third(1)), dense(third(2)), args);
    EXPECT_EQ(bytes_of(strided), bytes_of(plain));
  });
}

TEST_P(AttentionImplTest, HiddenRowsGiveZeros) {
  const auto& [impl, dtype] = GetParam();
  const Case c{1, 6, 400, 24, 2};
  const Inputs in = random_inputs(c, dtype, 3);
  std::vector<float> values(static_cast<size_t>(c.queries * c.keys), 0.0f);
  for (int64_t j = 0; j < c.keys; ++j)
    values[static_cast<size_t>(2 * c.keys + j)] = -kInfinity;  // row 2: all hidden
  for (int64_t j = 0; j < 390; ++j)
    values[static_cast<size_t>(3 * c.keys + j)] = -kInfinity;  // row 3: whole tiles are
  const Tensor mask = tensor_from(host_device(), {1, 1, c.queries, c.keys}, values.data());
  with_implementation("attention", impl, [&] {
    TestExec test;
    const AttentionArgs args{.heads = c.heads, .mask = &mask};
    const std::vector<double> got = to_doubles(attention(test.ex, in.q, in.k, in.v, args));
    for (int64_t i = 0; i < 48; ++i) EXPECT_EQ(got[static_cast<size_t>(2 * 48 + i)], 0.0);
    expect_near(got, reference(in, args), tolerance(impl, dtype, c));
  });
}

TEST_P(AttentionImplTest, NoKeysGiveZerosAndNoQueriesNothing) {
  const auto& [impl, dtype] = GetParam();
  with_implementation("attention", impl, [&] {
    TestExec test;
    const Inputs none = random_inputs({1, 3, 0, 8, 2}, dtype, 1);
    for (const double y : to_doubles(attention(test.ex, none.q, none.k, none.v, {.heads = 2})))
      EXPECT_EQ(y, 0.0);
    const Inputs empty = random_inputs({2, 0, 5, 8, 2}, dtype, 1);
    EXPECT_EQ(attention(test.ex, empty.q, empty.k, empty.v, {.heads = 2}).shape(), Shape({2, 0, 16}));
  });
}

// Scores of a thousand overflow e^x unless the maximum is taken off first; infinities and NaN must stay
// visible.
TEST_P(AttentionImplTest, SurvivesLargeScoresAndShowsNaN) {
  const auto& [impl, dtype] = GetParam();
  const Case c{1, 5, 40, 16, 1};
  Inputs in = random_inputs(c, dtype, 17);
  const Tensor large = random_tensor({1, 5, 16}, dtype, 18, 300.0f);
  with_implementation("attention", impl, [&] {
    TestExec test;
    // Scores of this size round by themselves: 1000 * 2^-24 * 16 in the exponent.
    expect_tensor_near(attention(test.ex, large, in.k, in.v, {}), reference({large, in.k, in.v}, {}),
                       5 * unit_roundoff(dtype) + 5e-3);
    std::vector<float> poisoned = to_floats(host_device(), in.q);
    poisoned[16] = std::numeric_limits<float>::quiet_NaN();
    const Tensor q = tensor_from(host_device(), {1, 5, 16}, poisoned.data(), dtype);
    const std::vector<double> got = to_doubles(attention(test.ex, q, in.k, in.v, {}));
    for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(std::isnan(got[i]), i / 16 == 1) << i;
  });
}

TEST_P(AttentionImplTest, ReplaysTheSameBits) {
  const auto& [impl, dtype] = GetParam();
  const Case c{2, 70, 130, 40, 2};
  const Inputs in = random_inputs(c, dtype, 23);
  const Tensor mask = random_tensor({1, 1, 70, 130}, DType::kF32, 29);
  with_implementation("attention", impl, [&] {
    expect_same_bits_when_replayed(
        [&](Exec& ex) { return attention(ex, in.q, in.k, in.v, {.heads = 2, .mask = &mask}); });
  });
}

TEST(AttentionChecks, NameWhatDoesNotFit) {
  TestExec test;
  const Tensor q = random_tensor({2, 4, 16}, DType::kF32, 1), k = random_tensor({2, 6, 16}, DType::kF32, 2);
  const auto message = [&](const Tensor& a, const Tensor& b, const Tensor& c, AttentionArgs args) {
    return message_of<Error>([&] { attention(test.ex, a, b, c, args); });
  };
  EXPECT_THAT(message(q, k, k, {.heads = 3}), HasSubstr("cannot split q [2,4,16] into 3 heads"));
  EXPECT_THAT(message(q, k, k, {.heads = 0}), HasSubstr("into 0 heads"));
  EXPECT_THAT(message(q, random_tensor({1, 6, 16}, DType::kF32, 1), k, {}),
              HasSubstr("k [1,6,16] does not fit q"));
  EXPECT_THAT(message(q, k, q, {}), HasSubstr("v [2,4,16] does not fit k [2,6,16]"));
  EXPECT_THAT(message(q, random_tensor({2, 6, 16}, DType::kBF16, 1), k, {}),
              HasSubstr("k is bf16, q is f32"));
  EXPECT_THAT(message(make_tensor(host_device(), {2, 4, 16}, DType::kI32), k, k, {}),
              HasSubstr("must be f32, bf16 or f16, is i32"));
  EXPECT_THAT(message(random_tensor({4, 16}, DType::kF32, 1), k, k, {}),
              HasSubstr("q must be [B,N,heads*D]"));
  const Tensor mask = random_tensor({2, 1, 4, 5}, DType::kF32, 1);
  EXPECT_THAT(message(q, k, k, {.mask = &mask}), HasSubstr("mask [2,1,4,5] does not broadcast to [2,1,4,6]"));
  const Tensor half_mask = random_tensor({2, 1, 4, 6}, DType::kBF16, 1);
  EXPECT_THAT(message(q, k, k, {.mask = &half_mask}), HasSubstr("mask must be f32, is bf16"));
}

}  // namespace
}  // namespace rocm_sd
