// blend: the mask's ends give either operand exactly, the middle the mean, and wrong shapes are refused.
#include "kernels/step/blend.hpp"

#include "support/implementations.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;

TEST(Blend, MixesByTheMask) {
  for (const char* impl : {"scalar", "ref"}) {
    const ForcedImpl forced("blend", impl);
    TestExec test;
    const Tensor a = random_tensor({1, 3, 5, 4}, DType::kF32, 1),
                 b = random_tensor({1, 3, 5, 4}, DType::kF32, 2);
    std::vector<float> values(60);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 3) * 0.5f;
    const auto got =
        to_floats(test.device, blend(test.ex, a, b, tensor_from(test.device, {1, 3, 5, 4}, values.data())));
    for (size_t i = 0; i < values.size(); ++i) {
      const float x = a.as<float>()[i], y = b.as<float>()[i];
      EXPECT_EQ(got[i], i % 3 == 0   ? y
                        : i % 3 == 2 ? x
                                     : static_cast<float>((double{x} + double{y}) / 2))
          << impl << " " << i;
    }
  }
}

TEST(Blend, RefusesOtherShapesAndTypes) {
  TestExec test;
  const Tensor a = random_tensor({2, 4}, DType::kF32, 1);
  EXPECT_THROW(blend(test.ex, a, random_tensor({4, 2}, DType::kF32, 1), a), ShapeError);
  EXPECT_THROW(blend(test.ex, a, a, random_tensor({2, 4}, DType::kBF16, 1)), ShapeError);
}

}  // namespace
}  // namespace rocm_sd
