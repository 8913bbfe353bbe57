// Prompt weights and tags: the web UI's readings (goldens made with its own parser), bounds and refusals.
#include "text/prompt.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Pieces = std::vector<PromptPiece>;

TEST(PromptAttention, MatchesTheWebUisParser) {
  std::ifstream file(ROCM_SD_SOURCE_DIR "/tests/data/prompt_attention.json");
  const auto goldens = nlohmann::json::parse(file);
  ASSERT_GT(goldens.size(), 100u);
  for (const auto& golden : goldens) {
    Pieces want;
    for (const auto& piece : golden["pieces"])
      want.push_back({piece[0].get<std::string>(), piece[1].get<double>()});
    EXPECT_EQ(parse_prompt_attention(golden["prompt"].get<std::string>()), want) << golden["prompt"];
  }
}

TEST(PromptAttention, NumbersThatAreNoWeightsStayText) {
  EXPECT_EQ(parse_prompt_attention("(a:1e308)"), (Pieces{{"a:1e308", 1.1}}));
  EXPECT_EQ(parse_prompt_attention("(a:nan)"), (Pieces{{"a:nan", 1.1}}));
  EXPECT_EQ(parse_prompt_attention("[a:b:-1]"), (Pieces{{"a:b:-1", 1 / 1.1}}));
}

std::string usage_error(const std::string& prompt) {
  try {
    parse_prompt_attention(prompt);
  } catch (const UsageError& e) {
    return e.what();
  }
  ADD_FAILURE() << "accepted " << prompt.substr(0, 80);
  return {};
}

TEST(PromptAttention, WeightsAreBounded) {
  EXPECT_THAT(usage_error("(cat:" + std::string(400, '9') + ")"), HasSubstr("\"cat\""));
  EXPECT_THAT(usage_error("(cat:10001)"), HasSubstr("\"cat\""));
  EXPECT_THAT(usage_error("(cat:-10001)"), HasSubstr("\"cat\""));
  EXPECT_THAT(usage_error("((cat:200):200)"), HasSubstr("\"cat\""));
  EXPECT_THAT(usage_error("(cat:1.2.3)"), HasSubstr(":1.2.3)"));
  EXPECT_THAT(usage_error("(cat:.)"), HasSubstr(":.)"));
  EXPECT_THAT(usage_error(std::string(10000, '(') + "cat"), HasSubstr("\"cat\""));
  EXPECT_EQ(parse_prompt_attention("(cat:0." + std::string(400, '0') + "1)"), (Pieces{{"cat", 0.0}}));
  EXPECT_EQ(parse_prompt_attention("(cat:10000)"), (Pieces{{"cat", 1e4}}));
}

TEST(PromptAttention, LengthIsBounded) {
  EXPECT_EQ(parse_prompt_attention(std::string(32000, 'a')).size(), 1u);
  EXPECT_THAT(usage_error(std::string(32001, 'a')), HasSubstr("32001 characters"));
  std::string four_bytes;
  for (int i = 0; i < 32000; ++i) four_bytes += "\xf0\x9f\x8d\x8e";
  EXPECT_EQ(parse_prompt_attention(four_bytes)[0].text, four_bytes);
  EXPECT_THAT(usage_error(std::string(10 << 20, 'a')), HasSubstr("32000"));
  EXPECT_THAT(usage_error(std::string(100000, '(')), HasSubstr("32000"));
}

TEST(PromptAttention, DeepNestingNeedsNoStack) {
  EXPECT_EQ(parse_prompt_attention(std::string(32000, '(')), (Pieces{{"", 1.0}}));
  EXPECT_EQ(parse_prompt_attention(std::string(32000, ')')), (Pieces{{std::string(32000, ')'), 1.0}}));
  std::string balanced;  // ([([...a...])]): weights of about 1 at every depth
  for (int i = 0; i < 8000; ++i) balanced += i % 2 ? "[:" : "(:";
  for (int i = 0; i < 8000; ++i) balanced += i % 2 ? ")" : "]";
  EXPECT_GT(parse_prompt_attention(balanced).size(), 1u);
}

TEST(PromptAttention, InvalidUtf8IsReplaced) {
  EXPECT_EQ(parse_prompt_attention("(a\xff:2)"), (Pieces{{"a\xef\xbf\xbd", 2.0}}));
  EXPECT_EQ(parse_prompt_attention(std::string("a\0b", 3)), (Pieces{{std::string("a\0b", 3), 1.0}}));
}

TEST(LoraTags, AreTakenOut) {
  const PromptTags tags =
      extract_lora_tags("a <lora:style>b<lora:x y:0.5> c <lora:z:0.5:-1> <lyco:q:te=0.1:unet=0.2>");
  EXPECT_EQ(tags.text, "a b c  ");
  EXPECT_THAT(tags.loras, ElementsAre(LoraTag{"style", 1, 1}, LoraTag{"x y", 0.5, 0.5}, LoraTag{"z", -1, 0.5},
                                      LoraTag{"q", 0.2, 0.1}));
}

TEST(LoraTags, HaveBlockWeights) {
  const PromptTags tags =
      extract_lora_tags("<lora:a:0.5:lbw=1,0,0.5><lora:b:1:1,0><lora:c:lbw=OUTALL:te=0.1>");
  EXPECT_THAT(tags.loras, ElementsAre(LoraTag{"a", 0.5, 0.5, "1,0,0.5"}, LoraTag{"b", 1, 1, "1,0"},
                                      LoraTag{"c", 0.1, 0.1, "OUTALL"}));
  for (const std::string bad : {"<lora:a:1,0>", "<lora:a:1:lbw=>", "<lora:a:1:1,0:lbw=1,0>"})
    EXPECT_THROW(extract_lora_tags(bad), UsageError) << bad;
}

TEST(LoraTags, OtherTagsAreReported) {
  const PromptTags tags = extract_lora_tags("a<hypernet:x:1> <3 <b> <lora:> <lora x> <:a> <lora:y");
  EXPECT_EQ(tags.text, "a <3 <b> <lora:> <lora x> <:a> <lora:y");
  EXPECT_THAT(tags.unknown, ElementsAre("hypernet:x:1"));
  EXPECT_TRUE(tags.loras.empty());
}

TEST(LoraTags, TwiceIsTwice) { EXPECT_EQ(extract_lora_tags("<lora:a><lora:a:2>").loras.size(), 2u); }

TEST(LoraTags, BadNamesAndWeightsAreRefused) {
  for (const std::string bad :
       {"<lora:../../x:1>", "<lora:a/b>", "<lora:a\\b>", "<lora:.hidden>", "<lora::1>", "<lora:a\nb>",
        "<lora:a:nan>", "<lora:a:inf>", "<lora:a:1e9>", "<lora:a:b>", "<lora:a:>", "<lora:a:1:2:3>",
        "<lora:a:1e999>", "<lora:a:+-1>", "<lora:a:dyn=3>", "<lora:te=1>"})
    EXPECT_THROW(extract_lora_tags(bad), UsageError) << bad;
  EXPECT_EQ(extract_lora_tags("<lora:a: 5e-1 >").loras[0].weight, 0.5);
}

TEST(LoraTags, ManyOpenAnglesAreLinear) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "<lora:";
  EXPECT_EQ(extract_lora_tags(text).text, text);
  EXPECT_THROW(extract_lora_tags(std::string(32001, '<')), UsageError);
}

}  // namespace
}  // namespace rocm_sd
