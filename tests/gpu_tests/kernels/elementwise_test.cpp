// Elementwise maps on the GPU: every map and type against double precision; views, repetition, casts bit for
// bit.
#include "kernels/elementwise/elementwise.hpp"

#include <gtest/gtest.h>

#include "base/format.hpp"
#include "gpu_tests/against_reference.hpp"
#include "kernels/step/step.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;

class GpuElementwiseTest : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(All, GpuElementwiseTest, testing::Values(DType::kF16, DType::kBF16, DType::kF32),
                         [](const auto& info) { return fmt::format("{}", info.param); });

void check(const PlacedOp& op, double tolerance, const std::string& what) {
  expect_like_reference("elementwise", op, tolerance, what);
}

TEST_P(GpuElementwiseTest, MapsMatchReference) {
  const DType dtype = GetParam();
  // Hardware exponentials: a few roundoffs at an argument rounded to float.
  const double tolerance = 2 * unit_roundoff(dtype) + 32 * unit_roundoff(DType::kF32);
  for (const Shape& shape : {Shape{1}, Shape{3, 7}, Shape{2, 5, 6}, Shape{1, 129, 130}, Shape{40000},
                             Shape{0, 4}, Shape{33, 64}, Shape{300, 2560}}) {
    const Tensor x = random_tensor(shape, dtype, 1, 3.0f), y = random_tensor(shape, dtype, 2);
    const std::string what = concat(dtype, " ", shape);
    for (const Activation act :
         {Activation::kNone, Activation::kSilu, Activation::kGelu, Activation::kQuickGelu, Activation::kRelu})
      check([&](Exec& ex, const Place& place) { return activate(ex, place(x), act); }, tolerance,
            concat(what, " ", activation_name(act)));
    check([&](Exec& ex, const Place& place) { return add(ex, place(x), place(y)); }, tolerance,
          what + " add");
    const Tensor factors = random_tensor({shape[0]}, DType::kF32, 3);
    check([&](Exec& ex, const Place& place) { return add_scaled(ex, place(x), place(y), place(factors)); },
          tolerance, what + " add_scaled");
    check([&](Exec& ex, const Place& place) { return affine(ex, place(x), -0.3f, 1.25f); }, tolerance,
          what + " affine");
    check([&](Exec& ex, const Place& place) { return leaky_relu(ex, place(x), 0.2f); }, tolerance,
          what + " leaky_relu");
    const Tensor slopes = random_tensor({shape[-1]}, dtype, 4);
    check([&](Exec& ex, const Place& place) { return prelu(ex, place(x), place(slopes)); }, tolerance,
          what + " prelu");
    check([&](Exec& ex, const Place& place) { return soft_clamp(ex, place(x), 3.0f); }, tolerance,
          what + " soft_clamp");
    if (shape[-1] % 2 == 0)
      check([&](Exec& ex, const Place& place) { return geglu(ex, place(x)); }, tolerance, what + " geglu");
    for (const DType to : {DType::kF32, DType::kBF16, DType::kF16})
      check([&](Exec& ex, const Place& place) { return cast(ex, place(x), to); }, 0,
            concat(what, " to ", to));
  }
}

