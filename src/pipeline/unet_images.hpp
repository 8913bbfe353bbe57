// Images as prompts beside the text of a UNet's stage: their keys and values for every row of a step, and how
// strongly each acts where, in persistent memory, so that a captured step sees what they are now.
#pragma once

#include <cstdint>
#include <vector>

#include "models/unet.hpp"
#include "pipeline/image_stage.hpp"

namespace rocm_sd {

// What the memory of one adapter's images depends on.
struct ImageSlot {
  int64_t tokens = 4;  // of all of its images
  int64_t masks = 0;   // images with a mask each, which then have a softmax each; 0: one softmax for all
  friend bool operator==(const ImageSlot&, const ImageSlot&) = default;
};

// What a request asks of one adapter.
struct ImageSetting {
  double weight = 1, start = 0, end = 1;    // start, end: shares of the run's steps
  std::vector<std::vector<float>> masks{};  // [H,W] of 0 and 1 for each image, or none
  // Whether it acts in step `step` (0-based) of `total`, by the rule of ControlNets.
  bool acts(int step, int total) const;
};

struct ImageRows {
  int64_t batch = 1, conditions = 2, height = 64, width = 64;  // of the UNet's latents
  int64_t image_height = 512, image_width = 512;               // of the masks
  int64_t rows() const { return batch * conditions; }
};

class UnetImages {
 public:
  UnetImages(Device& device, const UNet& unet, const ImageRows& rows, const std::vector<ImageSlot>& slots);

  uint64_t bytes() const;
  uint32_t all() const { return (uint32_t{1} << adapters_.size()) - 1; }  // a bit for each adapter
  // first_part: the first condition that reads the prompt. Those before it read the images of no prompt.
  void set(Exec& ex, const ImageStates& states, std::vector<ImageSetting> settings, int first_part);
  // Which of them act in step `step` of `total`.
  uint32_t active(int step, int total) const;
  // What the UNet reads where these act.
  std::vector<ImageTokens> tokens(uint32_t active) const;

 private:
  struct Adapter {
    std::vector<Tensor> keys_values;  // of each layer: [rows,T,2C]
    // Of each mask, or of all images, and each level of the UNet: [rows] or [rows*pixels] f32.
    std::vector<std::vector<Tensor>> factors;
  };
  int64_t pixels_at(int64_t level) const;

  Device& device_;
  std::vector<ImageAttention> layers_;
  ImageRows rows_;
  std::vector<ImageSlot> slots_;
  std::vector<Adapter> adapters_;
  std::vector<ImageSetting> settings_;
};

}  // namespace rocm_sd
