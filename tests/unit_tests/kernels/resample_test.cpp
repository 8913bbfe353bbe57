// resample: every implementation against Pillow's values and the double-precision reference; bad input.
#include "kernels/resample/resample.hpp"

#include <gmock/gmock.h>

#include "support/implementations.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;
using testing::HasSubstr;

// Pillow 13's Image.fromarray(x, "F").resize((width, height), filter) of the 5 x 7 map x[i] = (37 i + 11) %
// 64 / 8 - 4.
struct Golden {
  ResampleMode mode;
  int64_t height, width;
  std::vector<double> want;
};
const Golden kGoldens[] = {
    {ResampleMode::kNearest,
     3,
     4,
     {-2.625, -1.375, -0.125, 1.125, -1.875, -0.625, 0.625, 1.875, -1.125, 0.125, 1.375, 2.625}},
    {ResampleMode::kBilinear,
     3,
     4,
     {-0.42261904, 0.7557143, 0.30571428, -0.75595242, 0.16666667, -0.39722219, -0.84722227, -0.16666667,
      0.75595242, -0.30571428, -0.7557143, 0.42261904}},
    {ResampleMode::kBicubic,
     3,
     4,
     {-0.56840515, 1.0665025, 0.38602379, -0.99137896, 0.300533, -0.39562264, -1.0761013, -0.12244091,
      0.99137896, -0.38602379, -1.0665025, 0.56840515}},
    {ResampleMode::kLanczos3,
     3,
     4,
     {-0.77104682, 1.4888477, 0.30601707, -1.2088665, 0.40951335, -0.21572603, -1.3985567, -0.028306277,
      1.2088665, -0.30601707, -1.4888477, 0.77104682}},
    {ResampleMode::kNearest, 8, 9, {-2.625, 2,     2,     -1.375, 3.25,   -0.125, -3.5,   -3.5,   1.125,
                                    -2.625, 2,     2,     -1.375, 3.25,   -0.125, -3.5,   -3.5,   1.125,
                                    -2.25,  2.375, 2.375, -1,     3.625,  0.25,   -3.125, -3.125, 1.5,
                                    -1.875, 2.75,  2.75,  -0.625, -4,     0.625,  -2.75,  -2.75,  1.875,
                                    -1.875, 2.75,  2.75,  -0.625, -4,     0.625,  -2.75,  -2.75,  1.875,
                                    -1.5,   3.125, 3.125, -0.25,  -3.625, 1,      -2.375, -2.375, 2.25,
                                    -1.125, 3.5,   3.5,   0.125,  -3.25,  1.375,  -2,     -2,     2.625,
                                    -1.125, 3.5,   3.5,   0.125,  -3.25,  1.375,  -2,     -2,     2.625}},
    {ResampleMode::kBilinear,
     8,
     9,
     {-2.625,      0.45833334,  0.5,         -0.34722221, 3.25,        0.625,        -2,          -1.9583334,
      1.125,       -2.4609375,  0.62239581,  0.6640625,   -0.18315971, 3.4140625,    0.7890625,   -1.8359375,
      -1.7942709,  1.2890625,   -2.2265625,  0.85677081,  0.8984375,   -0.059895832, 3.1484375,   0.9123264,
      -1.6015625,  -1.5598959,  1.5234375,   -1.9921875,  1.0911459,   1.1328125,    -0.93663192, -1.6171875,
      0.035590269, -1.3671875,  -1.3255209,  1.7578125,   -1.7578125,  1.3255209,    1.3671875,   -1.2578125,
      -3.8828125,  -0.28559029, -1.1328125,  -1.0911459,  1.9921875,   -1.5234375,   1.5598959,   1.6015625,
      -1.0234375,  -3.6484375,  -0.05121528, -0.8984375,  -0.85677081, 2.2265625,    -1.2890625,  1.7942709,
      1.8359375,   -0.7890625,  -3.4140625,  0.18315971,  -0.6640625,  -0.62239581,  2.4609375,   -1.125,
      1.9583334,   2,           -0.625,      -3.25,       0.34722221,  -0.5,         -0.45833334, 2.625}},
    {ResampleMode::kBicubic,
     8,
     9,
     {-2.8709185, 0.72748089,   0.58275598,  -0.75829339, 3.2230165,   0.75165176,  -2.5756803,  -2.2814479,
      1.3169515,  -2.7147679,   0.88363141,  0.71680576,  -0.52423781, 3.7819529,   0.98570734,  -2.4416304,
      -2.1252973, 1.473102,     -2.4454975,  1.1529018,   1.0243591,   -0.38991502, 3.3535156,   1.1200302,
      -2.1340771, -1.8560268,   1.7423724,   -2.2111225,  1.3872768,   1.5620178,   -1.2246147,  -1.9394531,
      0.28533041, -1.5964185,   -1.6216518,  1.9767475,   -1.9767475,  1.6216518,   1.9483025,   -1.5257215,
      -4.4736328, -0.015776377, -1.2101338,  -1.3872768,  2.2111225,   -1.7423724,  1.8560268,   2.151063,
      -1.1799059, -3.6630859,   0.33003926,  -1.0073731,  -1.1529018,  2.4454975,   -1.473102,   2.1252973,
      2.4195297,  -0.90780228,  -3.3791671,  0.60214287,  -0.7389065,  -0.88363141, 2.7147679,   -1.3169515,
      2.2814479,  2.5756803,    -0.75165176, -3.2230165,  0.75829339,  -0.58275598, -0.72748089, 2.8709185}},
    {ResampleMode::kLanczos3,
     8,
     9,
     {-3.015296,  0.82352191,   0.62525403, -0.91778564, 2.9737396,   1.1311781,   -3.1364954,  -2.1601479,
      1.4620765,  -2.8738785,   0.99331748, 0.64115185,  -0.54490697, 4.0978966,   1.5040568,   -3.1205974,
      -1.9903524, 1.603494,     -2.5847592, 1.2513596,   1.0677288,   -0.50926286, 3.3108091,   1.5397009,
      -2.6940205, -1.7323103,   1.8926132,  -2.3377187,  1.3395885,   2.017215,    -1.5575469,  -1.9418519,
      0.49141696, -1.7445341,   -1.6440814, 2.1396539,   -2.1396539,  1.4489139,   2.6077869,   -2.0832729,
      -4.8168659, -0.034309141, -1.1539623, -1.5347559,  2.3377187,   -1.8926132,  1.7191952,   2.7520306,
      -1.6466726, -3.7649906,   0.40229118, -1.0097188,  -1.2644746,  2.5847592,   -1.603494,   2.0156982,
      3.0084891,  -1.2973266,   -3.2201595, 0.75163722,  -0.75326031, -0.96797156, 2.8738785,   -1.4620765,
      2.1529388,  3.1683817,    -1.1899775, -3.2233903,  0.85898632,  -0.59336758, -0.83073092, 3.015296}},
};

