// CLIP tokenizer: ids as the reference gives them, and files that are not what they should be.
#include "text/clip_tokenizer.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/paths.hpp"

namespace rocm_sd {
namespace {

using Ids = std::vector<int32_t>;

const ClipTokenizer& shipped() {
  static const ClipTokenizer tokenizer = ClipTokenizer::shipped();
  return tokenizer;
}

struct Golden {
  const char* text;
  Ids ids;
};

// Made with transformers 5.23 and tokenizers 0.23 on the shipped merges
// (tests/integration_tests/clip_reference.py).
const Golden kGoldens[] = {
    {"", {}},
    {"a photo of an astronaut riding a horse", {320, 1125, 539, 550, 18376, 6765, 320, 4558}},
    {"Hello, World! It's 2024.", {3306, 267, 1002, 256, 585, 568, 273, 271, 273, 275, 269}},
    {"  spaces\011and\012lines\302\240\343\200\200x ", {9006, 537, 3418, 343}},
    {"don't we'll I'M they've O'REILLY's", {847, 713, 649, 1342, 328, 880, 889, 1200, 334, 982, 9532, 568}},
    {"cafe\314\201 caf\303\251 \357\274\241\357\274\242\357\274\243 \357\274\221\357\274\222",
     {15304, 15304, 171, 121, 223, 171, 121, 224, 171, 121, 481, 171, 120, 495, 171, 120, 496}},
    {"\304\260stanbul \316\221\316\243 \316\243\316\221\316\243 \341\272\236",
     {328, 16384, 11231, 138, 109, 139, 481, 139, 225, 138, 109, 139, 481, 127, 509}},
    {"\357\254\201 \302\275 \342\205\247 \331\243 \302\262",
     {171, 105, 479, 33613, 158, 227, 371, 149, 352, 41175}},
    {"\360\237\221\251\342\200\215\360\237\232\200\360\237\207\251\360\237\207\252 \342\235\244\357\270\217",
     {26304, 22400, 21531, 1752}},
    {"\331\205\330\261\330\255\330\250\330\247 \342\200\217\327\251\327\234\327\225\327\235",
     {12986, 10948, 25722, 16378, 22625, 728, 493, 147, 102, 147, 250, 147, 243, 147, 507}},
    {"\352\260\200 \341\204\200\341\205\241 \346\227\245\346\234\254\350\252\236 \343\202\253\343\202\231",
     {21122, 478, 21122, 478, 39121, 44353, 34002, 508, 3909, 361}},
    {"<|startoftext|>a <|endoftext|>b", {49406, 320, 49407, 321}},
    {"<|ENDOFTEXT|>>x <|endoftext|", {27, 347, 40786, 4160, 91, 285, 285, 343, 27, 347, 40786, 4160, 347}},
    {"&amp; &lt; \342\200\234quoted\342\200\235",
     {261, 6259, 282, 261, 3333, 282, 728, 506, 27706, 728, 507}},
    {"a\342\200\213b\001c\034d", {320, 9844, 321, 445, 322, 472, 323}},
    {"\303\205 \342\204\253 e\314\243\314\201 e\314\201\314\243",
     {127, 354, 127, 354, 157, 118, 373, 136, 479, 157, 118, 373, 136, 479}},
    {"\360\220\265\220\360\220\265\200\360\226\272\240 \340\267\220",
     {172, 238, 113, 364, 172, 238, 113, 478, 172, 244, 118, 375, 30766, 494}},
    {"supercalifragilisticexpialidocious", {1642, 2857, 13093, 2076, 5868, 26850, 835, 639, 38466}},
    {"!!!\077\077\077...---", {11194, 40017, 3002, 11079}},
    {"(masterpiece:1.2), [lowres]", {263, 12066, 281, 272, 269, 273, 2361, 314, 1049, 934, 316}},
};

TEST(ClipTokenizer, GivesTheReferencesIds) {
  for (const Golden& golden : kGoldens) EXPECT_EQ(shipped().encode(golden.text), golden.ids) << golden.text;
}

TEST(ClipTokenizer, KnowsItsSpecialTokens) {
  EXPECT_EQ(shipped().bos_id(), 49406);
  EXPECT_EQ(shipped().eos_id(), 49407);
  EXPECT_EQ(shipped().pad_id(), 49407);
  EXPECT_EQ(shipped().vocab_size(), 49408);
  EXPECT_EQ(shipped().max_length(), 77);
  EXPECT_EQ(shipped().token_id(",</w>"), 267);
  EXPECT_EQ(shipped().token_id("no such token"), std::nullopt);
}

TEST(ClipTokenizer, SpecialTokensCanBeText) {
  const Ids as_text = shipped().encode("a <|endoftext|>b", SpecialTokens::kAsText);
  EXPECT_EQ(std::count(as_text.begin(), as_text.end(), 49407), 0);
  EXPECT_EQ(as_text, (Ids{320, 27, 347, 40786, 4160, 91, 285, 321}));
}

TEST(ClipTokenizer, InvalidUtf8IsReplaced) {
  EXPECT_EQ(shipped().encode("a\xff"
                             "b"),
            shipped().encode("a\xef\xbf\xbd"
                             "b"));
  EXPECT_EQ(shipped().encode("\xed\xa0\x80"), shipped().encode("\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"));
}

TEST(ClipTokenizer, TakesLongAdversarialText) {
  EXPECT_EQ(shipped().encode(std::string(100000, ' ')).size(), 0u);
  EXPECT_GT(shipped().encode(std::string(100000, 'x')).size(), 1000u);
  std::string marks = "e";  // alternating classes: ordering them one swap at a time would take minutes
  for (int i = 0; i < 50000; ++i) marks += "\xcc\x81\xcc\xa3";
  EXPECT_GT(shipped().encode(marks).size(), 1000u);
  EXPECT_GT(shipped().encode(std::string("\0a\0", 3)).size(), 2u);
  EXPECT_THROW(shipped().encode(std::string(ClipTokenizer::kMaxTextBytes + 1, 'a')), UsageError);
}

TEST(ClipTokenizer, DecodesForMessages) {
  EXPECT_EQ(shipped().decode(shipped().encode("A Photo, of a caf\xc3\xa9 \xf0\x9f\x8d\x8e")),
            "a photo , of a caf\xc3\xa9 \xf0\x9f\x8d\x8e");
  EXPECT_EQ(shipped().decode(Ids{-5, 1 << 20, 320}), "a");
}

TEST(ClipTokenizer, EncodesFromSeveralThreads) {
  const ClipTokenizer tokenizer = ClipTokenizer::shipped();  // with an empty cache
  const std::string text = "a photo of an astronaut riding a horse on the moon, highly detailed";
  const Ids want = shipped().encode(text);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (int& count : wrong)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) count += tokenizer.encode(text) != want;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& e) {
    EXPECT_EQ(e.exit_code(), ExitCode::kFile) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

// Single characters, which need no merge, so that only what a test spoils is wrong.
std::string byte_vocabulary(const std::string& more) {
  std::string json = "{";
  for (int c = 0; c < 512; ++c) json += fmt::format("\"\\u{:04x}\":{},", 0x4e00 + c, c);
  return json + "\"<|startoftext|>\":600,\"<|endoftext|>\":601" + more + "}";
}

TEST(ClipTokenizer, MalformedVocabulariesAreErrors) {
  const auto load = [](const std::string& vocab, const std::string& merges) {
    return error_of([&] { ClipTokenizer::from_vocab_and_merges(vocab, merges, "V"); });
  };
  const std::string good = byte_vocabulary("");
  EXPECT_NO_THROW(ClipTokenizer::from_vocab_and_merges(good, "", "V"));
  const std::pair<std::string, std::string> bad[] = {
      {"", "not valid JSON"},
      {"null", "expected a JSON object"},
      {"[1]", "expected a JSON object"},
      {"{}", "1 to"},
      {"{\"a\":-1}", "whole number"},
      {"{\"a\":1.5}", "whole number"},
      {"{\"a\":1e400}", "not valid JSON"},
      {"{\"a\":\"4\"}", "whole number"},
      {"{\"a\":18446744073709551615}", "whole number"},
      {"{\"a\":1048576}", "whole number"},
      {"{\"a\":null}", "whole number"},
      {"{\"a\":1,\"b\":1}", "two tokens have the id 1"},
      {"{\"\":1}", "0 bytes"},
      {"{\"" + std::string(5000, 'x') + "\":1}", "5000 bytes"},
      {"{\"a\":1}", "special token"},
      {"{\"<|startoftext|>\":0}", "special token"},
      {"{\"\xff\":1}", "not valid UTF-8"},
      {"{\"a\":" + std::string(100000, '['), "deeper"},
  };
  for (const auto& [vocab, message] : bad)
    EXPECT_NE(load(vocab, "").find(message), std::string::npos)
        << vocab.substr(0, 60) << " gives " << load(vocab, "");
  EXPECT_NE(load(good, "t1 t2").find("lacks"), std::string::npos);
  EXPECT_NE(load(good, "t1").find("merge 1"), std::string::npos);
  EXPECT_NE(load(good, "t1 t2 t3").find("merge 1"), std::string::npos);
  EXPECT_NE(load(good, " t2").find("merge 1"), std::string::npos);
  EXPECT_NE(load(good, "t1 \xff").find("UTF-8"), std::string::npos);
  EXPECT_NE(error_of([] { ClipTokenizer::from_merges("i n\ni n\n", "M"); }).find("two merges"),
            std::string::npos);
  EXPECT_NE(error_of([] { ClipTokenizer::from_merges("in g\n", "M"); }).find("lacks"), std::string::npos);
}

TEST(ClipTokenizer, MalformedTokenizerJsonIsAnError) {
  for (const std::string bad :
       {"{}", "{\"model\":1}", "{\"model\":{\"type\":\"Unigram\"}}", "{\"model\":{\"vocab\":{\"a\":1}}}",
        "{\"model\":{\"vocab\":{\"a\":1},\"merges\":{}}}", "{\"model\":{\"vocab\":{\"a\":1},\"merges\":[1]}}",
        "{\"model\":{\"vocab\":{\"a\":1},\"merges\":[[\"a\"]]}}",
        "{\"model\":{\"vocab\":[\"a\"],\"merges\":[]}}",
        "{\"model\":{\"vocab\":{\"a\":1},\"merges\":[]},\"added_tokens\":{}}",
        "{\"model\":{\"vocab\":{\"a\":1},\"merges\":[]},\"added_tokens\":[{\"content\":3}]}"})
    EXPECT_THROW(ClipTokenizer::from_tokenizer_json(bad, "T"), FormatError) << bad;
  std::string good =
      "{\"model\":{\"type\":\"BPE\",\"vocab\":" + byte_vocabulary(",\"a\":700,\"b</w>\":701,\"ab</w>\":702") +
      ",\"merges\":[\"a b</w>\"]}}";
  EXPECT_EQ(ClipTokenizer::from_tokenizer_json(good, "T").encode("AB b"), (Ids{702, 701}));
}

class TokenizerFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::path(::testing::TempDir()) /
        ("rocm_sd_tokenizer_" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  std::string load_error() {
    return error_of([&] { ClipTokenizer::from_folder(folder_); });
  }
  std::filesystem::path folder_;
};

TEST_F(TokenizerFolder, NeedsItsFiles) {
  EXPECT_NE(load_error().find("expected vocab.json and merges.txt"), std::string::npos);
  write("vocab.json", byte_vocabulary(""));
  EXPECT_NE(load_error().find("expected vocab.json and merges.txt"), std::string::npos);
  std::filesystem::create_directory(folder_ / "merges.txt");
  EXPECT_NE(load_error().find("a folder"), std::string::npos);
}

TEST_F(TokenizerFolder, NamesAGitLfsPointer) {
  write("vocab.json", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
  write("merges.txt", "");
  EXPECT_NE(load_error().find("Git LFS"), std::string::npos);
}

TEST_F(TokenizerFolder, MergesThatDoNotMakeTheVocabulary) {
  write("vocab.json", byte_vocabulary(",\"a\":610,\"b</w>\":611,\"ab</w>\":612"));
  write("merges.txt", "#version: 0.2\na b</w>\n");
  EXPECT_EQ(ClipTokenizer::from_folder(folder_).encode("ab"), Ids{612});
  for (const char* merges : {"", "#version: 0.2\n"}) {
    write("merges.txt", merges);
    EXPECT_NE(load_error().find("merges.txt: its 0 merges"), std::string::npos) << load_error();
    EXPECT_NE(load_error().find("ab</w>"), std::string::npos);
  }
  write("special_tokens_map.json", R"({"pad_token": "ab</w>"})");  // added whole: no merge is needed
  EXPECT_NO_THROW(ClipTokenizer::from_folder(folder_));
}

TEST_F(TokenizerFolder, ReadsTheConfiguration) {
  write("vocab.json", byte_vocabulary(",\"a</w>\":610,\"!\":611"));
  write("merges.txt", "#version: 0.2\n");
  write("tokenizer_config.json", R"({"pad_token": "!", "model_max_length": 64})");
  const ClipTokenizer tokenizer = ClipTokenizer::from_folder(folder_);
  EXPECT_EQ(tokenizer.pad_id(), 611);
  EXPECT_EQ(tokenizer.max_length(), 64);
  EXPECT_EQ(tokenizer.encode("a!"), (Ids{610, 611}));
  EXPECT_EQ(tokenizer.encode("a!", SpecialTokens::kAsText), (Ids{610, 601}));  // "!</w>" is unknown there
  write("tokenizer_config.json", R"({"model_max_length": 1000000000000000019884624838656})");
  EXPECT_EQ(ClipTokenizer::from_folder(folder_).max_length(), 77);
  for (const std::string bad :
       {"[]", "{\"pad_token\": 3}", "{\"bos_token\": \"<none>\"}", "{\"added_tokens_decoder\": []}",
        "{\"added_tokens_decoder\": {\"x\": {\"content\": \"y\"}}}",
        "{\"eos_token\": {\"content\": \"\"}}"}) {
    write("tokenizer_config.json", bad);
    EXPECT_FALSE(load_error().empty()) << bad;
  }
}

TEST(SharePath, NamesThePlacesItLookedAt) {
  EXPECT_TRUE(std::filesystem::exists(share_path("vocab/clip/LICENSE")));
  try {
    share_path("vocab/none");
    FAIL();
  } catch (const FileError& e) {
    EXPECT_NE(std::string(e.what()).find("share/rocm-sd/vocab/none"), std::string::npos) << e.what();
  }
}

TEST(SharePath, TheVariableStandsAlone) {
  ::setenv("ROCM_SD_SHARE", "/nowhere", 1);
  EXPECT_EQ(share_folders().size(), 1u);
  EXPECT_THROW(share_path("vocab/clip/merges.txt"), FileError);
  ::unsetenv("ROCM_SD_SHARE");
}

}  // namespace
}  // namespace rocm_sd
