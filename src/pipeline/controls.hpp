// Control models of a pipeline (ControlNets of every kind, T2I-Adapters): read from their files, checked
// against the model, kept while requests ask for them.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "models/controlnet.hpp"
#include "models/t2i_adapter.hpp"
#include "weights/checkpoint.hpp"

namespace rocm_sd {

struct LoadedControl {
  std::filesystem::path path;
  std::filesystem::file_time_type changed;
  std::string name;  // file name without its ending
  std::string hash;  // as A1111 shows it after the name; empty for folders
  WeightStore store;
  const WeightStore* unet = nullptr;           // of a ControlNet-LoRA: what its store has not
  std::variant<ControlNet, T2iAdapter> model;  // weights are read by load()
  DType maps = DType::kF32;                    // of the UNet's maps, as load() found it

  const ControlNet* net() const { return std::get_if<ControlNet>(&model); }
  const T2iAdapter* adapter() const { return std::get_if<T2iAdapter>(&model); }
  bool bgr() const { return net() && net()->config().bgr; }
  int64_t types() const { return net() && net()->config().mixer ? net()->config().mixer->types : 0; }

  void load(const LoadTarget& target, DType compute, const WeightFormat& weights, DType unet_maps);
  void drop();  // gives the weights' memory back
  void visit(Visitor& v);
};

struct ControlFiles {
  std::string variant;
  FileAccess access = FileAccess::kRead;
};

// Opens a control model for the model and compares names, shapes and small values; no weights are loaded.
// The checkpoint must outlive a ControlNet-LoRA. Throws FileError; FormatError for a file that holds none,
// one for another base model (what differs), tensors that are missing or left over (their names), and values
// that are not finite; ShapeError for a shape.
std::shared_ptr<LoadedControl> open_control(const std::filesystem::path& path, const Checkpoint& checkpoint,
                                            const UNetConfig& unet, int64_t downscale,
                                            const ControlFiles& files);

}  // namespace rocm_sd
