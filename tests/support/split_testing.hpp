// What the tests of splits have in common.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "rocm_sd/pipeline.hpp"

namespace rocm_sd::testing_support {

// A picture to begin with.
inline Image picture(int width, int height) {
  Image image{width, height, std::vector<uint8_t>(static_cast<size_t>(3 * width * height)), {}};
  for (size_t i = 0; i < image.rgb.size(); ++i) image.rgb[i] = static_cast<uint8_t>((i * 31) % 251);
  return image;
}

// The demo model on so many ranks of the CPU, in f32.
inline LoadOptions demo_on_ranks(int ranks, const char* split) {
  LoadOptions options{.model = std::string(ROCM_SD_SOURCE_DIR) + "/models/demo",
                      .devices = "cpu",
                      .split = split,
                      .dtype = "f32"};
  for (int i = 1; i < ranks; ++i) options.devices += ",cpu";
  return options;
}

// A small image of odd maps: 9, 5, 3 columns.
inline GenerateRequest odd_request() {
  GenerateRequest request;
  request.prompt = "a red apple";
  request.negative_prompt = "a car";
  request.width = 72;
  request.height = 64;
  request.steps = 2;
  request.seed = 3;
  return request;
}

// Of 8-bit values: one unit of rounding at most, which a sum in another order may tip over.
inline void expect_alike(const GenerateResult& got, const GenerateResult& want, const std::string& what) {
  ASSERT_EQ(got.pictures.size(), want.pictures.size()) << what;
  for (size_t i = 0; i < got.pictures.size(); ++i) {
    const auto &a = got.pictures[i].image.rgb, &b = want.pictures[i].image.rgb;
    ASSERT_EQ(a.size(), b.size()) << what;
    int most = 0;
    for (size_t j = 0; j < a.size(); ++j) most = std::max(most, std::abs(int{a[j]} - int{b[j]}));
    EXPECT_LE(most, 1) << what << ", image " << i;
    const auto without_device = [](const std::string& text) {
      return text.substr(0, text.find(", Device:"));
    };
    EXPECT_EQ(without_device(got.pictures[i].parameters), without_device(want.pictures[i].parameters))
        << what;
  }
}

}  // namespace rocm_sd::testing_support
