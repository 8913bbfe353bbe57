// Block weights of LoRAs: lists of every length, presets, and what is refused.
#include "weights/block_weights.hpp"

#include <gmock/gmock.h>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string refusal(std::string_view text, ModelKind kind) {
  try {
    parse_block_weights(text, kind);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

TEST(BlockWeights, ShortListsNameSomeBlocks) {
  const BlockWeights seventeen =
      parse_block_weights("1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", ModelKind::kSd1);
  EXPECT_THAT(seventeen.factors, ElementsAre(1, 0, 2, 3, 0, 4, 5, 0, 6, 7, 0, 0, 0, 8, 0, 0, 0, 9, 10, 11, 12,
                                             13, 14, 15, 16, 17));
  const BlockWeights twelve = parse_block_weights("1,2,3,4,5,6,7,8,9,10,11,12", ModelKind::kSdxl);
  EXPECT_THAT(twelve.factors,
              ElementsAre(1, 0, 0, 0, 0, 2, 3, 0, 4, 5, 0, 0, 0, 6, 7, 8, 9, 10, 11, 12, 0, 0, 0, 0, 0, 0));
  EXPECT_EQ(parse_block_weights("0, -0.5 ,1,1,1,1,1,1,1,1,1,1", ModelKind::kSdxl).of(5), -0.5);
}

TEST(BlockWeights, OutsideOfBlocksNothingChanges) {
  EXPECT_EQ(parse_block_weights("NONE", ModelKind::kSd1).of(-1), 1);
  EXPECT_EQ(BlockWeights{}.of(3), 1);
  EXPECT_EQ(parse_block_weights("ALL0.5", ModelKind::kSd2).of(0), 0.5);
}

TEST(BlockWeights, BlocksAreLdms) {
  EXPECT_EQ(lora_block(Component::kTextEncoder2, ""), 0);
  EXPECT_EQ(lora_block(Component::kUnet, "input_blocks.0.0.weight"), 1);
  EXPECT_EQ(lora_block(Component::kUnet, "input_blocks.11.0.in_layers.2.weight"), 12);
  EXPECT_EQ(lora_block(Component::kUnet, "middle_block.1.proj_in.weight"), 13);
  EXPECT_EQ(lora_block(Component::kUnet, "output_blocks.0.0.x"), 14);
  EXPECT_EQ(lora_block(Component::kUnet, "output_blocks.11.1.x"), 25);
  for (const char* none : {"time_embed.0.weight", "out.2.weight", "output_blocks.12.0.x", ""})
    EXPECT_EQ(lora_block(Component::kUnet, none), -1) << none;
}

TEST(BlockWeights, WhatIsRefusedIsNamed) {
  EXPECT_THAT(refusal("1,1", ModelKind::kSdxl), HasSubstr("sdxl model takes 12 or 20 of them, got 2"));
  EXPECT_THAT(refusal("1,,1", ModelKind::kSd1), HasSubstr("found \"\""));
  EXPECT_THAT(refusal("1,nan", ModelKind::kSd1), HasSubstr("found \"nan\""));
  EXPECT_THAT(refusal("1,1e3", ModelKind::kSd1), HasSubstr("from -100 to 100"));
  EXPECT_THAT(refusal("outall", ModelKind::kSd1), HasSubstr("OUTALL"));
  EXPECT_THAT(refusal("", ModelKind::kSd1), HasSubstr("expected numbers"));
}

}  // namespace
}  // namespace rocm_sd
