// Elementwise ops: every implementation against double precision, over all magnitudes of a float; views, bad
// input.
#include "kernels/elementwise/elementwise.hpp"

#include <gmock/gmock.h>

#include <bit>

#include "base/format.hpp"
#include "kernels/step/step.hpp"
#include "support/implementations.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;
using testing::HasSubstr;

class ElementwiseTest : public testing::TestWithParam<std::tuple<std::string, DType>> {
 protected:
  std::string impl() const { return std::get<0>(GetParam()); }
  DType dtype() const { return std::get<1>(GetParam()); }
  template <class Op>
  void check(const Op& op, double tolerance) {
    with_implementation("elementwise", impl(), [&] {
      TestExec test, other;
      const Tensor got = op(test.ex);
      const ForcedImpl forced("elementwise", "ref");
      expect_tensor_near(got, to_doubles(op(other.ex)), tolerance);
    });
    if (!IsSkipped()) with_implementation("elementwise", impl(), [&] { expect_same_bits_when_replayed(op); });
  }
};
INSTANTIATE_TEST_SUITE_P(All, ElementwiseTest,
                         testing::Combine(testing::Values("host", "scalar"),
                                          testing::Values(DType::kF32, DType::kBF16, DType::kF16)),
                         [](const auto& info) {
                           return fmt::format("{}_{}", std::get<0>(info.param), std::get<1>(info.param));
                         });

double silu(double x) { return x / (1 + std::exp(-x)); }
double gelu(double x) { return x / 2 * std::erfc(-x * std::sqrt(0.5)); }
double quick_gelu(double x) { return x / (1 + std::exp(-1.702 * x)); }

// Every 4099th float: all exponents, both signs, subnormals, infinities and NaN.
std::vector<float> all_magnitudes() {
  std::vector<float> values;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 4099)
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  for (const float x : {0.0f, -0.0f, 1.0f, -1.0f, 88.7f, -88.7f, -103.9f, 1e-45f, -1e-45f, 1.17549435e-38f})
    values.push_back(x);
  for (int i = 0; i < 200000; ++i)
    values.push_back(static_cast<float>(i - 100000) * 2e-4f);  // -20 .. 20, closely
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  values.insert(values.end(), {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()});
  return values;
}

// |got - want| <= relative * |want| + absolute, NaN where and only where double has it.
void expect_function(const std::vector<float>& x, const std::vector<double>& got, double (*want)(double),
                     double relative, double absolute) {
  int failures = 0;
  for (size_t i = 0; i < x.size() && failures < 10; ++i) {
    const double exact = want(static_cast<double>(x[i]));
    // What overflows float is an infinity there.
    const double rounded = std::fabs(exact) > 3.4028235e38 ? std::copysign(INFINITY, exact) : exact;
    const bool right = std::isnan(rounded) ? std::isnan(got[i])
                       : std::isinf(rounded)
                           ? got[i] == rounded
                           : std::fabs(got[i] - rounded) <= relative * std::fabs(rounded) + absolute;
    if (right) continue;
    ADD_FAILURE() << "at " << x[i] << ": got " << got[i] << ", want " << rounded;
    ++failures;
  }
}

TEST_P(ElementwiseTest, ActivationsHoldOverAllMagnitudes) {
  if (dtype() != DType::kF32) GTEST_SKIP() << "bf16 rounds afterwards; MapsMatchReference covers it";
  const std::vector<float> x = all_magnitudes();
  const Tensor input = tensor_from(host_device(), {static_cast<int64_t>(x.size())}, x.data());
  const double u = unit_roundoff(DType::kF32);
  with_implementation("elementwise", impl(), [&] {
    TestExec test;
    // e^x within 4 u and three further roundings; far below zero e^-x overflows and the result (1e-37) is
    // flushed.
    expect_function(x, to_doubles(activate(test.ex, input, Activation::kSilu)), silu, 10 * u, 4e-37);
    // -1.702 x is rounded before the exponential: up to 88 half units more where e^-x still counts.
    expect_function(x, to_doubles(activate(test.ex, input, Activation::kQuickGelu)), quick_gelu, 100 * u,
                    4e-37);
    // The erf form to 1e-6 absolute, and relative to x / 2 near zero.
    expect_function(x, to_doubles(activate(test.ex, input, Activation::kGelu)), gelu, 10 * u, 0.5e-6);
    expect_function(
        x, to_doubles(soft_clamp(test.ex, input, 1.0f)), [](double v) { return std::tanh(v); }, 6 * u, 0);
    expect_function(
        x, to_doubles(activate(test.ex, input, Activation::kRelu)), [](double v) { return v < 0 ? 0.0 : v; },
        0, 0);
  });
}

