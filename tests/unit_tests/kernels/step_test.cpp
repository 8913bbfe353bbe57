// The step ops: every implementation against double precision; 8-bit rounding as NumPy's; bad input.
#include "kernels/step/step.hpp"

#include <gmock/gmock.h>

#include "support/implementations.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;
using testing::HasSubstr;

class StepTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, StepTest, testing::Values("host", "scalar", "ref"),
                         [](const auto& info) { return info.param; });

TEST_P(StepTest, CombinesInDoubleAndRoundsOnce) {
  for (const int64_t size : {0, 1, 63, 64, 130, 40001})
    for (const int count : {1, 2, 5, 12}) {
      std::vector<Term> terms;
      for (int t = 0; t < count; ++t)
        terms.push_back({t % 2 ? -1e4 / (t + 3) : 1e4 / (t + 1), random_tensor({size}, DType::kF32, 10 + t)});
      const auto op = [&](Exec& ex) { return linear_combination(ex, terms); };
      with_implementation("linear_combination", GetParam(), [&] {
        TestExec test;
        const std::vector<double> got = to_doubles(op(test.ex));
        std::vector<std::vector<double>> x;
        for (const Term& term : terms) x.push_back(to_doubles(term.tensor));
        for (size_t i = 0; i < got.size(); ++i) {
          double sum = 0, scale = 0;
          for (size_t t = 0; t < x.size(); ++t) {
            sum += terms[t].factor * x[t][i];
            scale += std::fabs(terms[t].factor * x[t][i]);
          }
          // One rounding to float; those of the double sum may move a tie.
          ASSERT_NEAR(got[i], sum, std::fabs(sum) * unit_roundoff(DType::kF32) + scale * 1e-15) << i;
        }
        if (size == 130) expect_same_bits_when_replayed(op);
      });
    }
}

TEST_P(StepTest, GuidesAndRescales) {
  for (const DType dtype : activation_types(GetParam()))
    for (const double rescale : {0.0, 0.7}) {
      const Tensor x = random_tensor({6, 5, 7, 4}, dtype, 3);
      const auto op = [&](Exec& ex) { return apply_guidance(ex, x, {.scale = 7.5, .rescale = rescale}); };
      with_implementation("apply_guidance", GetParam(), [&] {
        TestExec test;
        const Tensor y = op(test.ex);
        EXPECT_EQ(y.shape(), Shape({3, 5, 7, 4}));
        EXPECT_EQ(y.dtype(), DType::kF32);
        const std::vector<double> in = to_doubles(x), got = to_doubles(y);
        const size_t size = 5 * 7 * 4, half = 3 * size;
        for (size_t n = 0; n < 3; ++n) {
          const auto sigma = [&](const auto& value) {
            double sum = 0, squares = 0;
            for (size_t i = 0; i < size; ++i) sum += value(i);
            for (size_t i = 0; i < size; ++i) squares += std::pow(value(i) - sum / size, 2);
            return std::sqrt(squares);
          };
          const auto text = [&](size_t i) { return in[half + n * size + i]; };
          const auto guided = [&](size_t i) { return in[n * size + i] + 7.5 * (text(i) - in[n * size + i]); };
          const double factor = rescale * sigma(text) / sigma(guided) + 1 - rescale;
          for (size_t i = 0; i < size; ++i)
            ASSERT_NEAR(got[n * size + i], factor * guided(i), 1e-6 * (1 + std::fabs(guided(i))));
        }
        expect_same_bits_when_replayed(op);
      });
    }
}

TEST_P(StepTest, RescalingAConstantLeavesIt) {
  const std::vector<float> values(2 * 16, 0.5f);
  const Tensor x = tensor_from(host_device(), {2, 2, 2, 4}, values.data());
  with_implementation("apply_guidance", GetParam(), [&] {
    TestExec test;
    for (const double y : to_doubles(apply_guidance(test.ex, x, {.scale = 3, .rescale = 1})))
      EXPECT_EQ(y, 0.5);
  });
}

TEST_P(StepTest, ScalesAndRepeatsTheModelInput) {
  const Tensor x = random_tensor({2, 3, 3, 4}, DType::kF32, 5);
  with_implementation("elementwise", GetParam(), [&] {
    TestExec test;
    for (const DType dtype : activation_types(GetParam())) {
      const Tensor y = scale_model_input(test.ex, x, 0.25, 3, dtype);
      EXPECT_EQ(y.shape(), Shape({6, 3, 3, 4}));
      EXPECT_EQ(y.dtype(), dtype);
      const std::vector<double> in = to_doubles(x), got = to_doubles(y);
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], 0.25 * in[i % in.size()], unit_roundoff(dtype) * std::fabs(in[i % in.size()]));
    }
  });
}