std::vector<float> pattern(int64_t count) {
  std::vector<float> x;
  for (int64_t i = 0; i < count; ++i) x.push_back(static_cast<float>((37 * i + 11) % 64) / 8 - 4);
  return x;
}

class ResampleTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, ResampleTest, testing::Values("host", "scalar", "ref"),
                         [](const auto& info) { return info.param; });

TEST_P(ResampleTest, MatchesPillow) {
  const Tensor x = tensor_from(host_device(), {1, 5, 7, 1}, pattern(35).data());
  for (const Golden& golden : kGoldens)
    with_implementation("resample", GetParam(), [&] {
      TestExec test;
      const Tensor y = resample(test.ex, x, golden.height, golden.width, golden.mode);
      EXPECT_EQ(y.shape(), Shape({1, golden.height, golden.width, 1}));
      // The values are printed with 8 digits; at most 6 x 6 products of float.
      expect_tensor_near(y, golden.want, 1e-6, concat(static_cast<int>(golden.mode), " to ", golden.height));
    });
}

TEST_P(ResampleTest, AreaIsTheBoxMean) {
  const std::vector<float> values = pattern(24);
  const Tensor x = tensor_from(host_device(), {1, 4, 6, 1}, values.data());
  with_implementation("resample", GetParam(), [&] {
    TestExec test;
    std::vector<double> want(4);
    for (size_t i = 0; i < 24; ++i) want[i / 12 * 2 + i % 6 / 3] += static_cast<double>(values[i]) / 6;
    expect_tensor_near(resample(test.ex, x, 2, 2, ResampleMode::kArea), want, 1e-6);
    // 3 of 4: each output is a whole pixel and a third of the next, or two thirds of both neighbours.
    const Tensor line = tensor_from(host_device(), {1, 1, 4, 1}, values.data());
    const std::vector<double> v = to_doubles(line);
    expect_tensor_near(resample(test.ex, line, 1, 3, ResampleMode::kArea),
                       {(v[0] + v[1] / 3) * 0.75, (v[1] + v[2]) / 2, (v[2] / 3 + v[3]) * 0.75}, 1e-6);
  });
}

