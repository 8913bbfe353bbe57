// Options by name, output names, contact sheets: good values arrive, bad ones are refused by name.
#include "pipeline/options.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.hpp"
#include "pipeline/output_name.hpp"
#include "pipeline/sheet.hpp"

namespace rocm_sd {
namespace {

class OptionsTest : public testing::Test {
 protected:
  void set(const char* name, const std::string& value) { set_option(targets_, name, value); }
  std::string refusal(const char* name, const std::string& value) {
    try {
      set(name, value);
    } catch (const UsageError& e) {
      return e.what();
    }
    return "accepted";
  }
  LoadOptions load_;
  GenerateRequest request_;
  OptionTargets targets_{&load_, &request_};
};

TEST_F(OptionsTest, GoodValuesArrive) {
  set("model", "m");
  set("steps", "30");
  set("cfg-scale", "7.5");
  set("seed", "9223372036854775807");
  set("eta", "0.5");
  set("sigmas", "14.6,3.5,0.7");
  set("mmap", "true");
  set("plain-prompt", "false");
  EXPECT_EQ(load_.model, "m");
  EXPECT_EQ(request_.steps, 30);
  EXPECT_EQ(request_.cfg_scale, 7.5);
  EXPECT_EQ(request_.seed, 9223372036854775807);
  EXPECT_EQ(request_.eta, 0.5);
  EXPECT_EQ(request_.sigmas, (std::vector<double>{14.6, 3.5, 0.7}));
  set("vram-budget", "6G");
  set("device", "cuda:1");
  set("offload", "true");
  EXPECT_EQ(load_.vram_budget, uint64_t{6} << 30);
  EXPECT_EQ(load_.device, "cuda:1");
  EXPECT_TRUE(load_.offload);
  EXPECT_TRUE(load_.mmap);
  EXPECT_FALSE(request_.plain_prompt);
}

TEST_F(OptionsTest, BadValuesAreRefusedByName) {
  EXPECT_EQ(refusal("steps", "20.5"), "steps: expected a whole number from 1 to 1000, got \"20.5\"");
  for (const char* bad :
       {"0", "-1", "1001", "1000000000", "", " 5", "5 ", "0x5", "five", "99999999999999999999"})
    EXPECT_TRUE(refusal("steps", bad).starts_with("steps: expected")) << bad;
  for (const char* bad : {"nan", "inf", "1e999", "", "7,5", "101"})
    EXPECT_TRUE(refusal("cfg-scale", bad).starts_with("cfg-scale: expected")) << bad;
  for (const char* bad : {"-8", "64000000000", "2147483648"})
    EXPECT_TRUE(refusal("width", bad).starts_with("width: expected")) << bad;
  for (const char* bad : {"", "G", "0", "-1G", "6 G", "6GB", "1e9", "99999999999G"})
    EXPECT_TRUE(refusal("vram-budget", bad).starts_with("vram-budget: expected")) << bad;
  EXPECT_TRUE(refusal("seed", "18446744073709551616").starts_with("seed: expected"));
  EXPECT_TRUE(refusal("seed", "-2").starts_with("seed: expected"));
  EXPECT_TRUE(refusal("batch", "1000000").starts_with("batch: expected"));
  EXPECT_TRUE(refusal("strength", "nan").starts_with("strength: expected"));
  EXPECT_TRUE(refusal("mmap", "maybe").starts_with("mmap: expected"));
  for (const char* bad : {"1,,2", "", ",", "1,", ",1"})
    EXPECT_TRUE(refusal("sigmas", bad).starts_with("sigmas: expected")) << bad;
  for (const char* bad : {"01", "-0", "0x10", "1 ", "+1", "1\n"})
    EXPECT_TRUE(refusal("steps", bad).starts_with("steps: expected")) << bad;
  for (const char* bad : {"-0", "1e-400", "0x1p3", "00.5", "1\n", "+1"})
    EXPECT_TRUE(refusal("strength", bad).starts_with("strength: expected")) << bad;
  for (const char* name :
       {"model", "vae", "unet", "text-encoder", "text-encoder-2", "taesd", "device", "variant"})
    EXPECT_TRUE(refusal(name, "").find("expected") != std::string::npos) << name;
  for (const char* bad : {"../..", "..", ".", "a/b", "a b", "x..y", ".x"})
    EXPECT_TRUE(refusal("variant", bad).starts_with("variant: expected")) << bad;
  for (const char* name : {"prompt", "negative-prompt"})
    for (const auto& [bad, at] :
         {std::pair("caf\xe9", "offset 3"), {"\xff", "offset 0"}, {"\xed\xa0\x80", "offset 0"}})
      EXPECT_NE(refusal(name, bad).find(at), std::string::npos) << refusal(name, bad);
  EXPECT_EQ(refusal("setps", "3"), "unknown option \"setps\"; did you mean \"steps\"?");
  EXPECT_NE(refusal("\x1b[31m", "3").find("\\x1b"), std::string::npos);
}

TEST_F(OptionsTest, TheNthOptionOfControlNetsIsTheNthOnes) {
  set("control-strength", "0.5");
  set("control", "a");
  set("control", "b");
  set("control-end", "0.4");
  set("control-strength", "0.7");
  set("control-end", "0.6");
  ASSERT_EQ(request_.controls.size(), 2u);
  EXPECT_EQ(request_.controls[0].model, "a");
  EXPECT_EQ(request_.controls[0].strength, 0.5);
  EXPECT_EQ(request_.controls[0].end, 0.4);
  EXPECT_EQ(request_.controls[1].model, "b");
  EXPECT_EQ(request_.controls[1].strength, 0.7);
  EXPECT_EQ(request_.controls[1].end, 0.6);
  EXPECT_FALSE(request_.controls[0].start);
  for (int i = 2; i < 8; ++i) set("control", "c");
  EXPECT_EQ(refusal("control", "d"), "control: given more than 8 times");
  EXPECT_EQ(refusal("control", ""), "control: expected a file or folder, got an empty text");
}

TEST_F(OptionsTest, EachOptionOfAnIpAdapterBelongsToTheFirstThatLacksIt) {
  set("ip-weight", "0.5");
  set("ip-adapter", "a.safetensors");
  set("ip-adapter", "b.safetensors");
  set("ip-weight", "-1");
  set("ip-end", "0.25");
  set("image-encoder", "vision");
  ASSERT_EQ(request_.ip_adapters.size(), 2u);
  EXPECT_EQ(request_.ip_adapters[0].model, "a.safetensors");
  EXPECT_EQ(request_.ip_adapters[1].model, "b.safetensors");
  EXPECT_EQ(request_.ip_adapters[0].weight, 0.5);
  EXPECT_EQ(request_.ip_adapters[1].weight, -1.0);
  EXPECT_EQ(request_.ip_adapters[0].end, 0.25);
  EXPECT_EQ(request_.ip_adapters[0].image_encoder, "vision");
  EXPECT_FALSE(request_.ip_adapters[1].image_encoder);
  EXPECT_EQ(refusal("ip-adapter", ""), "ip-adapter: expected a file, got an empty text");
  EXPECT_EQ(refusal("ip-weight", "11"), "ip-weight: expected a number from -10 to 10, got \"11\"");
  for (int i = 2; i < 8; ++i) set("ip-adapter", "c.safetensors");
  EXPECT_EQ(refusal("ip-adapter", "d.safetensors"), "ip-adapter: given more than 8 times");
}

TEST_F(OptionsTest, LoadingAndRequestOptionsKeepApart) {
  OptionTargets loading{&load_, nullptr};
  EXPECT_THROW(set_option(loading, "prompt", "x"), UsageError);
  OptionTargets requesting{nullptr, &request_};
  EXPECT_THROW(set_option(requesting, "model", "x"), UsageError);
}

TEST(OptionRows, NamesAreUniqueAndHelpIsThere) {
  for (const OptionRow& a : option_rows()) {
    EXPECT_NE(std::string(a.help), "");
    for (const OptionRow& b : option_rows())
      if (&a != &b) {
        EXPECT_STRNE(a.name, b.name);
        if (a.short_name[0]) {
          EXPECT_STRNE(a.short_name, b.short_name);
        }
      }
  }
}

TEST(OutputName, FillsInAndNumbers) {
  const std::string dir = testing::TempDir() + "rocm_sd_names/";
  EXPECT_EQ(output_name(dir + "{index:04}-{seed}-{model}.png", {3, 9, 42, "a/b"}), dir + "0003-42-a_b.png");
  EXPECT_EQ(output_name(dir + "x%03d.jpg", {7, 9, 0, ""}), dir + "x007.jpg");
  EXPECT_EQ(output_name(dir + "same.webp", {1, 2, 0, ""}), dir + "same.webp");
  EXPECT_EQ(output_name(dir + "same.webp", {2, 2, 0, ""}), dir + "same_2.webp");
  EXPECT_TRUE(std::filesystem::is_directory(dir));
  std::filesystem::remove_all(dir);
  EXPECT_EQ(output_name(dir + "{index:05d}.png", {3, 9, 42, ""}), dir + "00003.png");
  for (const char* bad : {"{nonsense}.png", "{seed:x}.png", "{index:05f}.png", "{index:}.png", "{Index}.png",
                          "{ seed }.png", "{index:+3}.png"})
    EXPECT_THROW(output_name(dir + bad, {}), UsageError) << bad;
  EXPECT_THROW(output_name("picture.gif", {}), UsageError);
  EXPECT_THROW(output_name("/proc/nowhere/picture.png", {}), FileError);
}

TEST(Sheet, PlacesPicturesAndText) {
  const Image red{16, 8, std::vector<uint8_t>(16 * 8 * 3, 7), {}};
  const std::vector<Image> pictures(5, red);
  const Image plain = make_sheet(pictures, {}, 2);
  EXPECT_EQ(plain.width, 2 * 24);
  EXPECT_EQ(plain.height, 3 * 16);
  EXPECT_EQ(plain.rgb[3 * (4 * 48 + 4)], 7);                    // the first picture's corner
  EXPECT_EQ(plain.rgb[3 * (4 * 48 + 3)], 255);                  // its margin
  EXPECT_EQ(plain.rgb[3 * ((2 * 16 + 4) * 48 + 24 + 4)], 255);  // no sixth picture
  const Image labelled =
      make_sheet(pictures, std::vector<std::string>{"a", "b", "", "\xc3\xa9", "a very long label"}, 2);
  EXPECT_GT(labelled.height, plain.height);
  EXPECT_THROW(make_sheet(std::vector<Image>{}, {}, 2), UsageError);
  EXPECT_THROW(make_sheet(std::vector<Image>{red, {8, 8, std::vector<uint8_t>(192), {}}}, {}, 2), UsageError);
}

}  // namespace
}  // namespace rocm_sd
