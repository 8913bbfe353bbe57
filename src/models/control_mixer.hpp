// What a union ControlNet has beyond an ordinary one: it is told what kind of picture each of its pictures is
// (a type's embedding beside the time's), and a small transformer over the pictures' means decides what each
// of them adds (xinsir's "ControlNet++"; Diffusers' ControlNetUnionModel).
#pragma once

#include <span>
#include <vector>

#include "kernels/embed/embed.hpp"
#include "models/layers.hpp"
#include "models/parameters.hpp"
#include "models/tap.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd {

struct ControlMixerConfig {
  int64_t types = 6;
  int64_t channels = 320;  // of the transformer: those of the UNet's first level
  int64_t heads = 8, layers = 1;
  int64_t type_width = 256;  // of one type's sinusoidal embedding
  int64_t time_width = 1280;
  TimestepEmbeddingArgs timestep;
};

// One of the pictures that a union ControlNet sees.
struct ControlSight {
  Tensor hint;    // [B,h,w,C0], what the hint encoder made of it, in the maps' type
  Tensor type;    // [B,1] i32: its kind
  Tensor scales;  // [B] f32: how much of it counts, read when a launch runs
};

class ControlMixer {
 public:
  explicit ControlMixer(const ControlMixerConfig& config);
  void visit(Visitor& v);

  // types [B,config.types] f32, 1 for each kind that is seen, else 0 -> [B,time_width] of dtype: what the
  // time embedding gets added.
  Tensor type_embedding(Exec& ex, const Tensor& types, DType dtype) const;

  // map [B,h,w,C0], what conv_in made of the latents -> the same with what the pictures add.
  Tensor operator()(Exec& ex, const Tensor& map, std::span<const ControlSight> sights,
                    const Tap* tap = nullptr) const;

 private:
  struct Layer {  // of CLIP's kind
    Norm norm1, norm2;
    Linear qkv, out, fc1, fc2;
    explicit Layer(int64_t width);
    void visit(Visitor& v);
    Tensor operator()(Exec& ex, const Tensor& x, int64_t heads) const;
  };

  ControlMixerConfig config_;
  Embedding tasks_;  // in the file "task_embedding"
  std::vector<Layer> layers_;
  Linear projection_, time1_, time2_;
};

}  // namespace rocm_sd