TEST_P(ResampleTest, NearestRepeatsWholeFactors) {
  for (const DType dtype : activation_types(GetParam())) {
    const Tensor x = random_tensor({2, 3, 4, 5}, dtype, 1);
    with_implementation("resample", GetParam(), [&] {
      TestExec test;
      const std::vector<double> in = to_doubles(x);
      const std::vector<double> got = to_doubles(resample(test.ex, x, 6, 8, ResampleMode::kNearest));
      for (size_t i = 0; i < got.size(); ++i) {
        const size_t c = i % 5, col = i / 5 % 8, row = i / 40 % 6, n = i / 240;
        ASSERT_EQ(got[i], in[((n * 3 + row / 2) * 4 + col / 2) * 5 + c]);
      }
    });
  }
}

TEST_P(ResampleTest, MatchesReference) {
  for (const DType dtype : activation_types(GetParam()))
    for (const ResampleMode mode : {ResampleMode::kNearest, ResampleMode::kBilinear, ResampleMode::kBicubic,
                                    ResampleMode::kArea, ResampleMode::kLanczos3})
      for (const auto& [shape, height, width] : {std::tuple{Shape{1, 1, 1, 1}, 1, 1},
                                                 {Shape{1, 1, 1, 3}, 4, 5},
                                                 {Shape{2, 9, 13, 3}, 4, 31},
                                                 {Shape{1, 16, 12, 17}, 7, 5},
                                                 {Shape{1, 7, 5, 32}, 7, 5},
                                                 {Shape{0, 4, 4, 2}, 3, 3},
                                                 {Shape{1, 33, 2, 4}, 1, 1}}) {
        const Tensor x = random_tensor(shape, dtype, 9);
        const auto op = [&, height = height, width = width](Exec& ex) {
          return resample(ex, x, height, width, mode);
        };
        with_implementation("resample", GetParam(), [&] {
          TestExec test, other;
          const Tensor got = op(test.ex);
          const ForcedImpl forced("resample", "ref");
          // Weights sum to one in magnitude 1.5 or less per axis.
          expect_tensor_near(got, to_doubles(op(other.ex)), reduction_tolerance(dtype, 36),
                             concat(shape, " mode ", static_cast<int>(mode)));
        });
        with_implementation("resample", GetParam(), [&] { expect_same_bits_when_replayed(op); });
      }
}

TEST(ResampleChecks, NameWhatDoesNotFit) {
  TestExec test;
  const Tensor x = random_tensor({1, 2, 2, 3}, DType::kF32, 1);
  const auto message = [&](const Tensor& t, int64_t height, int64_t width) {
    return message_of<Error>([&] { resample(test.ex, t, height, width, ResampleMode::kBilinear); });
  };
  EXPECT_THAT(message(x, 0, 4), HasSubstr("at least 1x1, is 0x4"));
  EXPECT_THAT(message(random_tensor({2, 3}, DType::kF32, 1), 4, 4),
              HasSubstr("x must be [N,H,W,C], is [2,3]"));
  EXPECT_THAT(message(random_tensor({1, 0, 2, 3}, DType::kF32, 1), 4, 4), HasSubstr("has no pixels"));
  EXPECT_THAT(message(make_tensor(host_device(), {1, 2, 2, 3}, DType::kI32), 4, 4),
              HasSubstr("must be f32, bf16 or f16, is i32"));
}

}  // namespace
}  // namespace rocm_sd
