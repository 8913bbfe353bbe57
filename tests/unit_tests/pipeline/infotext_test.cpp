// A1111's parameters text: written and read back, and no forging through the prompt.
#include "pipeline/infotext.hpp"

#include <gtest/gtest.h>

namespace rocm_sd {
namespace {

TEST(Infotext, RoundTrips) {
  const Infotext info{
      "a (red:1.2) apple,\nsecond line",
      "blurry, low quality",
      {{"Steps", "20"}, {"Sampler", "DPM++ 2M"}, {"Size", "512x512"}, {"Lora hashes", "a: 1, b: \"2\"\n"}}};
  const std::string text = format_infotext(info);
  EXPECT_NE(text.find("\nNegative prompt: blurry, low quality\nSteps: 20, Sampler: DPM++ 2M, Size: 512x512, "
                      "Lora hashes: \""),
            std::string::npos);
  const Infotext back = parse_infotext(text);
  EXPECT_EQ(back.prompt, info.prompt);
  EXPECT_EQ(back.negative_prompt, info.negative_prompt);
  EXPECT_EQ(back.fields, info.fields);
}

TEST(Infotext, APromptCannotForgeFields) {
  const Infotext info{
      "cat\nSteps: 1, Sampler: fake, Seed: 666", "", {{"Steps", "20"}, {"Sampler", "Euler"}, {"Seed", "1"}}};
  const Infotext back = parse_infotext(format_infotext(info));
  EXPECT_EQ(back.get("Steps"), "20");
  EXPECT_EQ(back.get("Seed"), "1");
  EXPECT_EQ(back.prompt, info.prompt);
}

// The text is data: whoever shows it escapes it for the page that it is shown on.
// Found by fuzzing: as it is, such a value ends at the next quotation mark, in another field.
TEST(Infotext, ValuesThatBeginWithAQuotationMarkStayWhole) {
  const Infotext info{
      "a", "", {{"Steps", "4"}, {"Title", "\"The hay"}, {"Note", "\"a\" and b"}, {"Last", "\""}}};
  EXPECT_EQ(parse_infotext(format_infotext(info)).fields, info.fields);
}

// Found by fuzzing: without marks the white space is lost, and what follows may be a mark.
TEST(Infotext, WhiteSpaceAtTheEndsOfAValueStays) {
  const Infotext info{"a", "", {{"Steps", "4"}, {"Title", " \"a"}, {"Note", "b \t"}, {"Last", "\r\"c\" "}}};
  EXPECT_EQ(parse_infotext(format_infotext(info)).fields, info.fields);
}

TEST(Infotext, MarkupStaysText) {
  const std::string markup = "<script>alert('1')</script> &lt;b&gt; <img src=x onerror=\"f()\">";
  const Infotext info{markup, markup, {{"Steps", "20"}, {"Sampler", "Euler"}, {"Model", markup}}};
  const std::string text = format_infotext(info);
  EXPECT_EQ(text.substr(0, markup.size()), markup);
  const Infotext back = parse_infotext(text);
  EXPECT_EQ(back.prompt, markup);
  EXPECT_EQ(back.negative_prompt, markup);
  EXPECT_EQ(back.get("Model"), markup);
}

TEST(Infotext, AnyTextIsRead) {
  EXPECT_EQ(parse_infotext("just a prompt").prompt, "just a prompt");
  EXPECT_TRUE(parse_infotext("just a prompt").fields.empty());
  EXPECT_EQ(parse_infotext("").prompt, "");
  EXPECT_EQ(parse_infotext("Negative prompt: n\nSteps: 2, A: \"unterminated, B: 3").negative_prompt,
            "n\nSteps: 2, A: \"unterminated, B: 3");
  EXPECT_EQ(parse_infotext("p\nSteps: 2, Seed: 3, Model: \"a, b\\\"c\", RNG: CPU").get("Model"), "a, b\"c");
}

}  // namespace
}  // namespace rocm_sd
