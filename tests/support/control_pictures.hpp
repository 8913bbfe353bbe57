// What the tests of ControlNets' pictures share: random ControlNets for the demo model, a picture, a request.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "pipeline/load.hpp"
#include "support/random_control.hpp"

namespace rocm_sd::testing_support {

inline const std::string kModel = std::string(ROCM_SD_SOURCE_DIR) + "/models/demo";
inline const LoadOptions kDemo = {.model = kModel, .dtype = "f32"};

// Random ControlNets for the demo model.
class ControlPictures : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("rocm_sd_control_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, float scale) {
    return write_random_control(folder_ / (name + ".safetensors"), kModel, scale);
  }

  static Image picture(int width, int height) {
    Image image{width, height, std::vector<uint8_t>(static_cast<size_t>(3 * width * height)), {}};
    for (size_t i = 0; i < image.rgb.size(); ++i) image.rgb[i] = static_cast<uint8_t>((i * 31) % 251);
    return image;
  }
  static GenerateRequest request() {
    GenerateRequest request;
    request.prompt = "a red apple";
    request.negative_prompt = "a car";
    request.width = request.height = 64;
    request.steps = 3;
    request.seed = 3;
    request.sampler = "Euler";
    return request;
  }
  static std::vector<uint8_t> draw(Pipeline& pipeline, const GenerateRequest& request) {
    return pipeline.generate(request).pictures.at(0).image.rgb;
  }

  std::filesystem::path folder_;
};

}  // namespace rocm_sd::testing_support
