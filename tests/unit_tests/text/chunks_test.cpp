// Chunks as the web UI divides prompts, Diffusers' truncation, and weights on states.
#include "text/chunks.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

const ClipTokenizer& tokenizer() {
  static const ClipTokenizer shipped = ClipTokenizer::shipped();
  return shipped;
}

std::string repeat(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

TEST(Chunks, MatchTheWebUis) {
  std::ifstream file(ROCM_SD_SOURCE_DIR "/tests/data/prompt_chunks.json");
  const auto goldens = nlohmann::json::parse(file);
  ASSERT_GT(goldens.size(), 20u);
  for (const auto& golden : goldens) {
    const auto prompt = golden["prompt"].get<std::string>();
    const ChunkedPrompt got = chunk_prompt(tokenizer(), prompt);
    EXPECT_EQ(got.token_count, golden["count"].get<int>()) << prompt;
    ASSERT_EQ(got.chunks.size(), golden["chunks"].size()) << prompt;
    for (size_t i = 0; i < got.chunks.size(); ++i) {
      EXPECT_EQ(got.chunks[i].ids, golden["chunks"][i]["ids"].get<std::vector<int32_t>>()) << prompt;
      EXPECT_EQ(got.chunks[i].weights, golden["chunks"][i]["weights"].get<std::vector<float>>()) << prompt;
    }
  }
}

TEST(Chunks, PadWithTheGivenIdBehindTheEos) {
  const ChunkedPrompt got = chunk_prompt(tokenizer(), "a cat", {.pad_id = 0});
  const PromptChunk& chunk = got.chunks.at(0);
  EXPECT_EQ(chunk.eos_position, 3);
  EXPECT_EQ(chunk.ids[3], 49407);
  for (size_t i = 4; i < 77; ++i) EXPECT_EQ(chunk.ids[i], 0);
  const ChunkedPrompt full = chunk_prompt(tokenizer(), repeat("a ", 75), {.pad_id = 0});
  EXPECT_EQ(full.chunks.size(), 1u);
  EXPECT_EQ(full.chunks[0].eos_position, 76);
  EXPECT_EQ(full.chunks[0].ids[76], 49407);
}

TEST(Chunks, ATypedEndOfTextDoesNotEndThePrompt) {
  const ChunkedPrompt got = chunk_prompt(tokenizer(), "a <|endoftext|> cat", {.pad_id = 0});
  EXPECT_EQ(std::count(got.chunks[0].ids.begin(), got.chunks[0].ids.end(), 49407), 1);
}

TEST(Chunks, OtherLengths) {
  const ChunkedPrompt got = chunk_prompt(tokenizer(), "a b c d e", {.max_length = 5});
  EXPECT_EQ(got.chunks.size(), 2u);
  EXPECT_EQ(got.chunks[0].ids.size(), 5u);
  EXPECT_EQ(got.chunks[1].eos_position, 3);
  EXPECT_EQ(chunk_prompt(tokenizer(), "a b", {.max_length = 3}).chunks.size(), 2u);
  EXPECT_THROW(chunk_prompt(tokenizer(), "a", {.max_length = 2}), UsageError);
  EXPECT_THROW(chunk_prompt(tokenizer(), "a", {.comma_backtrack = -1}), UsageError);
}

TEST(Chunks, NoCommaBacktrackWhenOff) {
  const std::string prompt = repeat("a ", 70) + ", b c d e f g h";
  EXPECT_EQ(chunk_prompt(tokenizer(), prompt, {.comma_backtrack = 0}).chunks[0].eos_position, 76);
  EXPECT_EQ(chunk_prompt(tokenizer(), prompt).chunks[0].eos_position, 72);
}

TEST(Chunks, TheirNumberIsBounded) {
  EXPECT_EQ(chunk_prompt(tokenizer(), repeat("BREAK ", kMaxChunks)).chunks.size(),
            static_cast<size_t>(kMaxChunks));
  EXPECT_THROW(chunk_prompt(tokenizer(), repeat("BREAK ", kMaxChunks + 1)), UsageError);
}

TEST(Chunks, PadToACount) {
  ChunkedPrompt positive = chunk_prompt(tokenizer(), repeat("a ", 200));
  ChunkedPrompt negative = chunk_prompt(tokenizer(), "");
  EXPECT_EQ(negative.chunks.size(), 1u);
  pad_chunks(positive, 1, tokenizer());
  pad_chunks(negative, positive.chunks.size(), tokenizer());
  EXPECT_EQ(positive.chunks.size(), 3u);
  ASSERT_EQ(negative.chunks.size(), 3u);
  EXPECT_EQ(negative.chunks[2].ids, empty_chunk(tokenizer()).ids);
  EXPECT_EQ(negative.chunks[2].eos_position, 1);
}

TEST(PlainTokens, CutAndSayWhat) {
  const PlainTokens fits = plain_tokens(tokenizer(), "(a cat:1.3)");
  EXPECT_FALSE(fits.truncated);
  EXPECT_EQ(fits.chunk.eos_position, 9);  // eight words: ( a cat : 1 . 3 ), no weights here
  const PlainTokens cut = plain_tokens(tokenizer(), repeat("a ", 75) + "red cat, sleeping");
  EXPECT_TRUE(cut.truncated);
  EXPECT_EQ(cut.cut_text, "red cat , sleeping");
  EXPECT_EQ(cut.chunk.ids[76], 49407);
  EXPECT_EQ(cut.chunk.ids.size(), 77u);
}

class TokenWeights : public ::testing::Test {
 protected:
  void SetUp() override {
    std::mt19937 random(3);
    std::normal_distribution<float> normal(0.1f, 1.0f);
    for (float& x : states_) x = normal(random);
    for (size_t t = 0; t < weights_.size(); ++t) weights_[t] = t % 3 == 1 ? 1.3f : 1.0f;
  }
  static constexpr int64_t kTokens = 77, kWidth = 64;
  std::vector<float> states_ = std::vector<float>(kTokens * kWidth);
  std::vector<float> weights_ = std::vector<float>(kTokens);
};

TEST_F(TokenWeights, OriginalKeepsTheMean) {
  std::vector<float> got = states_;
  apply_token_weights(got.data(), kTokens, kWidth, weights_);
  double before = 0, weighted = 0;
  for (int64_t i = 0; i < kTokens * kWidth; ++i) {
    before += states_[i];
    weighted += static_cast<double>(states_[i]) * weights_[i / kWidth];
  }
  for (int64_t i = 0; i < kTokens * kWidth; ++i) {
    const double want = static_cast<double>(states_[i]) * weights_[i / kWidth] * (before / weighted);
    EXPECT_NEAR(got[i], want, 4 * 6e-8 * std::abs(want) + 1e-30);  // two float products and a rounded scale
  }
}

TEST_F(TokenWeights, NoNormOnlyMultipliesAndIgnoreDoesNothing) {
  std::vector<float> got = states_;
  apply_token_weights(got.data(), kTokens, kWidth, weights_, Emphasis::kIgnore);
  EXPECT_EQ(got, states_);
  apply_token_weights(got.data(), kTokens, kWidth, weights_, Emphasis::kNoNorm);
  for (int64_t i = 0; i < kTokens * kWidth; ++i) EXPECT_EQ(got[i], states_[i] * weights_[i / kWidth]);
}

TEST_F(TokenWeights, AZeroMeanLeavesFiniteStates) {
  std::vector<float> states = {1.0f, -1.0f, 2.0f, -2.0f};
  apply_token_weights(states.data(), 2, 2, std::vector<float>{1.0f, 2.0f});
  EXPECT_EQ(states, (std::vector<float>{1, -1, 4, -4}));
  EXPECT_THROW(apply_token_weights(states.data(), 2, 2, std::vector<float>{1.0f}), ShapeError);
}

TEST(EmphasisNames, AreRead) {
  EXPECT_EQ(emphasis_from_name("Original"), Emphasis::kOriginal);
  EXPECT_EQ(emphasis_from_name("No norm"), Emphasis::kNoNorm);
  EXPECT_EQ(emphasis_from_name("no-norm"), Emphasis::kNoNorm);
  EXPECT_EQ(emphasis_from_name("ignore"), Emphasis::kIgnore);
  EXPECT_THROW(emphasis_from_name("loud"), UsageError);
}

}  // namespace
}  // namespace rocm_sd
