// Whole models planned on any device without weights: what they launch, how often, with how much work and
// memory.
#pragma once

#include <string>
#include <vector>

#include "models/configs.hpp"
#include "models/exchange_record.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd {

class Ranks;

// A family of checkpoints: its networks and the picture it was trained on.
struct KnownModel {
  std::string name;  // "sdxl"
  UNetConfig unet;
  VaeConfig vae;
  std::vector<ClipConfig> encoders;
  int64_t side = 512;  // pixels
};
// sd15, sd21, sdxl, sdxl-refiner.
const std::vector<KnownModel>& known_models();
// Throws UsageError listing the names, the nearest one first.
const KnownModel& known_model(const std::string& name);

struct PictureShape {
  int64_t height = 512, width = 512;  // pixels, multiples of 8
  int64_t batch = 1;                  // pictures
  int64_t tokens = 77;                // of a prompt: 77 a chunk
  bool guidance = true;               // two UNet passes a picture, as one batch
};

// A problem that an op met, and how often a run has it.
struct PlannedChoice {
  std::string op, problem, impl;
  int count = 0;
};

struct PlannedStage {
  std::string name;           // "text", "prepare", "unet", "vae"
  int runs = 1;               // a picture: the steps for the UNet
  uint64_t weight_bytes = 0;  // on the device, in the layouts that the plan made
  uint64_t arena_bytes = 0;   // the most that is in use at once
  double flops = 0;           // of one run
  PlannedProblems problems;   // of one run
  std::vector<PlannedChoice> choices;
  std::vector<Exchange> exchanges;  // of one run, of a rank (RankShare)
};

class RowSplit;

// What one of several ranks computes of a picture (docs/architecture.md, several devices).
struct RankShare {
  int64_t conditions = 1;          // of the UNet: one or two
  const RowSplit* unet = nullptr;  // null: all rows
  const RowSplit* vae = nullptr;
  bool decodes = true;  // another rank does otherwise
  // That share each of the UNet's attentions and feed-forwards; null: they are whole.
  Ranks* tensors = nullptr;
};

// Plans every stage of text to image, one after the other; each stage's weights are freed before the next.
// dtype: f32, bf16 or f16, of weights and activations. Throws ShapeError for sizes that are no multiples of 8
// or not positive, and what loading and planning throw (OutOfMemoryError where a stage does not fit).
std::vector<PlannedStage> plan_model(Device& device, const KnownModel& model, const PictureShape& shape,
                                     int steps, DType dtype);
// The same on `device` with the types of `products`, which would multiply: in bf16 a GPU and a CPU compute
// parts of a model in other types.
std::vector<PlannedStage> plan_model(Device& device, const Device& products, const KnownModel& model,
                                     const PictureShape& shape, int steps, DType dtype);

// The stages of one rank, with what it exchanges within the UNet and the decoder. The UNet is planned for
// share.conditions, whatever shape.guidance says; of two conditions the text encoders run on both.
std::vector<PlannedStage> plan_share(Device& device, const Device& products, const KnownModel& model,
                                     const PictureShape& shape, int steps, DType dtype,
                                     const RankShare& share);

// The VAE's encoder on one picture, "vae-encode": what a picture that begins from another one needs beside
// plan_model's stages. Throws as plan_model.
PlannedStage plan_encoder(Device& device, const Device& products, const KnownModel& model,
                          const PictureShape& shape, DType dtype);

// What a tuner works on: the problems of a picture that `products` will compute, with how often it needs
// each. Planned on the host without preparing anything.
std::vector<PlannedChoice> picture_problems(const Device& products, const KnownModel& model,
                                            const PictureShape& shape, int steps, DType dtype);

}  // namespace rocm_sd
