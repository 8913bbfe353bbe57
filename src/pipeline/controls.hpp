// ControlNets of a pipeline: read from their files, checked against the model, kept while requests ask for
// them.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "models/controlnet.hpp"
#include "weights/checkpoint.hpp"

namespace rocm_sd {

struct LoadedControl {
  std::filesystem::path path;
  std::filesystem::file_time_type changed;
  std::string name;  // file name without its ending
  std::string hash;  // as A1111 shows it after the name; empty for folders
  WeightStore store;
  ControlNetConfig config;
  ControlNet model;  // weights are read by load()

  void load(const LoadTarget& target, DType compute, const WeightFormat& weights);
};

struct ControlFiles {
  std::string variant;
  FileAccess access = FileAccess::kRead;
};

// Opens a ControlNet for the model and compares names, shapes and small values; no weights are loaded. Throws
// FileError; FormatError for a file that is no ControlNet, one for another base model (what differs), tensors
// that are missing or left over (their names), and values that are not finite; ShapeError for a shape.
std::shared_ptr<LoadedControl> open_control(const std::filesystem::path& path, const Checkpoint& checkpoint,
                                            const UNetConfig& unet, int64_t downscale,
                                            const ControlFiles& files);

}  // namespace rocm_sd
