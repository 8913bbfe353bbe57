// What an IP-Adapter makes of an image encoder's result: the tokens that the UNet's cross attentions read
// beside the text's (Ye et al., "IP-Adapter", 2023).
#pragma once

#include <optional>
#include <vector>

#include "models/clip_vision.hpp"
#include "models/layers.hpp"
#include "models/parameters.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd {

// kLinear: a matrix over the embedding (the plain adapters). kFeedForward: two matrices over every state
// (Full) or over a face's embedding, of which they make several tokens (FaceID). kResampler: attention over
// the states by learned queries (Plus), or by a face's tokens (FaceID Plus).
enum class ImageProjectionKind { kLinear, kFeedForward, kResampler };

struct ImageProjectionConfig {
  ImageProjectionKind kind = ImageProjectionKind::kLinear;
  int64_t in_width = 1024;      // of what it reads
  int64_t context_width = 768;  // of its tokens
  int64_t tokens = 4;           // made of one input row; of Full 1 for each
  int64_t hidden = 0;           // width inside; of kLinear none
  bool faces = false;           // reads a face's embedding, which no model here makes; a resampler both
  // Of a resampler:
  int64_t heads = 12, head_dim = 64, mlp_width = 0, layers = 4;
  // Of FaceID Plus: the width of a face's embedding and inside its two matrices; whether the face's tokens
  // are added to the result (its second version, which the file's name alone tells).
  int64_t face_width = 0, face_hidden = 0;
  bool shortcut = false;

  bool has_both() const { return faces && kind == ImageProjectionKind::kResampler; }  // FaceID Plus
  bool reads_states() const { return kind != ImageProjectionKind::kLinear && (!faces || has_both()); }
};

class ImageProjection {
 public:
  explicit ImageProjection(const ImageProjectionConfig& config);
  const ImageProjectionConfig& config() const { return config_; }
  void visit(Visitor& v);

  // x [N,in_width], or [N,T,in_width] of states, in `dtype` -> tokens [N,tokens,context_width]. faces
  // [N,face_width]: FaceID Plus's, else empty.
  Tensor operator()(Exec& ex, const Tensor& x, const Tensor& faces = {}, const Tap* tap = nullptr) const;

 private:
  // Queries attend to the image's states and to each other.
  struct ResamplerLayer {
    Norm norm_states, norm_queries, norm_mlp;
    Linear query, out, fc1, fc2;
    Linear kv;  // keys first
    int64_t heads;
    explicit ResamplerLayer(const ImageProjectionConfig& config);
    void visit(Visitor& v);
    Tensor operator()(Exec& ex, const Tensor& queries, const Tensor& states) const;
  };
  Tensor face_tokens(Exec& ex, const Tensor& faces) const;
  Tensor resample(Exec& ex, const Tensor& states, Tensor queries, const Tap* tap) const;

  ImageProjectionConfig config_;
  Linear in_, out_;  // kLinear has out_ alone
  Norm norm_;
  std::optional<Embedding> queries_;  // in the file "latents"
  Linear face_in_, face_out_;         // FaceID Plus's
  Norm face_norm_;
  std::vector<ResamplerLayer> layers_;
};

}  // namespace rocm_sd
