// What a union ControlNet has beyond an ordinary one: it is told what kind of image each of its images is
// (a type's embedding beside the time's), and a small network over the mean of an image's hint decides what
// is added to all of it (xinsir's "ControlNet++"; Diffusers' ControlNetUnionModel).
#pragma once

#include "kernels/embed/embed.hpp"
#include "models/layers.hpp"
#include "models/parameters.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd {

struct ControlMixerConfig {
  int64_t types = 6;
  int64_t channels = 320;  // of the network: those of the UNet's first level
  int64_t layers = 1;
  int64_t type_width = 256;  // of one type's sinusoidal embedding
  int64_t time_width = 1280;
  TimestepEmbeddingArgs timestep;
};

class ControlMixer {
 public:
  explicit ControlMixer(const ControlMixerConfig& config);
  void visit(Visitor& v);

  // types [B,config.types] f32, 1 for each kind that is seen, else 0 -> [B,time_width] of dtype: what the
  // time embedding gets added.
  Tensor type_embedding(Exec& ex, const Tensor& types, DType dtype) const;

  // hint [N,h,w,C0], what the hint encoder made of an image; type [N,1] i32, its kind; scales [N] f32, how
  // much of it counts -> scales * (hint + what the network adds to every pixel), [N,h,w,C0].
  Tensor operator()(Exec& ex, const Tensor& hint, const Tensor& type, const Tensor& scales) const;

 private:
  // A transformer's block as the published models run it: their attention's sequence is the batch, of which
  // all rows see the same image, so that every token gets its own value.
  struct Layer {
    Norm norm1, norm2;
    Linear qkv, out, fc1, fc2;
    explicit Layer(int64_t width);
    void visit(Visitor& v);
    Tensor operator()(Exec& ex, const Tensor& x) const;
  };

  ControlMixerConfig config_;
  Embedding tasks_;  // in the file "task_embedding"
  std::vector<Layer> layers_;
  Linear projection_, time1_, time2_;
};

}  // namespace rocm_sd
