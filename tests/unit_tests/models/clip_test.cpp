// Text encoder: which state is pooled, ids out of range, clip skip. Parity with transformers is tested by
// tests/integration_tests/test_models.py.
#include "models/clip.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "support/random_source.hpp"
#include "support/tensor_testing.hpp"

namespace rocm_sd {
namespace {

using testing_support::RandomSource;

const ClipConfig kSmall = {.vocabulary = 50,
                           .width = 16,
                           .heads = 2,
                           .mlp_width = 32,
                           .layers = 3,
                           .positions = 8,
                           .projection = 12,
                           .eos_token_id = 49};

Tensor ids_tensor(const std::vector<int32_t>& ids, const Shape& shape) {
  const Tensor out = make_tensor(host_device(), shape, DType::kI32);
  host_device().copy_to_device(out.data(), ids.data(), out.bytes());
  return out;
}

TEST(ClipTextModel, PoolsTheFirstEndOfText) {
  const std::vector<int32_t> ids = {48, 5, 49, 49, 48, 49, 7, 49, 48, 1, 2, 3};
  EXPECT_EQ(pooled_rows(kSmall, ids, 4),
            (std::vector<int32_t>{2, 5, 8}));  // the last row has none: its first
  ClipConfig legacy = kSmall;
  legacy.eos_token_id = 2;  // the highest id, whatever it is
  EXPECT_EQ(pooled_rows(legacy, ids, 4), (std::vector<int32_t>{2, 5, 8}));
  EXPECT_EQ(pooled_rows(legacy, std::vector<int32_t>{1, 2, 9, 9}, 4), (std::vector<int32_t>{2}));
  EXPECT_THROW(pooled_rows(kSmall, ids, 5), UsageError);
}

TEST(ClipTextModel, ChecksIds) {
  EXPECT_NO_THROW(check_ids(kSmall, std::vector<int32_t>{0, 49}));
  EXPECT_THROW(check_ids(kSmall, std::vector<int32_t>{0, 50}), UsageError);
  EXPECT_THROW(check_ids(kSmall, std::vector<int32_t>{-1}), UsageError);
}

TEST(ClipTextModel, SkipsLayersAndPools) {
  const RandomSource source;
  const ClipTextModel model = ClipTextModel::load(host_device(), kSmall, source, DType::kF32);
  testing_support::TestExec test;
  const Tensor ids = ids_tensor({48, 5, 49, 49, 48, 6, 7, 49}, {2, 4});
  const Tensor rows = ids_tensor({2, 7}, {2, 1});
  std::map<std::string, std::vector<double>> taps;
  const Tap tap = [&](const std::string& name, const Tensor& x) {
    taps[name] = testing_support::to_doubles(x);
  };
  const ClipOutput out =
      model(test.ex, ids, {.skip = 1, .final_norm = false, .pooled_rows = &rows, .tap = &tap});
  EXPECT_EQ(out.states.shape(), (Shape{2, 4, 16}));
  EXPECT_EQ(out.pooled.shape(), (Shape{2, 12}));
  EXPECT_EQ(testing_support::to_doubles(out.states), taps.at("layers.1"));
  EXPECT_NE(taps.at("layers.2"), taps.at("layers.1"));
  EXPECT_FALSE(model(test.ex, ids, {}).pooled);
  EXPECT_THROW(model(test.ex, ids, {.skip = 3}), UsageError);
  EXPECT_THROW(model(test.ex, ids, {.skip = -1}), UsageError);
  EXPECT_THROW(model(test.ex, ids_tensor(std::vector<int32_t>(9), {1, 9}), {}), ShapeError);
}

TEST(ClipTextModel, ATokenSeesOnlyThoseBeforeIt) {
  const RandomSource source;
  const ClipTextModel model = ClipTextModel::load(host_device(), kSmall, source, DType::kF32);
  testing_support::TestExec test;
  const auto a = testing_support::to_doubles(model(test.ex, ids_tensor({1, 2, 3, 4}, {1, 4})).states);
  const auto b = testing_support::to_doubles(model(test.ex, ids_tensor({1, 2, 9, 4}, {1, 4})).states);
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 32, b.begin()));
  EXPECT_FALSE(std::equal(a.begin() + 32, a.end(), b.begin() + 32));
}

}  // namespace
}  // namespace rocm_sd