TEST_P(ElementwiseTest, GeluIsRelativelyExactNearZero) {
  if (dtype() != DType::kF32) GTEST_SKIP() << "bf16 rounds afterwards";
  std::vector<float> x;
  for (float v = 1e-37f; v < 1e-2f; v *= 1.37f) x.insert(x.end(), {v, -v});
  const Tensor input = tensor_from(host_device(), {static_cast<int64_t>(x.size())}, x.data());
  with_implementation("elementwise", impl(), [&] {
    TestExec test;
    expect_function(x, to_doubles(activate(test.ex, input, Activation::kGelu)), gelu, 1e-6, 0);
  });
}

TEST_P(ElementwiseTest, MapsMatchReference) {
  const double tolerance = 2 * unit_roundoff(dtype()) + 16 * unit_roundoff(DType::kF32);
  for (const Shape& shape :
       {Shape{1}, Shape{3, 7}, Shape{2, 5, 6}, Shape{1, 129, 130}, Shape{40000}, Shape{0, 4}}) {
    const Tensor x = random_tensor(shape, dtype(), 1, 3.0f), y = random_tensor(shape, dtype(), 2);
    for (const Activation act :
         {Activation::kNone, Activation::kSilu, Activation::kGelu, Activation::kQuickGelu, Activation::kRelu})
      check([&](Exec& ex) { return activate(ex, x, act); }, tolerance);
    check([&](Exec& ex) { return add(ex, x, y); }, tolerance);
    const Tensor factors = random_tensor({shape[0]}, DType::kF32, 3);
    check([&](Exec& ex) { return add_scaled(ex, x, y, factors); }, tolerance);
    check([&](Exec& ex) { return affine(ex, x, -0.3f, 1.25f); }, tolerance);
    check([&](Exec& ex) { return leaky_relu(ex, x, 0.2f); }, tolerance);
    const Tensor slopes = random_tensor({shape[-1]}, dtype(), 4);
    check([&](Exec& ex) { return prelu(ex, x, slopes); }, tolerance);
    check([&](Exec& ex) { return soft_clamp(ex, x, 3.0f); }, tolerance);
    if (shape[-1] % 2 == 0) check([&](Exec& ex) { return geglu(ex, x); }, tolerance);
    check([&](Exec& ex) { return cast(ex, x, DType::kF32); }, 0);
    check([&](Exec& ex) { return cast(ex, x, DType::kBF16); }, 0);
    check([&](Exec& ex) { return cast(ex, x, DType::kF16); }, 0);
  }
}

