// Run-time LoRAs: a UNet with terms beside its weights against one whose weights the same LoRAs were merged
// into.
#include "models/low_rank.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "support/low_rank_testing.hpp"

namespace rocm_sd {
namespace {

using testing_support::LowRankUNet;
using testing_support::merged_output;
using testing_support::random_adapter;
using testing_support::RandomSource;
using testing_support::relative_error;

constexpr double kSame = 1e-4;  // of a model's output in f32, relative: the order of sums differs

struct LowRankTest : testing::Test {
  RandomSource source;
  LowRankUNet model{host_device(), DType::kF32, source};
  std::vector<double> plain = model.run();
  std::vector<ParameterSlot::Part> parts = list_parameters(model.unet);
  std::shared_ptr<const AdapterFile> first = random_adapter(parts, 3, 1),
                                     second = random_adapter(parts, 5, 2000);
  std::shared_ptr<RowStrengths> strengths = std::make_shared<RowStrengths>(host_device());

  static std::vector<double> merged(std::vector<AdapterUse> uses) {
    return merged_output(host_device(), DType::kF32, std::move(uses));
  }
  void replan() {
    model.prepare.plan();
    model.step.plan();
  }
};

TEST_F(LowRankTest, EveryLayerIsAsMerged) {
  model.set_terms({first}, strengths);
  replan();
  strengths->set({{0.7f}, {0.7f}});
  const auto want = merged({{first, 0.7}});
  EXPECT_GT(relative_error(plain, want), 0.05) << "the LoRA changes too little to prove anything";
  EXPECT_LT(relative_error(model.run(), want), kSame);
}

TEST_F(LowRankTest, StrengthsChangeWithoutANewPlan) {
  model.set_terms({first, second}, strengths);
  replan();
  for (const auto& [a, b] : {std::pair{1.0, 0.5}, {-0.3, 0.0}, {0.0, 1.2}}) {
    strengths->set(std::vector(2, std::vector<float>{static_cast<float>(a), static_cast<float>(b)}));
    EXPECT_LT(relative_error(model.run(), merged({{first, a}, {second, b}})), kSame) << a << ", " << b;
  }
}

TEST_F(LowRankTest, EachRowHasItsOwn) {
  model.set_terms({first, second}, strengths);
  replan();
  strengths->set({{0.9f, 0}, {0, -0.6f}});
  const auto got = model.run();
  EXPECT_LT(relative_error(got, merged({{first, 0.9}}), 0), kSame);
  EXPECT_LT(relative_error(got, merged({{second, -0.6}}), 1), kSame);
}

TEST_F(LowRankTest, OfNoStrengthOrTakenOffIsPlain) {
  model.set_terms({first}, strengths);
  replan();
  strengths->set({{0}, {0}});
  EXPECT_LT(relative_error(model.run(), plain), 1e-6);
  model.set_terms({}, nullptr);
  replan();
  EXPECT_EQ(model.run(), plain);
  EXPECT_EQ(low_rank_bytes(model.visit()), 0u);
}

TEST_F(LowRankTest, BesideWeightsOfEightBits) {
  LowRankUNet small(host_device(), DType::kF32, source, {.eight_bit = DType::kI8});
  const double quantised = relative_error(small.run(), plain);
  const auto bits = std::make_shared<RowStrengths>(host_device());
  small.set_terms({first}, bits);
  small.prepare.plan();
  small.step.plan();
  bits->set({{0.7f}, {0.7f}});
  const double error = relative_error(small.run(), merged({{first, 0.7}}));
  EXPECT_GT(quantised, 0);
  EXPECT_LT(error, 3 * quantised) << "the terms are not quantised";
}

TEST_F(LowRankTest, RefusesWhatIsNoLowRankTerm) {
  std::vector<MemoryTensor> tensors, all;
  static const std::vector<float> values(4096, 0.1f);
  for (const ParameterSlot::Part& part : parts) all.push_back({part.name, DType::kF32, part.shape, nullptr});
  const auto file = SafetensorsFile::of_memory("model", all);
  std::map<std::string, StoredTensor, std::less<>> weights;
  for (const TensorEntry& entry : file->entries()) weights[entry.name] = {{file.get(), &entry}, entry.shape};
  AdapterTargets targets;
  targets.add(WeightStore(Component::kUnet, "unet", {file}, weights));
  const std::string stem = "lora_unet_mid_block_attentions_0_transformer_blocks_0_attn1_to_q";
  const std::vector<std::vector<MemoryTensor>> kinds = {
      {{stem + ".diff", DType::kF32, {16, 16}, values.data()}},
      {{stem + ".hada_w1_a", DType::kF32, {16, 2}, values.data()},
       {stem + ".hada_w1_b", DType::kF32, {2, 16}, values.data()},
       {stem + ".hada_w2_a", DType::kF32, {16, 2}, values.data()},
       {stem + ".hada_w2_b", DType::kF32, {2, 16}, values.data()}},
      {{stem + ".lokr_w1", DType::kF32, {4, 4}, values.data()},
       {stem + ".lokr_w2", DType::kF32, {4, 4}, values.data()}},
      {{stem + ".lora_down.weight", DType::kF32, {2, 16}, values.data()},
       {stem + ".lora_up.weight", DType::kF32, {16, 2}, values.data()},
       {stem + ".dora_scale", DType::kF32, {16, 1}, values.data()}}};
  for (const auto& kind : kinds) {
    const auto adapter =
        AdapterFile::of(TensorSet::of(SafetensorsFile::of_memory("x", kind)), targets, "sd1");
    EXPECT_THROW(require_low_rank(model.visit(), Component::kUnet, {{adapter, 1}}), UsageError);
  }
  EXPECT_NO_THROW(require_low_rank(model.visit(), Component::kUnet, {{first, 1}, {second, 1}}));
}

}  // namespace
}  // namespace rocm_sd
