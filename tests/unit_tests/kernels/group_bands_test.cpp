// The steps of a banded group norm: each implementation against double precision, and together against
// group_norm.
#include "kernels/norm/group_bands.hpp"

#include <gtest/gtest.h>

#include "kernels/elementwise/elementwise.hpp"
#include "kernels/norm/norm.hpp"
#include "support/implementations.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;

struct Case {
  std::string impl;
  DType dtype;
};

class GroupBands : public testing::TestWithParam<Case> {
 protected:
  // A result under one implementation of all three steps; group_scale has no row for the host's vectors.
  template <class Op>
  std::vector<double> under(const std::string& impl, const Op& op) {
    const ForcedImpl a("group_moments", impl), b("normalise_channels", impl);
    const ForcedImpl c("group_scale", impl == "host" ? "scalar" : impl);
    TestExec test;
    return to_doubles(op(test.ex));
  }
};

TEST_P(GroupBands, MomentsAgreeWithTheReference) {
  const auto& [impl, dtype] = GetParam();
  for (const Shape& shape :
       {Shape{1, 1, 1, 8}, Shape{1, 3, 5, 32}, Shape{1, 70, 61, 16}, Shape{1, 1, 4097, 8}}) {
    // A mean far from 0: squares must not cancel.
    const Tensor x = random_tensor(shape, DType::kF32, 5);
    std::vector<float> values = to_floats(host_device(), x);
    for (float& v : values) v = v * 0.5f + 20;
    const Tensor input = tensor_from(host_device(), shape, values.data(), dtype);
    const int64_t pixels = shape[1] * shape[2];
    const auto op = [&](Exec& ex) {
      const Tensor out = ex.alloc({moment_rows(pixels), 4, 3}, DType::kF32);
      group_moments(ex, input, 4, out);
      return out;
    };
    const int64_t count = std::max<int64_t>(pixels * shape[3] / 4 / moment_rows(pixels), 1);
    expect_near(under(impl, op), under("ref", op), reduction_tolerance(DType::kF32, count),
                concat(shape.numel(), " elements"));
  }
}

TEST_P(GroupBands, BandsTogetherAreAGroupNorm) {
  const auto& [impl, dtype] = GetParam();
  const int64_t channels = 32, height = 23, width = 37;
  const Tensor x = random_tensor({1, height, width, channels}, dtype, 1, 3);
  const NormWeight w{random_tensor({channels}, DType::kF32, 2), random_tensor({channels}, DType::kF32, 3)};
  const auto banded = [&](Exec& ex) {
    const Tensor y = ex.alloc_like(x);
    const int64_t cuts[] = {0, 1, 9, 22, height};
    int64_t rows = 0;
    for (int i = 0; i < 4; ++i) rows += moment_rows((cuts[i + 1] - cuts[i]) * width);
    const Tensor moments = ex.alloc({rows, 8, 3}, DType::kF32);
    int64_t at = 0;
    for (int i = 0; i < 4; ++i) {
      const int64_t count = moment_rows((cuts[i + 1] - cuts[i]) * width);
      group_moments(ex, x.narrow(1, cuts[i], cuts[i + 1] - cuts[i]), 8, moments.narrow(0, at, count));
      at += count;
    }
    const Tensor scale = group_scale(ex, moments, w, 1e-6f);
    for (int i = 0; i < 4; ++i)
      normalise_channels(ex, x.narrow(1, cuts[i], cuts[i + 1] - cuts[i]), scale, w, Activation::kSilu,
                         y.narrow(1, cuts[i], cuts[i + 1] - cuts[i]));
    return y;
  };
  TestExec test;
  const ForcedImpl reference("group_norm", "ref");
  const auto want =
      to_doubles(group_norm(test.ex, x, w, {.groups = 8, .eps = 1e-6f, .act = Activation::kSilu}));
  expect_near(under(impl, banded), want, reduction_tolerance(dtype, height * width * channels / 8));
}

