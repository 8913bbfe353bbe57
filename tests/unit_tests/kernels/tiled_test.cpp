// The packing of weights and the paired bf16 path, which ops choose only on CPUs with bf16 instructions.
#include "kernels/gemm/tiled.hpp"

#include <gtest/gtest.h>

#include <array>

#include "support/tensor_testing.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;

TEST(TiledPack, GivesBackThePlainWeight) {
  uint64_t seed = 1;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const bool gated : {false, true})
      for (const bool paired : {false, true})
        for (const auto [outputs, c1, c2, taps] :
             {std::array<int64_t, 4>{2, 2, 0, 1}, {34, 6, 4, 9}, {130, 322, 0, 1}, {6, 8, 2, 4}}) {
          tiled::Layout layout = tiled::layout_for(dtype, outputs, c1, c2, taps, gated);
          layout.paired = paired;
          const Tensor plain = random_tensor({outputs, c1 + c2, taps}, dtype, ++seed);
          const auto pack = tiled::pack_plain(plain, layout);
          EXPECT_EQ(to_doubles(pack->unpack()), to_doubles(plain)) << layout.key();
          EXPECT_GE(pack->bytes(), plain.bytes());
        }
}

// x [rows, in] times w [outputs, in], by pairs, whatever the CPU.
TEST(Tiled, MultipliesPairs) {
  for (const auto [rows, in, outputs] :
       {std::array<int64_t, 3>{1, 2, 3}, {7, 64, 40}, {140, 642, 100}, {20, 1282, 70}, {13, 30, 64}}) {
    const Tensor x = random_tensor({rows, in}, DType::kBF16, 1),
                 w = random_tensor({outputs, in}, DType::kBF16, 2),
                 bias = random_tensor({outputs}, DType::kF32, 3);
    tiled::Product product;
    product.dtype = product.out_dtype = product.weight_dtype = DType::kBF16;
    product.layout = tiled::layout_for(DType::kBF16, outputs, in, 0, 1, false);
    product.layout.paired = true;
    const auto pack = tiled::pack_plain(w, product.layout);
    product.weights = tiled::packed_data(*pack);
    product.width = product.out_w = rows;
    product.source[0] = x.data();
    product.pixel_stride[0] = in;
    TestExec test;
    const Tensor y = test.ex.alloc({rows, outputs}, DType::kBF16);
    product.out = y.data();
    product.out_pixel = outputs;
    product.bias = bias.as<float>();
    const tiled::Plan plan = tiled::plan(product);
    const Tensor workspace = test.ex.alloc({static_cast<int64_t>(plan.workspace_bytes())}, DType::kU8);
    tiled::run(product, plan, workspace.data());
    const std::vector<double> xs = to_doubles(x), ws = to_doubles(w), bs = to_doubles(bias);
    std::vector<double> want;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t o = 0; o < outputs; ++o) {
        double sum = bs[o];
        for (int64_t k = 0; k < in; ++k) sum += xs[r * in + k] * ws[o * in + k];
        want.push_back(sum);
      }
    expect_tensor_near(y, want, reduction_tolerance(DType::kBF16, in), concat(rows, "x", outputs, "x", in));
  }
}

}  // namespace
}  // namespace rocm_sd
