// Four and eight ranks on the CPU, more than most machines that run this have cores for: every split once, at
// a size that eight can divide, against the image of one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "rocm_sd/multi.hpp"

namespace rocm_sd {
namespace {

const std::string kModel = std::string(ROCM_SD_SOURCE_DIR) + "/models/demo";

GenerateRequest request() {
  GenerateRequest request;
  request.prompt = "a red apple";
  request.negative_prompt = "a car";
  request.width = 64;
  request.height = 264;  // 33 rows of latents: eight ranks of four, and the last one has five
  request.steps = 2;
  request.seed = 3;
  return request;
}

const Image& one_rank() {
  static const Image image = [] {
    return Pipeline::load({.model = kModel, .dtype = "f32"}).generate(request()).pictures.at(0).image;
  }();
  return image;
}

struct Case {
  const char* split;
  int ranks, groups, most_off;  // of 255
};

class ManyRanks : public testing::TestWithParam<Case> {};

TEST_P(ManyRanks, DrawWhatOneRankDraws) {
  const auto& [split, ranks, groups, most_off] = GetParam();
  LoadOptions options{.model = kModel, .devices = "cpu", .split = split, .dtype = "f32"};
  for (int i = 1; i < ranks; ++i) options.devices += ",cpu";
  MultiPipeline together = MultiPipeline::load(options);
  ASSERT_EQ(together.drawers().size(), static_cast<size_t>(groups));
  size_t drawn = 0;
  double squares = 0;
  int most = 0;
  together.generate_each(
      [&](size_t i) { return i < static_cast<size_t>(groups) ? std::optional(request()) : std::nullopt; },
      [&](size_t, const GenerateResult& result) {
        const auto &got = result.pictures.at(0).image.rgb, &want = one_rank().rgb;
        ASSERT_EQ(got.size(), want.size());
        for (size_t i = 0; i < got.size(); ++i) {
          const int off = std::abs(int{got[i]} - int{want[i]});
          most = std::max(most, off);
          squares += off * off;
        }
        ++drawn;
      });
  EXPECT_EQ(drawn, static_cast<size_t>(groups));
  EXPECT_LE(most, most_off);
  RecordProperty("most_off_of_255", most);
  RecordProperty("squares", std::to_string(squares));
}

// displaced:2 of two steps is exact; displaced:1 reads in the second step what there was in the first.
INSTANTIATE_TEST_SUITE_P(Splits, ManyRanks,
                         testing::Values(Case{"images", 4, 4, 0}, Case{"images", 8, 8, 0},
                                         Case{"guidance", 4, 2, 1}, Case{"guidance", 8, 4, 1},
                                         Case{"rows", 4, 1, 1}, Case{"rows", 8, 1, 1},
                                         Case{"guidance-rows", 4, 1, 1}, Case{"guidance-rows", 8, 1, 1},
                                         Case{"pipeline", 4, 1, 1}, Case{"pipeline", 8, 1, 1},
                                         Case{"tensor", 4, 1, 1}, Case{"tensor", 8, 1, 1},
                                         Case{"displaced:2", 4, 1, 1}, Case{"displaced:2", 8, 1, 1},
                                         Case{"guidance-displaced:2", 4, 1, 1}),
                         [](const auto& info) {
                           std::string name = info.param.split;
                           for (char& c : name)
                             if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
                           return name + "_" + std::to_string(info.param.ranks);
                         });

}  // namespace
}  // namespace rocm_sd
