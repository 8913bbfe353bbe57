// A program that embeds the library may have set any locale: numbers are read and written with a point.
#include <gtest/gtest.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <locale>
#include <string>

#include "rocm_sd/rocm_sd.h"

namespace {

// One and a half is "1,5" to C's and C++'s own functions as long as this lives. The locale is compiled here:
// a bare system has none but C's.
class DecimalComma {
 public:
  DecimalComma() {
    std::ofstream source(folder_ / "numbers");
    source << "LC_NUMERIC\ndecimal_point \",\"\nthousands_sep \".\"\ngrouping 3;3\nEND LC_NUMERIC\n";
    source.close();
    std::ofstream charmap(folder_ / "ascii");
    charmap << "<code_set_name> ANSI_X3.4-1968\n<comment_char> %\n<escape_char> /\nCHARMAP\n";
    for (int i = 0; i < 128; ++i) {
      char line[40];
      std::snprintf(line, sizeof(line), "<U%04X> /x%02x C\n", i, i);
      charmap << line;
    }
    charmap << "END CHARMAP\n";
    charmap.close();
    const std::string in = "cd '" + folder_.string() + "' && ";
    // Its exit code tells of the other categories, which are left out.
    compiled_ = std::system((in + "localedef -c -i numbers -f ./ascii ./xx_XX >localedef.log 2>&1").c_str());
    setenv("LOCPATH", folder_.c_str(), 1);
    set_ = std::setlocale(LC_ALL, "xx_XX") != nullptr;
    std::locale::global(std::locale(std::locale::classic(), new Punctuation));
  }
  ~DecimalComma() {
    std::setlocale(LC_ALL, "C");
    std::locale::global(std::locale::classic());
    unsetenv("LOCPATH");
    std::filesystem::remove_all(folder_);
  }
  DecimalComma(const DecimalComma&) = delete;
  DecimalComma& operator=(const DecimalComma&) = delete;
  bool set() const { return set_; }
  int compiled() const { return compiled_; }

 private:
  struct Punctuation : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
  };
  static std::filesystem::path new_folder() {
    std::string pattern = std::filesystem::temp_directory_path() / "rocm_sd_locale_XXXXXX";
    return mkdtemp(pattern.data());
  }
  std::filesystem::path folder_ = new_folder();
  bool set_ = false;
  int compiled_ = 0;
};

struct Drawn {
  std::string pixels, parameters;
};

Drawn draw() {
  const std::string demo = std::string(ROCM_SD_SOURCE_DIR) + "/models/demo";
  const rocm_sd_option model[] = {{"model", demo.c_str()}, {"dtype", "f32"}, {nullptr, nullptr}};
  const rocm_sd_option request[] = {{"prompt", "a (red:1.35) apple"},
                                    {"steps", "2"},
                                    {"seed", "123456789"},
                                    {"width", "64"},
                                    {"height", "64"},
                                    {"cfg-scale", "7.5"},
                                    {"sampler", "Euler a"},
                                    {"eta", "0.25"},
                                    {nullptr, nullptr}};
  rocm_sd_pipeline* pipeline = nullptr;
  rocm_sd_result* result = nullptr;
  Drawn out;
  if (rocm_sd_create(model, nullptr, &pipeline) == ROCM_SD_OK &&
      rocm_sd_generate(pipeline, request, nullptr, &result) == ROCM_SD_OK) {
    const rocm_sd_picture& picture = result->pictures[0];
    out.pixels.assign(reinterpret_cast<const char*>(picture.rgb),
                      static_cast<size_t>(picture.width) * static_cast<size_t>(picture.height) * 3);
    out.parameters = picture.parameters;
    rocm_sd_result_free(result);
  } else {
    ADD_FAILURE() << rocm_sd_last_error();
  }
  rocm_sd_free(pipeline);
  return out;
}

TEST(Locale, ADecimalCommaChangesNothing) {
  const Drawn want = draw();
  EXPECT_NE(want.parameters.find("CFG scale: 7.5"), std::string::npos) << want.parameters;
  EXPECT_NE(want.parameters.find("Seed: 123456789"), std::string::npos) << want.parameters;
  Drawn got;
  {
    const DecimalComma comma;
    ASSERT_TRUE(comma.set()) << "localedef: " << comma.compiled();
    char text[8];
    std::snprintf(text, sizeof(text), "%.1f", 1.5);
    ASSERT_STREQ(text, "1,5") << "the locale is not in force: this would prove nothing";
    got = draw();
  }
  EXPECT_EQ(got.parameters, want.parameters);
  EXPECT_EQ(got.pixels, want.pixels);
}

}  // namespace