// What NumPy gives for (np.clip(x / 2 + 0.5, 0, 1) * 255).round().astype(np.uint8) in float32.
TEST_P(StepTest, RoundsPicturesHalfToEven) {
  std::vector<float> values = {-1,       1,         0,    2, -2, std::numeric_limits<float>::quiet_NaN(),
                               INFINITY, -INFINITY, 0.25f};
  for (int i = 0; i <= 2 * 255 * 4; ++i) values.push_back(static_cast<float>(i) / (255.0f * 4) - 1.0f);
  while (values.size() % 3) values.push_back(0);
  const auto count = static_cast<int64_t>(values.size() / 3);
  const Tensor x = tensor_from(host_device(), {1, 1, count, 3}, values.data());
  with_implementation("elementwise", GetParam(), [&] {
    TestExec test;
    const Tensor y = to_rgb8(test.ex, x);
    EXPECT_EQ(y.dtype(), DType::kU8);
    const auto* got = y.as<uint8_t>();
    for (size_t i = 0; i < values.size(); ++i) {
      volatile float unit = values[i] / 2.0f + 0.5f;
      volatile float scaled = (unit > 0 ? std::min(static_cast<float>(unit), 1.0f) : 0.0f) * 255.0f;
      ASSERT_EQ(got[i], static_cast<int>(std::nearbyint(static_cast<float>(scaled)))) << values[i];
    }
    EXPECT_EQ(got[0], 0);
    EXPECT_EQ(got[1], 255);
    EXPECT_EQ(got[2], 128);  // 127.5: to even
    EXPECT_EQ(got[5], 0);
    const Tensor plain = to_rgb8(test.ex, x, 1, 0);  // of values in 0..1
    for (size_t i = 0; i < values.size(); ++i) {
      const float v = values[i];
      volatile float scaled = (v > 0 ? std::min(v, 1.0f) : 0.0f) * 255.0f;
      ASSERT_EQ(plain.as<uint8_t>()[i], static_cast<int>(std::nearbyint(static_cast<float>(scaled)))) << v;
    }
  });
}

TEST_P(StepTest, CountsWhatIsNotFinite) {
  for (const DType dtype : activation_types(GetParam()))
    for (const int64_t size : {0, 1, 100, 50001}) {
      std::vector<float> values =
          to_floats(host_device(), random_tensor({size}, dtype, 3, dtype == DType::kF16 ? 3e4f : 1e38f));
      int64_t want = 0;
      for (size_t i = 0; i < values.size(); i += 7, ++want)
        values[i] = i % 3 == 0 ? INFINITY : i % 3 == 1 ? -INFINITY : std::numeric_limits<float>::quiet_NaN();
      for (size_t i = 0; i < values.size(); ++i)
        if (i % 7 && !std::isfinite(values[i])) values[i] = 1;  // the generator's own overflow
      const Tensor x = tensor_from(host_device(), {size}, values.data(), dtype);
      with_implementation("count_nonfinite", GetParam(), [&] {
        TestExec test;
        EXPECT_EQ(*count_nonfinite(test.ex, x).as<int64_t>(), want);
      });
    }
}

TEST(StepChecks, NameWhatDoesNotFit) {
  TestExec test;
  const Tensor x = random_tensor({3, 2, 2, 4}, DType::kF32, 1), y = random_tensor({2, 2}, DType::kF32, 1);
  const auto message = [](const auto& body) { return message_of<Error>(body); };
  EXPECT_THAT(message([&] { linear_combination(test.ex, {{1, x}, {2, y}}); }),
              HasSubstr("term 1 must be f32 [3,2,2,4], is f32 [2,2]"));
  EXPECT_THAT(message([&] { linear_combination(test.ex, std::span<const Term>()); }),
              HasSubstr("takes 1 to 12 terms"));
  EXPECT_THAT(message([&] { linear_combination(test.ex, std::vector<Term>(13, {1, x})); }),
              HasSubstr("got 13"));
  EXPECT_THAT(message([&] { apply_guidance(test.ex, x, {}); }),
              HasSubstr("must be [2N,H,W,C], is [3,2,2,4]"));
  EXPECT_THAT(message([&] { scale_model_input(test.ex, x, 1, 0, DType::kF32); }),
              HasSubstr("at least 1, is 0"));
  EXPECT_THAT(message([&] { to_rgb8(test.ex, x); }), HasSubstr("must be [N,H,W,3], is [3,2,2,4]"));
  EXPECT_THAT(message([&] { count_nonfinite(test.ex, make_tensor(host_device(), {2}, DType::kI32)); }),
              HasSubstr("must be f32, bf16 or f16, is i32"));
}

}  // namespace
}  // namespace rocm_sd
