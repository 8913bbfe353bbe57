// Texts of problems: what is written is read back, and what is not understood is named with its place.
#include "kernels/op_text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

namespace rocm_sd {
namespace {

enum class Mode { kNearest, kArea };

struct Everything {
  static constexpr const char* kOp = "everything";
  DType dtype = DType::kF32;
  std::optional<DType> weight;
  int64_t size = 0, second = 0;
  int stride = 0;
  float factor = 0;
  bool set = false;
  Mode mode = Mode::kNearest;
  Activation act = Activation::kNone;

  static void text(auto& p, auto& t) {
    static constexpr std::string_view kModes[] = {"nearest", "area"};
    t.name(p.mode, kModes).word(" ").type(p.dtype).optional_type(" by ", p.weight, kEightBitTypes);
    t.word(" [").extent(p.size, 1).optional_extent("+", p.second).word("] s").extent(p.stride);
    t.word(" by ").number(p.factor).flag(" set", p.set).activation(p.act);
    t.check(p.size != 13, "no unlucky sizes");
  }
  friend bool operator==(const Everything&, const Everything&) = default;
};

TEST(OpText, IsReadAsItWasWritten) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 2000; ++i) {
    Everything p;
    p.dtype = kActivationTypes[random() % 3];
    if (random() % 2) p.weight = kEightBitTypes[random() % 2];
    p.size = 14 + static_cast<int64_t>(random() % (uint64_t{1} << 30));
    p.second = static_cast<int64_t>(random() % 3);
    p.stride = static_cast<int>(random() % 100);
    do p.factor = std::bit_cast<float>(static_cast<uint32_t>(random()));
    while (!std::isfinite(p.factor));
    p.set = random() % 2;
    p.mode = random() % 2 ? Mode::kArea : Mode::kNearest;
    p.act = static_cast<Activation>(random() % 5);
    EXPECT_EQ(problem_from<Everything>(text_of(p)), p) << text_of(p);
  }
}

TEST(OpText, ReadsTheDocumentedForm) {
  const auto p = problem_from<Everything>("area bf16 by f8e4m3 [4+2] s1 by 2.5 set silu");
  EXPECT_EQ(p,
            (Everything{DType::kBF16, DType::kF8E4M3, 4, 2, 1, 2.5f, true, Mode::kArea, Activation::kSilu}));
}

TEST(OpText, NamesThePlaceThatIsNotUnderstood) {
  for (const auto& [text, message] : {std::pair{"far f16 [4] s1 by 2", "expected nearest or area at \"far"},
                                      {"area f64 [4] s1 by 2", "expected f32, f16 or bf16 at \"f64"},
                                      {"area f16 by f16 [4] s1 by 2", "expected i8 or f8e4m3 at \"f16 [4"},
                                      {"area f16 [0] s1 by 2", "expected a number from 1 at \"0]"},
                                      {"area f16 [4+0] s1 by 2", "expected a number from 1 at \"0]"},
                                      {"area f16 [-4] s1 by 2", "expected a number from 1 at \"-4"},
                                      {"area f16 [4294967296] s1 by 2", "expected a number from 1"},
                                      {"area f16 [4] s2147483648 by 2", "expected a number from 0"},
                                      {"area f16 [4] s1 by inf", "expected a number at \"inf"},
                                      {"area f16 [4] s1 by 1e99", "expected a number at \"1e99"},
                                      {"area f16 (4)", "expected \" [\" at"},
                                      {"area f16 [13] s1 by 2", "no unlucky sizes at"},
                                      {"area f16 [4] s1 by 2 set set", "expected the end at \" set"}}) {
    try {
      problem_from<Everything>(text);
      ADD_FAILURE() << text;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(message)) << text;
    }
  }
}

}  // namespace
}  // namespace rocm_sd
