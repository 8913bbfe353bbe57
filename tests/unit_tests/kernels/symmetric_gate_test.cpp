// symmetric_gate against its formula; values near 0 and far from it; refusals. Its example runs with those of
// all ops (measurement/runner_test.cpp).
#include "kernels/symmetric_gate/symmetric_gate.hpp"

#include "kernels/select.hpp"
#include "support/tensor_testing.hpp"

namespace rocm_sd::testing_support {

TEST(SymmetricGate, ScalarAndReferenceAreTheFormula) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
    for (const int64_t size : {0, 1, 3, 1000})
      for (const char* impl : {"scalar", "ref"}) {
        const ForcedImpl only("symmetric_gate", impl);
        TestExec test;
        const Tensor v = random_tensor({size}, dtype, 3), x = random_tensor({size}, dtype, 4);
        const std::vector<double> of_v = to_doubles(v), of_x = to_doubles(x);
        std::vector<double> want;
        for (size_t i = 0; i < of_v.size(); ++i)
          want.push_back((of_v[i] + of_x[i]) * (1 / (1 + std::exp(-of_v[i])) - 0.5));
        expect_tensor_near(symmetric_gate(test.ex, v, x), want, 8 * unit_roundoff(dtype), impl);
      }
}

TEST(SymmetricGate, KeepsItsBitsNearZeroAndIsHalfFarFromIt) {
  // Where v is small, sigmoid(v) - 1/2 is v / 4: as a difference it would lose all but a few bits.
  const std::vector<float> v = {1e-6f, -3e-5f, 100.0f, -100.0f, 0.0f}, x = {1, 2, 3, 4, 5};
  for (const char* impl : {"scalar", "ref"}) {
    const ForcedImpl only("symmetric_gate", impl);
    TestExec test;
    const std::vector<double> got = to_doubles(symmetric_gate(
        test.ex, tensor_from(test.device, {5}, v.data()), tensor_from(test.device, {5}, x.data())));
    const double want[] = {(1e-6 + 1) * 1e-6 / 4, (2 - 3e-5) * -3e-5 / 4, 103.0 / 2, 96.0 / 2, 0};
    for (size_t i = 0; i < 5; ++i)
      EXPECT_NEAR(got[i], want[i], 1e-6 * std::fabs(want[i])) << impl << " " << i;
  }
}

TEST(SymmetricGate, RefusesOtherShapesAndTypes) {
  TestExec test;
  EXPECT_THROW(
      symmetric_gate(test.ex, random_tensor({6}, DType::kF32, 1), random_tensor({2, 3}, DType::kF32, 1)),
      ShapeError);
  EXPECT_THROW(
      symmetric_gate(test.ex, random_tensor({6}, DType::kF32, 1), random_tensor({6}, DType::kF16, 1)),
      ShapeError);
}

}  // namespace rocm_sd::testing_support