// All images in one launch: of each what it has alone, and moments in a part of a larger tensor.
TEST_P(GroupBands, ImagesAreThoseOfOneEach) {
  const auto& [impl, dtype] = GetParam();
  const int64_t images = 3, channels = 24, height = 11, width = 37, runs = moment_rows(height * width);
  const Tensor x = random_tensor({images, height, width, channels}, dtype, 1, 3);
  const NormWeight w{random_tensor({channels}, DType::kF32, 2), random_tensor({channels}, DType::kF32, 3)};
  const auto normed = [&](Exec& ex, const Tensor& part, const Tensor& moments, const Tensor& y) {
    group_moments(ex, part, 6, moments.narrow(moments.rank() - 3, 1, runs));
    group_moments(ex, part, 6, moments.narrow(moments.rank() - 3, 1 + runs, runs));
    // The first row counts nothing.
    const Tensor scale = group_scale(ex, moments, w, 1e-6f);
    normalise_channels(ex, part, scale, w, Activation::kSilu, y);
  };
  const auto zeros = [](const Shape& shape) {
    return tensor_from(host_device(), shape, std::vector<float>(static_cast<size_t>(shape.numel())).data());
  };
  const auto together = [&](Exec& ex) {
    const Tensor y = ex.alloc_like(x);
    normed(ex, x, zeros({images, 1 + 2 * runs, 6, 3}), y);
    return y;
  };
  const auto one_by_one = [&](Exec& ex) {
    const Tensor y = ex.alloc_like(x);
    for (int64_t n = 0; n < images; ++n)
      normed(ex, x.narrow(0, n, 1), zeros({1 + 2 * runs, 6, 3}), y.narrow(0, n, 1));
    return y;
  };
  EXPECT_EQ(under(impl, together), under(impl, one_by_one));
}

// Rows of other tensors above and below: of each what the whole map gives.
TEST_P(GroupBands, EdgeRowsAreNormalisedAsTheMapIs) {
  const auto& [impl, dtype] = GetParam();
  const int64_t images = 2, channels = 24, height = 9, width = 37;
  const Tensor x = random_tensor({images, height, width, channels}, dtype, 1, 3);
  const Tensor scale = random_tensor({images, 2, channels}, DType::kF32, 4);
  const NormWeight w{random_tensor({channels}, DType::kF32, 2), random_tensor({channels}, DType::kF32, 3)};
  const auto whole = under(impl, [&](Exec& ex) {
    const Tensor y = ex.alloc_like(x);
    normalise_channels(ex, x, scale, w, Activation::kSilu, y);
    return y;
  });
  for (const bool above : {false, true})
    for (const bool below : {false, true}) {
      const auto beside = under(impl, [&](Exec& ex) {
        const auto rows = [&](int64_t begin, int64_t count) {
          const Tensor out = ex.alloc({images, count, width, channels}, dtype);
          copy_into(ex, x.narrow(1, begin, count), out);
          return out;
        };
        const Tensor y = ex.alloc_like(x);
        normalise_channels(ex, rows(above, height - above - below), scale, w, Activation::kSilu, y,
                           {above ? rows(0, 1) : Tensor(), below ? rows(height - 1, 1) : Tensor()});
        return y;
      });
      EXPECT_EQ(beside, whole) << "above " << above << ", below " << below;
    }
}

INSTANTIATE_TEST_SUITE_P(All, GroupBands,
                         testing::Values(Case{"host", DType::kF32}, Case{"host", DType::kBF16},
                                         Case{"scalar", DType::kF32}, Case{"scalar", DType::kBF16},
                                         Case{"scalar", DType::kF16}, Case{"ref", DType::kF16}),
                         [](const auto& info) { return concat(info.param.impl, "_", info.param.dtype); });

TEST(GroupBandsArguments, OnesThatDoNotFitAreRefused) {
  TestExec test;
  const Tensor x = random_tensor({1, 2, 3, 8}, DType::kF32, 1), y = test.ex.alloc_like(x);
  const NormWeight w{random_tensor({8}, DType::kF32, 2), random_tensor({8}, DType::kF32, 3)};
  const Tensor moments = test.ex.alloc({1, 4, 3}, DType::kF32), scale = test.ex.alloc({2, 8}, DType::kF32);
  EXPECT_THROW(group_moments(test.ex, x, 3, moments), ShapeError);
  EXPECT_THROW(group_moments(test.ex, x, 2, moments), ShapeError);
  EXPECT_THROW(group_moments(test.ex, random_tensor({2, 2, 3, 8}, DType::kF32, 1), 4, moments), ShapeError);
  EXPECT_THROW(group_scale(test.ex, scale, w, 0), ShapeError);
  EXPECT_THROW(normalise_channels(test.ex, x, moments, w, Activation::kNone, y), ShapeError);
  EXPECT_THROW(normalise_channels(test.ex, x, scale, w, Activation::kGelu, y), UsageError);
  EXPECT_THROW(normalise_channels(test.ex, x, scale, w, Activation::kNone, scale), ShapeError);
  const Tensor row = test.ex.alloc({1, 1, 3, 8}, DType::kF32);
  EXPECT_THROW(normalise_channels(test.ex, x, scale, w, Activation::kNone, y, {row, {}}), ShapeError);
  EXPECT_THROW(normalise_channels(test.ex, x, scale, w, Activation::kNone, y, {{}, x}), ShapeError);
}

}  // namespace
}  // namespace rocm_sd
