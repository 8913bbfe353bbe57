// Long launches on the host look at the request to stop: products, convolutions and attention.
#include "runtime/stop_request.hpp"

#include <gtest/gtest.h>
#include <omp.h>

#include "kernels/attention/attention.hpp"
#include "kernels/conv/conv2d.hpp"
#include "kernels/gemm/linear.hpp"
#include "support/implementations.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;

// Runs the op on one thread: how often it asks, and that a yes to the third question (the first comes before
// the launch) ends it.
template <class Op>
void expect_stoppable(const Op& op) {
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  int asked = 0, stop_at = 0;
  const CancelCheck check = [&] {
    return ++asked >= stop_at && stop_at > 0;
  };  // who asked to stop goes on asking
  TestExec test;
  op(test.ex);  // weights are laid out, tables read
  test.ex.cancel = &check;
  op(test.ex);
  EXPECT_GE(asked, 6) << "asked within the launch, not only around it";
  asked = 0;
  stop_at = 3;
  EXPECT_THROW(op(test.ex), CancelledError);
  EXPECT_LE(asked, 4);
  omp_set_num_threads(threads);
}

TEST(StopRequest, AttentionIsStoppable) {
  const Tensor q = random_tensor({1, 2048, 64}, DType::kF32, 1),
               k = random_tensor({1, 2048, 64}, DType::kF32, 2);
  for (const char* impl : {"host", "onednn"}) {
    const ForcedImpl forced("attention", impl);
    expect_stoppable([&](Exec& ex) { attention(ex, q, k, k, {.heads = 1}); });
  }
}

TEST(StopRequest, ConvolutionsAreStoppable) {
  const Tensor x = random_tensor({1, 96, 96, 64}, DType::kF32, 1);
  for (const char* impl : {"tiled", "winograd"}) {
    const ForcedImpl forced("conv2d", impl);
    const ConvWeight w{Weight(random_tensor({64, 64, 3, 3}, DType::kF32, 2)), {}};
    expect_stoppable([&](Exec& ex) { conv2d(ex, x, w, {.pad = Padding::same(1)}); });
  }
}

TEST(StopRequest, ProductsAreStoppable) {
  const Tensor x = random_tensor({2048, 512}, DType::kF32, 1);
  const ForcedImpl forced("linear", "tiled");
  const LinearWeight w{Weight(random_tensor({512, 512}, DType::kF32, 2)), {}};
  expect_stoppable([&](Exec& ex) { linear(ex, x, w); });
}

}  // namespace
}  // namespace rocm_sd
