// The step ops on the GPU against the reference: combinations, guidance, blends, posteriors, pictures,
// counts.
#include "kernels/step/step.hpp"

#include <gtest/gtest.h>

#include "gpu_tests/against_reference.hpp"
#include "kernels/step/blend.hpp"
#include "kernels/step/posterior.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;

const std::vector<DType> kTypes = {DType::kF16, DType::kBF16, DType::kF32};

TEST(GpuStep, CombinesInDoubleAndRoundsOnce) {
  for (const int64_t size : {0, 1, 63, 64, 130, 40001})
    for (const int count : {1, 2, 5, 12}) {
      std::vector<Tensor> x;
      for (int t = 0; t < count; ++t) x.push_back(random_tensor({size}, DType::kF32, 10 + t));
      // Terms of one sign, so that the sum is as large as they are and one rounding of it all that may
      // differ.
      expect_like_reference(
          "linear_combination",
          [&](Exec& ex, const Place& place) {
            std::vector<Term> terms;
            for (int t = 0; t < count; ++t) terms.push_back({1e4 / (t + 1), place(x[t])});
            return linear_combination(ex, terms);
          },
          2 * unit_roundoff(DType::kF32), concat(count, " of ", size));
    }
  // Views that begin between two multiples of 16 bytes.
  const Tensor whole = random_tensor({3, 35}, DType::kF32, 1);
  const PlacedOp op = [&](Exec& ex, const Place& place) {
    const Tensor all = place(whole);
    return linear_combination(ex, {{2, all.narrow(0, 1, 2)}, {0.25, all.narrow(0, 0, 2)}});
  };
  expect_like_reference("linear_combination", op, 2 * unit_roundoff(DType::kF32));
  expect_same_bits_as_graph(op);
}

TEST(GpuStep, GuidesAndRescales) {
  for (const DType dtype : kTypes)
    for (const Shape& shape : {Shape{6, 5, 7, 4}, Shape{2, 3, 1, 1}, Shape{4, 64, 64, 4}})
      for (const double rescale : {0.0, 0.7}) {
        const Tensor x = random_tensor(shape, dtype, 3);
        const PlacedOp op = [&](Exec& ex, const Place& place) {
          return apply_guidance(ex, place(x), {.scale = 7.5, .rescale = rescale});
        };
        expect_like_reference("apply_guidance", op, 2 * unit_roundoff(DType::kF32),
                              concat(dtype, " ", shape));
        expect_same_bits_as_graph(op);
      }
  const std::vector<float> values(32, 0.5f);
  const Tensor constant = tensor_from(host_device(), {2, 2, 2, 4}, values.data());
  for (const double y : on_gpu("apply_guidance", [&](Exec& ex, const Place& place) {
         return apply_guidance(ex, place(constant), {.scale = 3, .rescale = 1});
       }))
    EXPECT_EQ(y, 0.5);
}

TEST(GpuStep, ScalesAndRepeatsTheModelInput) {
  for (const Shape& shape : {Shape{2, 3, 3, 4}, Shape{1, 3, 3, 3}, Shape{1, 64, 64, 4}}) {
    const Tensor x = random_tensor(shape, DType::kF32, 5);
    for (const DType dtype : kTypes)
      expect_like_reference(
          "elementwise",
          [&](Exec& ex, const Place& place) { return scale_model_input(ex, place(x), 0.3, 3, dtype); },
          2 * unit_roundoff(dtype), concat(dtype, " ", shape));
  }
}

TEST(GpuStep, RoundsPicturesHalfToEven) {
  std::vector<float> values = {-1,       1,         0,    2, -2, std::numeric_limits<float>::quiet_NaN(),
                               INFINITY, -INFINITY, 0.25f};
  for (int i = 0; i <= 2 * 255 * 4; ++i) values.push_back(static_cast<float>(i) / (255.0f * 4) - 1.0f);
  while (values.size() % 3) values.push_back(0);
  for (const DType dtype : kTypes) {
    const Tensor x =
        tensor_from(host_device(), {1, 1, static_cast<int64_t>(values.size() / 3), 3}, values.data(), dtype);
    expect_like_reference(
        "elementwise", [&](Exec& ex, const Place& place) { return to_rgb8(ex, place(x)); }, 0, concat(dtype));
    expect_like_reference(
        "elementwise", [&](Exec& ex, const Place& place) { return to_rgb8(ex, place(x), 1, 0); }, 0,
        concat(dtype, " of 0..1"));
  }
}

TEST(GpuStep, CountsWhatIsNotFinite) {
  for (const DType dtype : kTypes)
    for (const int64_t size : {0, 1, 100, 50001, 3000000}) {
      std::vector<float> values(static_cast<size_t>(size), 1.5f);
      int64_t want = 0;
      for (size_t i = 0; i < values.size(); i += 7, ++want)
        values[i] = i % 3 == 0 ? INFINITY : i % 3 == 1 ? -INFINITY : std::numeric_limits<float>::quiet_NaN();
      GpuTestExec gpu;
      const Tensor x = tensor_from(gpu.device, {size}, values.data(), dtype);
      const Tensor count = count_nonfinite(gpu.ex, x);
      int64_t got = -1;
      gpu.device.copy_to_host(&got, count.data(), sizeof(got));
      EXPECT_EQ(got, want) << dtype_name(dtype) << " " << size;
    }
}

TEST(GpuStep, BlendsByTheMask) {
  for (const int64_t size : {1, 60, 4097}) {
    const Tensor a = random_tensor({size}, DType::kF32, 1), b = random_tensor({size}, DType::kF32, 2),
                 mask = random_tensor({size}, DType::kF32, 3);
    expect_like_reference(
        "blend", [&](Exec& ex, const Place& place) { return blend(ex, place(a), place(b), place(mask)); },
        unit_roundoff(DType::kF32));
  }
}

TEST(GpuStep, DrawsFromThePosterior) {
  for (const DType dtype : kTypes) {
    const Tensor moments = random_tensor({2, 3, 5, 8}, dtype, 1, 5),
                 noise = random_tensor({2, 3, 5, 4}, DType::kF32, 2);
    // The exponential's argument is rounded to float, up to 8: so many roundoffs, and a few of its own.
    expect_like_reference(
        "sample_posterior",
        [&](Exec& ex, const Place& place) {
          const Tensor random = place(noise);
          return sample_posterior(ex, place(moments), &random);
        },
        16 * unit_roundoff(DType::kF32), concat(dtype));
    expect_like_reference(
        "sample_posterior",
        [&](Exec& ex, const Place& place) { return sample_posterior(ex, place(moments), nullptr); }, 0,
        concat(dtype));
  }
}

}  // namespace
}  // namespace rocm_sd