TEST_P(ElementwiseTest, RectifiersAreTheirFormulas) {
  const Tensor x = random_tensor({2, 5, 11}, dtype(), 1, 3.0f), slopes = random_tensor({11}, dtype(), 2);
  std::vector<double> leaky = to_doubles(x), each = leaky;
  const std::vector<double> factors = to_doubles(slopes);
  for (size_t i = 0; i < leaky.size(); ++i) {
    if (leaky[i] < 0) each[i] *= factors[i % factors.size()];
    if (leaky[i] < 0) leaky[i] *= static_cast<double>(0.2f);
  }
  with_implementation("elementwise", impl(), [&] {
    TestExec test;
    const double tolerance = 4 * unit_roundoff(dtype());
    expect_tensor_near(leaky_relu(test.ex, x, 0.2f), leaky, tolerance);
    expect_tensor_near(prelu(test.ex, x, slopes), each, tolerance);
    // Into channels of a wider map; what lies beside them stays.
    const Tensor wide = random_tensor({2, 5, 16}, dtype(), 3);
    const std::vector<double> before = to_doubles(wide);
    leaky_relu_into(test.ex, x, 0.2f, wide.narrow(2, 3, 11));
    std::vector<double> want = before;
    for (size_t i = 0; i < leaky.size(); ++i) want[i / 11 * 16 + 3 + i % 11] = leaky[i];
    expect_tensor_near(wide, want, tolerance);
  });
  TestExec test;
  EXPECT_THROW(prelu(test.ex, x, random_tensor({10}, dtype(), 2)), ShapeError);
  EXPECT_THROW(leaky_relu_into(test.ex, x, 0.2f, random_tensor({2, 5, 10}, dtype(), 3)), ShapeError);
}

TEST_P(ElementwiseTest, ConcatenatesAndCopiesViews) {
  const Tensor a = random_tensor({2, 3, 4}, dtype(), 1), b = random_tensor({2, 3, 5}, dtype(), 2);
  check([&](Exec& ex) { return concat_channels(ex, a, b); }, 0);
  with_implementation("elementwise", impl(), [&] {
    TestExec test;
    const Tensor both = concat_channels(test.ex, a, b);
    EXPECT_EQ(both.shape(), Shape({2, 3, 9}));
    // The parts read back as strided views must be the inputs.
    EXPECT_EQ(to_doubles(cast(test.ex, both.narrow(2, 0, 4), DType::kF32)), to_doubles(a));
    const Tensor copy = make_tensor(host_device(), {30}, DType::kF32);
    copy_into(test.ex, both.narrow(2, 4, 5), copy);
    EXPECT_EQ(to_doubles(copy), to_doubles(b));
    // And into one, from contiguous memory and from another view; what lies between stays.
    copy_into(test.ex, b, both.narrow(2, 1, 5));
    EXPECT_EQ(to_doubles(cast(test.ex, both.narrow(2, 1, 5), DType::kF32)), to_doubles(b));
    copy_into(test.ex, a.narrow(2, 1, 2), both.narrow(2, 6, 2));
    EXPECT_EQ(to_doubles(cast(test.ex, both.narrow(2, 6, 2), DType::kF32)),
              to_doubles(cast(test.ex, a.narrow(2, 1, 2), DType::kF32)));
    EXPECT_EQ(to_doubles(cast(test.ex, both.narrow(2, 0, 1), DType::kF32)),
              to_doubles(cast(test.ex, a.narrow(2, 0, 1), DType::kF32)));
    EXPECT_EQ(to_doubles(cast(test.ex, both.narrow(2, 8, 1), DType::kF32)),
              to_doubles(cast(test.ex, b.narrow(2, 4, 1), DType::kF32)));
    // Rows of 2 and of 5 do not fit into each other.
    EXPECT_THROW(copy_into(test.ex, random_tensor({5, 4}, dtype(), 1).narrow(1, 0, 2),
                           random_tensor({2, 6}, dtype(), 1).narrow(1, 0, 5)),
                 ShapeError);
    const Tensor middle = b.narrow(1, 1, 1);  // [2,1,5]
    EXPECT_EQ(to_doubles(cast(test.ex, middle, DType::kF32))[7], to_doubles(b)[15 + 5 + 2]);
  });
}

