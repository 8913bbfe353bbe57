// Images as prompts to the keys and values that the UNet's cross attentions read beside the text's: image
// encoders, and the projections and matrices of IP-Adapters. Once per request.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "pipeline/components.hpp"
#include "pipeline/request.hpp"
#include "pipeline/stage.hpp"

namespace rocm_sd {

// An adapter at work, and how many images it sees: what its memory depends on.
struct ImageUnit {
  const LoadedImageModel *adapter = nullptr, *encoder = nullptr;  // no encoder: embeddings are given
  int64_t images = 1;                                             // that one image of the batch sees
  int64_t states = 1;  // rows of what an encoder gives of one image
  int64_t sets = 1;    // of images: one for all of the batch, or one for each
  int64_t tokens() const { return images * adapter->adapter()->config().tokens(states); }
  friend bool operator==(const ImageUnit&, const ImageUnit&) = default;
};

// Of each adapter and layer [1+sets,T,2C] in device memory: the images' that conditions without the prompt
// read, then the prompt's, or those of each image of the batch.
using ImageStates = std::vector<std::vector<Tensor>>;

class ImageStage final : public Stage {
 public:
  // components, arena and what the units name must outlive the stage.
  ImageStage(Components& components, Arena& arena, std::vector<ImageUnit> units);

  const std::vector<ImageUnit>& shape() const { return units_; }
  DType dtype() const override { return components_.dtype_of(Part::kImage); }
  std::vector<Program*> programs() override;
  uint64_t buffer_bytes() const override;

  // The states stay valid until the next call. Throws NotFinite.
  ImageStates run(const ResolvedRequest& r, const RunWatch& watch);

 private:
  // An encoder at work for one image: what several units share.
  struct Encoder {
    const ClipVisionModel& model;
    VisionResult result;
    Tensor pixels, encoded;  // persistent
    std::unique_ptr<Program> program;
    std::vector<std::pair<std::vector<float>, std::vector<float>>> known;  // of this run: pixels, result
  };
  struct Unit {
    Encoder* encoder = nullptr;
    Tensor inputs;                    // [(1+sets)*images,...], those without the prompt first; persistent
    Tensor faces;                     // the same of FaceID Plus's embeddings, else empty
    Tensor tokens;                    // [1+sets,T,context width]
    std::vector<Tensor> keys_values;  // [1+sets,T,2C] of each layer
    std::unique_ptr<Program> program;
  };
  Encoder& encoder_for(const ImageUnit& unit);
  void make_unit(const ImageUnit& unit);
  std::vector<float> encode(Encoder& encoder, const std::vector<float>& pixels, const RunWatch& watch);
  std::vector<float> inputs_of(const ResolvedRequest& r, size_t index, const RunWatch& watch);

  Components& components_;
  std::vector<ImageUnit> units_;
  std::vector<std::unique_ptr<Encoder>> encoders_;
  std::vector<std::unique_ptr<Unit>> made_;
};

}  // namespace rocm_sd
