// Prompts that choose at random: what can come out, how often, and what is refused.
#include "text/wildcards.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

class WildcardsTest : public testing::Test {
 protected:
  void SetUp() override {
    // A folder of its own: ctest runs these tests at the same time, each in a process.
    std::string pattern = testing::TempDir() + "wildcards_test_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    std::filesystem::create_directories(folder_ / "animals");
    write("colour.txt", "red\r\n# a comment\n\nblue  \n{green|teal}\n");
    write("animals/birds.txt", "__colour__ robin");
    write("loop.txt", "a __loop__");
    write("empty.txt", "\n# nothing\n");
    write("latin1.txt", "gr\xfcn\n");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  // How often each prompt comes out.
  std::map<std::string, int> counts(const std::string& text, int seeds) const {
    Wildcards wildcards(folder_.string());
    std::map<std::string, int> out;
    for (int seed = 0; seed < seeds; ++seed) ++out[wildcards.expand(text, static_cast<uint64_t>(seed))];
    return out;
  }

  std::filesystem::path folder_;
};

// Within five standard deviations of a binomial distribution.
void expect_share(int count, int of, double share) {
  EXPECT_NEAR(count, of * share, 5 * std::sqrt(of * share * (1 - share))) << share;
}

TEST_F(WildcardsTest, ChoosesWithTheWeightsThatAreGiven) {
  const auto plain = counts("a {red|blue|} cat", 3000);
  ASSERT_EQ(plain.size(), 3u);
  for (const auto& [prompt, count] : plain) expect_share(count, 3000, 1.0 / 3);
  const auto weighted = counts("{3::a|b|0::c|0.5::d}", 4500);
  ASSERT_EQ(weighted.size(), 3u);
  expect_share(weighted.at("a"), 4500, 3 / 4.5);
  expect_share(weighted.at("b"), 4500, 1 / 4.5);
  expect_share(weighted.at("d"), 4500, 0.5 / 4.5);
}

TEST_F(WildcardsTest, TakesSeveralDifferentOnes) {
  const auto two = counts("{2$$a|b|c}", 3000);
  ASSERT_EQ(two.size(), 6u);  // ordered pairs
  for (const auto& [prompt, count] : two) expect_share(count, 3000, 1.0 / 6);
  EXPECT_TRUE(two.contains("c, a"));
  EXPECT_TRUE(counts("{2$$ and $$a|b|c}", 100).contains("b and c"));
  const auto range = counts("{1-2$$a|b}", 2000);
  ASSERT_EQ(range.size(), 4u);
  expect_share(range.at("a") + range.at("b"), 2000, 0.5);
  EXPECT_EQ(counts("{9$$a|a}", 10).begin()->first, "a, a");
  EXPECT_EQ(counts("{0$$a|b}x", 10).begin()->first, "x");
  EXPECT_EQ(counts("{-1$$a|b}", 200).size(), 3u);
}

TEST_F(WildcardsTest, ReadsFilesAndNests) {
  const auto birds = counts("a __animals/birds__", 3000);
  ASSERT_EQ(birds.size(), 4u);
  expect_share(birds.at("a red robin"), 3000, 1.0 / 3);
  expect_share(birds.at("a teal robin"), 3000, 1.0 / 6);
  EXPECT_EQ(counts("{a {b|c}|d}", 300).size(), 3u);
  EXPECT_EQ(counts(R"(\{a\|b\} and 2__3)", 5).begin()->first, "{a|b} and 2__3");
}

TEST_F(WildcardsTest, TheSeedDecides) {
  Wildcards one(folder_.string()), other(folder_.string());
  const std::string text = "{a|b|c|d|e|f|g|h} __colour__ {1-3$$x|y|z}";
  for (const uint64_t seed : {0ull, 1ull, 0xffffffffffffffffull})
    EXPECT_EQ(one.expand(text, seed), other.expand(text, seed));
  EXPECT_EQ(one.expand("a cat (red:1.2) [a|b] <lora:x:1>", 3), "a cat (red:1.2) [a|b] <lora:x:1>");
  EXPECT_FALSE(has_choices("a cat (red:1.2) [a|b] <lora:x_y:1> a__b"));
  EXPECT_TRUE(has_choices("{a}") && has_choices("__a__") && has_choices("a}"));
}

TEST_F(WildcardsTest, RefusesWhatItCannotRead) {
  Wildcards wildcards(folder_.string());
  const auto message = [&](const std::string& text) -> std::string {
    try {
      return "no error, but " + wildcards.expand(text, 1);
    } catch (const Error& e) {
      return e.what();
    }
  };
  using testing::HasSubstr;
  EXPECT_THAT(message("a {b|c"), HasSubstr("an opening brace without a closing one"));
  EXPECT_THAT(message("a b}"), HasSubstr("a closing brace without an opening one"));
  EXPECT_THAT(message("{x$$a|b}"), HasSubstr("expected a count"));
  EXPECT_THAT(message("{3-1$$a|b}"), HasSubstr("expected a count"));
  EXPECT_THAT(message("__none__"), HasSubstr("none.txt"));
  EXPECT_THAT(message("__../x__"), HasSubstr("below the folder"));
  EXPECT_THAT(message("__/etc/passwd__"), HasSubstr("below the folder"));
  EXPECT_THAT(message("__empty__"), HasSubstr("no lines"));
  EXPECT_THAT(message("__latin1__"), HasSubstr("UTF-8"));
  EXPECT_THAT(message("__loop__"), HasSubstr("nested deeper than 32"));
  EXPECT_THAT(message(std::string(40'000, 'a')), HasSubstr("more than 32000"));
  EXPECT_THAT(message(std::string(20'000, '{')), HasSubstr("opening brace"));
  EXPECT_THAT(message(std::string(100, '{') + std::string(100, '}')), HasSubstr("nested deeper than 32"));
  EXPECT_THROW(Wildcards("").expand("__colour__", 1), UsageError);
}

}  // namespace
}  // namespace rocm_sd