TEST(Elementwise, AddsWhatTheFactorsAreWhenItRuns) {
  const Tensor a = random_tensor({2, 3, 5}, DType::kF32, 1), b = random_tensor({2, 3, 5}, DType::kF32, 2);
  const Tensor factors = make_tensor(host_device(), {2}, DType::kF32);
  const Tensor y = make_tensor(host_device(), a.shape(), DType::kF32);
  for (const char* impl : {"host", "scalar", "ref"})
    with_implementation("elementwise", impl, [&] {
      Arena arena(host_device());
      Program program("adds", arena, [&](Exec& ex) { copy_into(ex, add_scaled(ex, a, b, factors), y); });
      for (const std::array<float, 2> now : {std::array{0.5f, 2.0f}, std::array{0.0f, -1.0f}}) {
        upload(host_device(), factors, now.data(), 2);
        program.run();
        const std::vector<double> left = to_doubles(a), right = to_doubles(b), got = to_doubles(y);
        for (size_t i = 0; i < got.size(); ++i)
          EXPECT_NEAR(got[i], left[i] + static_cast<double>(now[i / 15]) * right[i], 1e-6);
      }
      TestExec test;
      EXPECT_THROW(add_scaled(test.ex, a, b, make_tensor(host_device(), {3}, DType::kF32)), ShapeError);
      EXPECT_THROW(add_scaled(test.ex, a, b.narrow(0, 0, 1), factors), ShapeError);
    });
}

// Rows that lie apart, into such; and one row that all share. Nothing between the rows is written.
TEST(Elementwise, AddsScaledRowsThatLieApart) {
  const Tensor a = random_tensor({7, 12}, DType::kF32, 1), b = random_tensor({7, 9}, DType::kF32, 2),
               one = random_tensor({5}, DType::kF32, 3), factors = random_tensor({7}, DType::kF32, 4);
  for (const char* impl : {"host", "scalar", "ref"})
    with_implementation("elementwise", impl, [&] {
      TestExec test;
      const Tensor left = a.narrow(1, 4, 5), right = b.narrow(1, 1, 5);
      for (const Tensor& added : {right, one}) {
        const Tensor map = random_tensor({7, 8}, DType::kF32, 5);
        const std::vector<double> before = to_doubles(map);
        add_scaled_into(test.ex, left, added, factors, map.narrow(1, 2, 5));
        const std::vector<double> got = to_doubles(map), f = to_doubles(factors), x = to_doubles(a),
                                  y = to_doubles(added.rank() == 1 ? one : b);
        for (size_t r = 0; r < 7; ++r)
          for (size_t c = 0; c < 8; ++c) {
            const size_t k = c - 2;
            const double term = added.rank() == 1 ? y[k % 5] : y[r * 9 + 1 + k % 5];
            if (c < 2 || c > 6)
              EXPECT_EQ(got[r * 8 + c], before[r * 8 + c]);
            else
              EXPECT_NEAR(got[r * 8 + c], x[r * 12 + 4 + k] + f[r] * term, 1e-6) << impl << r << " " << c;
          }
      }
      EXPECT_THROW(add_scaled_into(test.ex, left, one.narrow(0, 0, 4), factors, right), ShapeError);
      EXPECT_THROW(add_scaled_into(test.ex, left, right, factors.narrow(0, 0, 6), left), ShapeError);
    });
}

TEST(Elementwise, SplitsIntoTwoBf16) {
  const Tensor x = random_tensor({2, 3, 37}, DType::kF32, 1, 30.0f),
               y = random_tensor({2, 3, 16}, DType::kF32, 2);
  const std::vector<double> left = to_doubles(x), right = to_doubles(y);
  for (const char* impl : {"host", "scalar", "ref"})
    with_implementation("elementwise", impl, [&] {
      TestExec test;
      const Tensor both = split_bf16(test.ex, x, 3, &y);
      EXPECT_EQ(both.shape(), Shape({2, 3, 3 * 53}));
      EXPECT_EQ(both.dtype(), DType::kBF16);
      const std::vector<double> got = to_doubles(both);
      for (size_t row = 0; row < 6; ++row)
        for (size_t c = 0; c < 53; ++c) {
          const double want = c < 37 ? left[row * 37 + c] : right[row * 16 + c - 37];
          const double* parts = got.data() + row * 159 + c;
          const uint16_t nearest = float_to_bf16(static_cast<float>(want));
          EXPECT_EQ(parts[0], static_cast<double>(bf16_to_float(nearest)));
          EXPECT_EQ(parts[0], parts[106]);
          // The rest is below half a unit of the high part's last place and is itself rounded to 8 bits.
          EXPECT_NEAR(parts[0] + parts[53], want, std::fabs(want) * std::ldexp(1, -16));
        }
      const std::vector<double> two = to_doubles(split_bf16(test.ex, x, 2, &y));
      for (size_t i = 0; i < two.size(); ++i) EXPECT_EQ(two[i], got[i / 106 * 159 + i % 106]);
      EXPECT_EQ(to_doubles(split_bf16(test.ex, x, 2)),
                to_doubles(split_bf16(test.ex, x.reshape({6, 37}), 2)));
      EXPECT_THROW(split_bf16(test.ex, x, 1), UsageError);
      EXPECT_THROW(split_bf16(test.ex, cast(test.ex, x, DType::kBF16), 3), UsageError);
      const Tensor longer = random_tensor({2, 4, 16}, DType::kF32, 3);
      EXPECT_THROW(split_bf16(test.ex, x, 3, &longer), ShapeError);
    });
}

