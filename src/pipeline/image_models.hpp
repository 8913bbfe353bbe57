// IP-Adapters and image encoders of a pipeline: read from their files, checked against the model, kept while
// requests ask for them.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "models/clip_vision.hpp"
#include "models/ip_adapter.hpp"
#include "weights/checkpoint.hpp"

namespace rocm_sd {

struct LoadedImageModel {
  std::filesystem::path path;
  std::filesystem::file_time_type changed;
  std::string name;  // file name without its ending
  std::string hash;  // as A1111 shows it after the name; empty for folders
  WeightStore store;
  std::variant<IpAdapter, ClipVisionModel> model;  // weights are read by load()

  const IpAdapter* adapter() const { return std::get_if<IpAdapter>(&model); }
  const ClipVisionModel* encoder() const { return std::get_if<ClipVisionModel>(&model); }

  // stored: f16 under products in f32, or `compute`.
  void load(Device& device, DType compute, DType stored);
  void drop();  // gives the weights' memory back
  void visit(Visitor& v);
};

struct ImageModelFiles {
  std::string variant;
  FileAccess access = FileAccess::kRead;
};

// Open an adapter for the model, or an encoder, and compare names, shapes and small values; no weights are
// loaded. Throw FileError; FormatError for a file that holds none, one for another base model (what differs),
// tensors that are missing or left over (their names), and values that are not finite; ShapeError for a
// shape.
std::shared_ptr<LoadedImageModel> open_adapter_model(const std::filesystem::path& path, ModelKind kind,
                                                     const UNet& unet, const ImageModelFiles& files);
std::shared_ptr<LoadedImageModel> open_encoder_model(const std::filesystem::path& path,
                                                     const ImageModelFiles& files);

// Why this encoder is none for the adapter; empty where it is one.
std::string encoder_refusal(const IpAdapter& adapter, const ClipVisionModel& encoder);

// Where an adapter's encoder is looked for: the folder image_encoder beside the adapter's file, in h94's
// models/ beside the file's folder, and in the checkpoint's folder.
std::vector<std::filesystem::path> encoder_places(const std::filesystem::path& adapter,
                                                  const Checkpoint& checkpoint);

}  // namespace rocm_sd
