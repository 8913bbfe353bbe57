// Names that stand for vectors: found by tokens or as text, and their places in chunks.
#include "text/embedding_names.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "text/chunks.hpp"

namespace rocm_sd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const ClipTokenizer& tokenizer() {
  static const ClipTokenizer shipped = ClipTokenizer::shipped();
  return shipped;
}

EmbeddingNames names(std::vector<std::string> list, int vectors = 2) {
  return {tokenizer(), std::move(list), [vectors](size_t) { return vectors; }};
}

// "red", "<0>" for name 0, ...
std::vector<std::string> shown(const std::vector<PromptUnit>& units) {
  std::vector<std::string> out;
  for (const PromptUnit& unit : units)
    out.push_back(unit.name >= 0 ? "<" + std::to_string(unit.name) + ">" : tokenizer().token(unit.id));
  return out;
}

TEST(EmbeddingNames, TheLongestNameCountsAndCapitalsDoNot) {
  const EmbeddingNames two = names({"red", "red fox"});
  EXPECT_THAT(shown(two.units("a Red Fox, red", SpecialTokens::kAsText)),
              ElementsAre("a</w>", "<1>", ",</w>", "<0>"));
  EXPECT_TRUE(two.is_vocabulary_word(0));
  EXPECT_FALSE(two.is_vocabulary_word(1));
}

TEST(EmbeddingNames, ATokenIsFoundBesideWordsAndPoints) {
  const EmbeddingNames toy = names({"<toy>"});
  EXPECT_THAT(shown(toy.units("a <toy>, red", SpecialTokens::kAsText)),
              ElementsAre("a</w>", "<0>", ",</w>", "red</w>"));
  EXPECT_THAT(shown(toy.plain_units("a<TOY>red")), ElementsAre("a</w>", "<0>", "red</w>"));
  EXPECT_THAT(shown(names({"toy"}).plain_units("toys")), ElementsAre("<0>", "s</w>"));
  EXPECT_THAT(shown(names({}).plain_units("a <|endoftext|>")), ElementsAre("a</w>", "<|endoftext|>"));
}

TEST(EmbeddingNames, ReferencesMustNameOne) {
  const EmbeddingNames one = names({"my style", "my"});
  EXPECT_THAT(shown(one.units("embedding:my style.safetensors,embedding:my, a", SpecialTokens::kAsText)),
              ElementsAre("<0>", ",</w>", "<1>", ",</w>", "a</w>"));
  EXPECT_NO_THROW(one.units("myembedding:mi, embedding: mi", SpecialTokens::kAsText));
  try {
    one.units("embedding:mi, a", SpecialTokens::kAsText);
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_THAT(e.what(), HasSubstr("embedding:mi: none of the 2 embeddings"));
  }
  EXPECT_THROW(names({}).units("embedding:x", SpecialTokens::kAsText), UsageError);
}

TEST(EmbeddingNames, VectorsStayInOneChunk) {
  const EmbeddingNames ten = names({"zqzq"}, 10);
  const ChunkOptions options{.embeddings = &ten};
  std::string prompt;
  for (int i = 0; i < 70; ++i) prompt += "cat ";
  const ChunkedPrompt got = chunk_prompt(tokenizer(), prompt + "(zqzq:1.5)", options);
  ASSERT_EQ(got.chunks.size(), 2u);
  EXPECT_EQ(got.token_count, 85);  // the first chunk counts whole
  EXPECT_EQ(got.chunks[0].eos_position, 71);
  ASSERT_EQ(got.chunks[1].inserted.size(), 10u);
  EXPECT_EQ(got.chunks[1].inserted[9].position, 10);
  EXPECT_EQ(got.chunks[1].inserted[9].vector, 9);
  EXPECT_EQ(got.chunks[1].weights[10], 1.5f);
  EXPECT_EQ(got.chunks[1].ids[10], 0);
  const EmbeddingNames long_one = names({"zqzq"}, 76);
  EXPECT_THROW(chunk_prompt(tokenizer(), "zqzq", {.embeddings = &long_one}), UsageError);
}

// The web UI forgets to move an embedding's place with the tokens behind a comma; here it moves.
TEST(EmbeddingNames, PlacesMoveWithTheTokensBehindAComma) {
  const EmbeddingNames two = names({"zqzq"});
  std::string prompt;
  for (int i = 0; i < 70; ++i) prompt += "cat ";
  const ChunkedPrompt got = chunk_prompt(tokenizer(), prompt + ", zqzq dog dog red", {.embeddings = &two});
  ASSERT_EQ(got.chunks.size(), 2u);
  EXPECT_TRUE(got.chunks[0].inserted.empty());
  ASSERT_EQ(got.chunks[1].inserted.size(), 2u);
  EXPECT_EQ(got.chunks[1].inserted[0].position, 1);
}

TEST(EmbeddingNames, PlainPromptsAreCutWithinAnEmbedding) {
  const EmbeddingNames ten = names({"zqzq"}, 10);
  std::string prompt;
  for (int i = 0; i < 70; ++i) prompt += "cat ";
  const PlainTokens got = plain_tokens(tokenizer(), prompt + "zqzq dog", {.embeddings = &ten});
  EXPECT_TRUE(got.truncated);
  EXPECT_EQ(got.tokens, 81u);
  EXPECT_EQ(got.chunk.inserted.size(), 5u);
  EXPECT_EQ(got.cut_text, "dog");
}

}  // namespace
}  // namespace rocm_sd
