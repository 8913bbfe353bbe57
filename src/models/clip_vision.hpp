// ClipVisionModel: an image to the embedding, or the states of its patches, that IP-Adapters read (CLIP's
// vision transformer: Radford et al., "Learning Transferable Visual Models", 2021; OpenCLIP's ViT-H/14 and
// ViT-bigG/14 are the same with GELU).
#pragma once

#include <vector>

#include "models/clip.hpp"

namespace rocm_sd {

// kEmbedding: the class token behind the last norm, projected. kStates: what the last layer but one makes of
// every token (transformers' hidden_states[-2]).
enum class VisionResult { kEmbedding, kStates };

class ClipVisionModel {
 public:
  explicit ClipVisionModel(const ClipVisionConfig& config);
  // Throws what load_parameters throws. stored: f16 under products in f32, or `compute`.
  static ClipVisionModel load(Device& device, const ClipVisionConfig& config, const ParameterSource& source,
                              DType compute, DType stored);

  const ClipVisionConfig& config() const { return config_; }
  DType dtype() const { return dtype_; }
  void visit(Visitor& v);

  // Shape of what one image gives: [projection], or [tokens,width].
  Shape result_shape(VisionResult result, int64_t images) const;

  // pixels [N,S,S,3] f32, normalised (clip_pixels.hpp), S the configuration's image_size -> [N,projection] or
  // [N,tokens,width] in the compute dtype, the arena's.
  Tensor operator()(Exec& ex, const Tensor& pixels, VisionResult result, const Tap* tap = nullptr) const;

 private:
  Tensor embed(Exec& ex, const Tensor& pixels) const;

  ClipVisionConfig config_;
  ClipConfig layer_config_;
  DType dtype_ = DType::kF32;
  Conv patches_;
  Embedding class_, positions_;  // in the file the first is "class_embedding"
  Norm first_norm_, last_norm_;
  std::vector<ClipLayer> layers_;
  Linear projection_;
};

}  // namespace rocm_sd
