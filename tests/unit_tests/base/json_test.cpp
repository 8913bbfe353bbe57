// Strict JSON: limits, duplicates, and what a lenient parser would let through.
#include "base/json.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

TEST(StrictJson, KeepsValues) {
  const nlohmann::json json =
      parse_json(R"({"a":[1,-2,3.5,"x\u00e9",null,true,{}],"b":{"c":[[]]}})", {}, "t");
  EXPECT_EQ(json["a"].size(), 7u);
  EXPECT_EQ(json["a"][1], -2);
  EXPECT_EQ(json["a"][3], "x\u00e9");
  EXPECT_TRUE(json["b"]["c"][0].is_array());
  EXPECT_EQ(parse_json(" 7 ", {}, "t"), 7);
}

TEST(StrictJson, RefusesWhatHidesSomething) {
  const std::string nul_after("{}\0{\"a\":1}", 10), nul_inside("[1,\0 2]", 7);
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("{}{}"), std::string("{} x"), nul_after, nul_inside,
        std::string("\xef\xbb\xbf{}"), std::string("{\"a\":1,\"a\":2}"),
        std::string("{\"a\":{\"b\":1,\"b\":1}}"), std::string("[1e999]"), std::string("[\"\xff\"]"),
        std::string("[\"\xed\xa0\x80\"]"), std::string("[\"\\ud800\"]"), std::string("[NaN]"),
        std::string("[01]"), std::string("[1,]"), std::string("{'a':1}"), std::string("/**/{}")})
    EXPECT_THROW(parse_json(text, {}, "t"), FormatError) << text;
}

TEST(StrictJson, NonfiniteNumbersAreTextsThatNobodyTakesForANumber) {
  const auto json = parse_json(R"({"a": NaN, "b": [-Infinity, Infinity], "c": "NaN Infinity"})",
                               {.nonfinite_as_text = true}, "t");
  EXPECT_EQ(json["a"], "NaN");
  EXPECT_EQ(json["b"], (nlohmann::json{"-Infinity", "Infinity"}));
  EXPECT_EQ(json["c"], "NaN Infinity");
}

TEST(StrictJson, KeepsItsLimits) {
  EXPECT_NO_THROW(parse_json("[[[]]]", {.max_depth = 3}, "t"));
  EXPECT_THROW(parse_json("[[[]]]", {.max_depth = 2}, "t"), FormatError);
  EXPECT_THROW(parse_json(std::string(1'000'000, '['), {}, "t"), FormatError);
  EXPECT_THROW(parse_json("[1,2,3]", {.max_values = 3}, "t"), FormatError);
  EXPECT_THROW(parse_json("[1,2,3]", {.max_bytes = 6}, "t"), FormatError);
}

}  // namespace
}  // namespace rocm_sd