TEST(Elementwise, CastsToAndFromHalf) {
  for (const char* impl : {"host", "scalar"})
    with_implementation("elementwise", impl, [] {
      TestExec test;
      const Tensor x = random_tensor({5, 333}, DType::kF32, 3);
      const Tensor half = cast(test.ex, x, DType::kF16);
      std::vector<uint16_t> want(5 * 333);
      const std::vector<float> values = to_floats(host_device(), x);
      for (size_t i = 0; i < want.size(); ++i) want[i] = float_to_f16(values[i]);
      EXPECT_EQ(0, std::memcmp(want.data(), half.data(), half.bytes()));
      EXPECT_EQ(to_doubles(cast(test.ex, half, DType::kF32)), to_doubles(half));
    });
}

TEST(ElementwiseChecks, NameWhatDoesNotFit) {
  TestExec test;
  const Tensor x = random_tensor({2, 3}, DType::kF32, 1), y = random_tensor({3, 2}, DType::kF32, 1);
  const Tensor wide = make_tensor(host_device(), {2, 3}, DType::kF64);
  const Tensor cube = random_tensor({4, 4, 4}, DType::kF32, 1);
  const auto message = [](const auto& body) { return message_of<Error>(body); };
  EXPECT_THAT(message([&] { add(test.ex, x, y); }), HasSubstr("add: b [3,2] does not fit a [2,3]"));
  EXPECT_THAT(message([&] { activate(test.ex, wide, Activation::kSilu); }),
              HasSubstr("silu: x must be f32, bf16 or f16, is f64"));
  const Tensor half = random_tensor({2, 3}, DType::kF16, 1);
  EXPECT_THAT(message([&] {
                const ForcedImpl forced("elementwise", "host");
                activate(test.ex, half, Activation::kSilu);
              }),
              HasSubstr("computes in f32 and bf16 only"));
  EXPECT_THAT(message([&] {
                const ForcedImpl forced("elementwise", "gpu");
                add(test.ex, half, half);
              }),
              HasSubstr("runs on a GPU only"));
  EXPECT_THAT(message([&] { geglu(test.ex, x); }), HasSubstr("geglu: x must be [...,2C], is [2,3]"));
  EXPECT_THAT(message([&] { concat_channels(test.ex, x, y); }),
              HasSubstr("concat_channels: b [3,2] does not fit"));
  EXPECT_THAT(message([&] { soft_clamp(test.ex, x, 0); }), HasSubstr("limit must be positive"));
  EXPECT_THAT(message([&] { cast(test.ex, x, DType::kI32); }), HasSubstr("cannot convert f32 to i32"));
  EXPECT_THAT(message([&] { copy_into(test.ex, x, random_tensor({5}, DType::kF32, 1)); }),
              HasSubstr("does not fit y"));
  EXPECT_THAT(message([&] { cast(test.ex, cube.narrow(2, 0, 2).narrow(1, 0, 2), DType::kF32); }),
              HasSubstr("cannot be read as rows"));
}

}  // namespace
}  // namespace rocm_sd