TEST_P(GpuElementwiseTest, ConcatenatesAndCopiesViews) {
  const DType dtype = GetParam();
  for (const auto& [ca, cb] : {std::pair<int64_t, int64_t>{4, 5}, {16, 8}, {320, 640}, {8, 3}}) {
    const Tensor a = random_tensor({2, 9, ca}, dtype, 1), b = random_tensor({2, 9, cb}, dtype, 2);
    check([&](Exec& ex, const Place& place) { return concat_channels(ex, place(a), place(b)); }, 0,
          concat("concat ", ca, "+", cb));
    // The parts read back as strided views, at offsets that are multiples of 16 bytes and not.
    const Tensor both = random_tensor({2, 9, ca + cb}, dtype, 3);
    check([&, ca = ca, cb = cb](
              Exec& ex, const Place& place) { return cast(ex, place(both).narrow(2, ca, cb), DType::kF32); },
          0, concat("view ", ca, "+", cb));
    // A view written in place: the rest of the rows stays.
    check(
        [&, ca = ca, cb = cb](Exec& ex, const Place& place) {
          const Tensor rows = cast(ex, place(both), dtype);
          copy_into(ex, place(b), rows.narrow(2, ca, cb));
          copy_into(ex, place(a).narrow(2, 1, 2), rows.narrow(2, 0, 2));
          return rows;
        },
        0, concat("into a view ", ca, "+", cb));
  }
  const Tensor line = random_tensor({1000}, dtype, 4);
  check([&](Exec& ex, const Place& place) { return affine(ex, place(line).narrow(0, 3, 990), 2, 0); }, 0,
        "unaligned");
  expect_same_bits_as_graph([&](Exec& ex, const Place& place) { return affine(ex, place(line), 2, 1); });
}

TEST(GpuElementwise, SplitsIntoTwoBf16) {
  for (const auto& [ca, cb] : {std::pair<int64_t, int64_t>{4, 5}, {16, 8}, {320, 640}}) {
    const Tensor a = random_tensor({2, 9, ca}, DType::kF32, 1, 30.0f),
                 b = random_tensor({2, 9, cb}, DType::kF32, 2);
    for (const int64_t parts : {2, 3})
      check(
          [&](Exec& ex, const Place& place) {
            const Tensor second = place(b);
            return split_bf16(ex, place(a), parts, &second);
          },
          0, concat("split ", ca, "+", cb, " in ", parts));
  }
}

// All the finite values and infinities of 16 bits, through float and back.
TEST(GpuElementwise, CastsEveryHalf) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    GpuTestExec gpu;
    std::vector<uint16_t> bits;
    for (uint32_t i = 0; i < 65536; ++i) {
      const auto half = static_cast<uint16_t>(i);
      const float value = dtype == DType::kF16 ? f16_to_float(half) : bf16_to_float(half);
      if (!std::isnan(value)) bits.push_back(half);
    }
    const auto count = static_cast<int64_t>(bits.size());
    const Tensor x = make_tensor(gpu.device, {count}, dtype);
    gpu.device.copy_to_device(x.data(), bits.data(), x.bytes());
    const ForcedImpl forced("elementwise", "gpu");
    const Tensor wide = cast(gpu.ex, x, DType::kF32), back = cast(gpu.ex, wide, dtype);
    const std::vector<float> values = to_floats(gpu.device, wide);
    std::vector<uint16_t> got(bits.size());
    gpu.device.copy_to_host(got.data(), back.data(), back.bytes());
    for (size_t i = 0; i < bits.size(); ++i) {
      ASSERT_EQ(values[i], dtype == DType::kF16 ? f16_to_float(bits[i]) : bf16_to_float(bits[i])) << bits[i];
      ASSERT_EQ(got[i], bits[i]);
    }
  }
}

// Far from zero the activations are the argument or nothing, not NaN.
TEST(GpuElementwise, ActivationsHoldAtTheEnds) {
  const std::vector<float> values = {0.0f, -0.0f, 88.7f, -88.7f, 1e4f, -1e4f, 3e38f, -3e38f, 1e-30f, -1e-30f};
  const Tensor x = tensor_from(host_device(), {10}, values.data());
  for (const Activation act :
       {Activation::kSilu, Activation::kGelu, Activation::kQuickGelu, Activation::kRelu}) {
    const PlacedOp op = [&](Exec& ex, const Place& place) { return activate(ex, place(x), act); };
    const std::vector<double> got = on_gpu("elementwise", op), want = on_host("elementwise", op);
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], want[i], 1e-5 * std::fabs(want[i]) + 1e-30) << activation_name(act) << values[i];
  }
}

}  // namespace
}  // namespace rocm_sd
