// The steps of a banded group norm on the GPU: the moments against the reference, all together against
// group_norm in double precision.
#include "kernels/norm/group_bands.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "base/format.hpp"
#include "gpu_tests/against_reference.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/norm/norm.hpp"
#include "support/model_shapes.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;

struct Case {
  int64_t height, width, channels;
  int groups;
  std::vector<int64_t> cuts;  // rows where bands begin, but for the first
};

class GpuGroupBands : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(All, GpuGroupBands, testing::Values(DType::kF16, DType::kBF16, DType::kF32),
                         [](const auto& info) { return fmt::format("{}", info.param); });

Tensor banded(Exec& ex, const Tensor& x, const NormWeight& w, const Case& c) {
  std::vector<int64_t> begins = c.cuts;
  begins.insert(begins.begin(), 0);
  begins.push_back(c.height);
  std::vector<int64_t> rows = {0};
  for (size_t i = 0; i + 1 < begins.size(); ++i)
    rows.push_back(rows.back() + moment_rows((begins[i + 1] - begins[i]) * c.width));
  const Tensor moments = ex.alloc({rows.back(), c.groups, 3}, DType::kF32), y = ex.alloc_like(x);
  for (size_t i = 0; i + 1 < begins.size(); ++i)
    group_moments(ex, x.narrow(1, begins[i], begins[i + 1] - begins[i]), c.groups,
                  moments.narrow(0, rows[i], rows[i + 1] - rows[i]));
  const Tensor scale = group_scale(ex, moments, w, 1e-6f);
  for (size_t i = 0; i + 1 < begins.size(); ++i) {
    const int64_t count = begins[i + 1] - begins[i];
    normalise_channels(ex, x.narrow(1, begins[i], count), scale, w, Activation::kSilu,
                       y.narrow(1, begins[i], count));
  }
  return y;
}

// normed(ex, x, w): the norm in steps, against group_norm on the host.
template <class Normed>
void check(const Case& c, DType dtype, int64_t images, const Normed& normed) {
  const Tensor x = random_tensor({images, c.height, c.width, c.channels}, dtype, 1, 3);
  const Tensor gain = random_tensor({c.channels}, DType::kF32, 2),
               bias = random_tensor({c.channels}, DType::kF32, 3);
  const std::vector<double> want = on_host("group_norm", [&](Exec& ex, const Place&) {
    return group_norm(ex, x, {gain, bias}, {.groups = c.groups, .eps = 1e-6f, .act = Activation::kSilu});
  });
  const ForcedImpl scale("group_scale", "gpu"), normalise("normalise_channels", "gpu");
  const std::vector<double> got = on_gpu("group_moments", [&](Exec& ex, const Place& place) {
    return normed(ex, place(x), NormWeight{place(gain), place(bias)});
  });
  expect_near(got, want, reduction_tolerance(dtype, c.height * c.width * c.channels / c.groups),
              fmt::format("{} x {}x{}x{}", images, c.height, c.width, c.channels));
}
void check_banded(const Case& c, DType dtype) {
  check(c, dtype, 1, [&](Exec& ex, const Tensor& x, const NormWeight& w) { return banded(ex, x, w, c); });
}

TEST_P(GpuGroupBands, AreAGroupNorm) {
  for (const Case& c : {Case{1, 1, 8, 1, {}}, Case{7, 5, 32, 8, {1, 2}}, Case{40, 61, 64, 32, {13, 39}},
                        Case{23, 37, 24, 3, {11}}, Case{64, 64, 512, 32, {16, 32, 48}}})
    check_banded(c, GetParam());
}

// All images in one launch, with moments in the middle of those of other rows, as those of ranks lie.
TEST_P(GpuGroupBands, OfSeveralImages) {
  for (const Case& c : {Case{7, 5, 32, 8, {}}, Case{16, 33, 64, 32, {}}, Case{9, 4, 24, 3, {}}})
    check(c, GetParam(), 3, [&](Exec& ex, const Tensor& x, const NormWeight& w) {
      const Tensor y = ex.alloc_like(x);
      const int64_t rows = moment_rows(c.height * c.width);
      const Tensor moments = ex.alloc({x.dim(0), 3 * rows, c.groups, 3}, DType::kF32);
      for (const int64_t begin : {0, 1, 2})  // three times the same: the same mean and deviation
        group_moments(ex, x, c.groups, moments.narrow(1, begin * rows, rows));
      normalise_channels(ex, x, group_scale(ex, moments, w, 1e-6f), w, Activation::kSilu, y);
      return y;
    });
}

// As a rank has them: its rows between those of its neighbours.
TEST_P(GpuGroupBands, BetweenEdgeRows) {
  const int64_t images = 2;
  for (const Case& c : {Case{7, 5, 32, 8, {}}, Case{16, 33, 320, 32, {}}, Case{9, 4, 25, 5, {}}}) {
    const DType dtype = GetParam();
    const Tensor x = random_tensor({images, c.height, c.width, c.channels}, dtype, 1, 3);
    const Tensor scale = random_tensor({images, 2, c.channels}, DType::kF32, 4);
    const Tensor gain = random_tensor({c.channels}, DType::kF32, 2),
                 bias = random_tensor({c.channels}, DType::kF32, 3);
    const std::vector<double> want = on_host("normalise_channels", [&](Exec& ex, const Place&) {
      const Tensor y = ex.alloc_like(x);
      normalise_channels(ex, x, scale, {gain, bias}, Activation::kSilu, y);
      return y;
    });
    const std::vector<double> got = on_gpu("normalise_channels", [&](Exec& ex, const Place& place) {
      const Tensor on_device = place(x), y = ex.alloc_like(on_device);
      const auto rows = [&](int64_t begin, int64_t count) {
        const Tensor out = ex.alloc({images, count, c.width, c.channels}, dtype);
        copy_into(ex, on_device.narrow(1, begin, count), out);
        return out;
      };
      normalise_channels(ex, rows(1, c.height - 2), place(scale), {place(gain), place(bias)},
                         Activation::kSilu, y, {rows(0, 1), rows(c.height - 1, 1)});
      return y;
    });
    expect_near(got, want, reduction_tolerance(dtype, 4),
                fmt::format("{} x {}x{}x{}", images, c.height, c.width, c.channels));
  }
}

TEST_P(GpuGroupBands, OfTheVaeFull) {
  const VaeNorm norm = finest_vae_norm();
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(norm.pixels))));
  std::vector<int64_t> cuts;
  for (int64_t row = side / 8; row < side; row += side / 8) cuts.push_back(row);
  check_banded({side, side, norm.channels, norm.groups, cuts}, GetParam());
}

}  // namespace
}  // namespace rocm_sd
