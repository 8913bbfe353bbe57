// ControlNets' pictures through the C interface: one for each option, batches, masks, and what is refused.
#include <gmock/gmock.h>

#include <filesystem>

#include "pipeline/load.hpp"
#include "rocm_sd/rocm_sd.h"
#include "runtime/device.hpp"
#include "support/control_pictures.hpp"

namespace rocm_sd {
namespace {

using testing::HasSubstr;

using testing_support::kDemo;
using testing_support::kModel;

class ControlsFromC : public testing_support::ControlPictures {};

TEST_F(ControlsFromC, PicturesFromTheCInterface) {
  const std::string net = write("a", 0.2f);
  rocm_sd_pipeline* pipeline = nullptr;
  const rocm_sd_option model[] = {{"model", kModel.c_str()}, {"dtype", "f32"}, {nullptr, nullptr}};
  ASSERT_EQ(rocm_sd_create(model, nullptr, &pipeline), ROCM_SD_OK) << rocm_sd_last_error();
  const rocm_sd_option options[] = {{"prompt", "a red apple"},
                                    {"negative-prompt", "a car"},
                                    {"steps", "3"},
                                    {"seed", "3"},
                                    {"sampler", "Euler"},
                                    {"width", "64"},
                                    {"height", "64"},
                                    {"control", net.c_str()},
                                    {nullptr, nullptr}};
  const Image seen = picture(64, 64);
  const rocm_sd_control_image images[] = {
      {64, 64, seen.rgb.data()}, {64, 64, seen.rgb.data()}, {0, 64, seen.rgb.data()}};
  rocm_sd_inputs inputs = {};
  inputs.control_images = images;
  inputs.control_images_count = 1;
  rocm_sd_result* result = nullptr;
  ASSERT_EQ(rocm_sd_generate_from(pipeline, options, &inputs, nullptr, &result), ROCM_SD_OK)
      << rocm_sd_last_error();
  Pipeline own = load_pipeline(kDemo, host_device());
  GenerateRequest request = this->request();
  request.controls = {{.model = net, .image = seen}};
  const std::vector<uint8_t> want = draw(own, request);
  EXPECT_EQ(std::vector<uint8_t>(result->pictures[0].rgb, result->pictures[0].rgb + want.size()), want);
  EXPECT_THAT(result->pictures[0].parameters, HasSubstr("ControlNet 0: \"Module: none, Model: a ["));
  rocm_sd_result_free(result);
  inputs.control_images_count = 2;
  EXPECT_EQ(rocm_sd_generate_from(pipeline, options, &inputs, nullptr, &result), ROCM_SD_USAGE);
  EXPECT_THAT(rocm_sd_last_error(), HasSubstr("2 pictures for 1 \"control\" options"));
  inputs.control_images = images + 2;
  inputs.control_images_count = 1;
  EXPECT_EQ(rocm_sd_generate_from(pipeline, options, &inputs, nullptr, &result), ROCM_SD_USAGE);
  EXPECT_THAT(rocm_sd_last_error(), HasSubstr("control image: width and height"));
  inputs.control_images = nullptr;
  EXPECT_EQ(rocm_sd_generate_from(pipeline, options, &inputs, nullptr, &result), ROCM_SD_USAGE);
  rocm_sd_free(pipeline);
  EXPECT_EQ(rocm_sd_abi_version(), ROCM_SD_ABI_VERSION);
}

TEST_F(ControlsFromC, BatchesAndMasksFromTheCInterface) {
  const std::string net = write("a", 0.2f);
  rocm_sd_pipeline* pipeline = nullptr;
  const rocm_sd_option model[] = {{"model", kModel.c_str()}, {"dtype", "f32"}, {nullptr, nullptr}};
  ASSERT_EQ(rocm_sd_create(model, nullptr, &pipeline), ROCM_SD_OK) << rocm_sd_last_error();
  const rocm_sd_option options[] = {{"prompt", "a red apple"},
                                    {"negative-prompt", "a car"},
                                    {"steps", "3"},
                                    {"seed", "3"},
                                    {"sampler", "Euler"},
                                    {"width", "64"},
                                    {"height", "64"},
                                    {"batch", "2"},
                                    {"control", net.c_str()},
                                    {nullptr, nullptr}};
  const Image seen = picture(64, 64), other = picture(48, 64), mask = picture(32, 32);
  const rocm_sd_control_image images[] = {{64, 64, seen.rgb.data()}, {48, 64, other.rgb.data()}};
  const rocm_sd_control_image masks[] = {{32, 32, mask.rgb.data()}, {32, 32, mask.rgb.data()}};
  rocm_sd_inputs inputs = {};
  inputs.control_images = images;
  inputs.control_images_count = inputs.control_images_each = 2;
  inputs.control_masks = masks;
  inputs.control_masks_count = 1;
  rocm_sd_result* result = nullptr;
  ASSERT_EQ(rocm_sd_generate_from(pipeline, options, &inputs, nullptr, &result), ROCM_SD_OK)
      << rocm_sd_last_error();
  Pipeline own = load_pipeline(kDemo, host_device());
  GenerateRequest request = this->request();
  request.batch = 2;
  request.controls = {{.model = net, .images = {seen, other}, .mask = mask}};
  const GenerateResult want = own.generate(request);
  for (size_t i = 0; i < 2; ++i) {
    const std::vector<uint8_t>& rgb = want.pictures.at(i).image.rgb;
    EXPECT_EQ(std::vector<uint8_t>(result->pictures[i].rgb, result->pictures[i].rgb + rgb.size()), rgb) << i;
  }
  rocm_sd_result_free(result);
  inputs.control_masks_count = 2;
  EXPECT_EQ(rocm_sd_generate_from(pipeline, options, &inputs, nullptr, &result), ROCM_SD_USAGE);
  EXPECT_THAT(rocm_sd_last_error(), HasSubstr("control_masks: 2 pictures for 1 \"control\" options"));
  rocm_sd_free(pipeline);
}

}  // namespace
}  // namespace rocm_sd
