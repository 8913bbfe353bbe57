// Latents to images and back, one image at a time.
#pragma once

#include <memory>
#include <vector>

#include "models/row_split.hpp"
#include "models/wrapping.hpp"
#include "pipeline/components.hpp"
#include "pipeline/stage.hpp"

namespace rocm_sd {

struct VaeShape {
  int64_t height = 64, width = 64;  // of the latents
  // 1 decodes the image whole, more in that many bands of rows, with the same result within rounding (images
  // differ by about 92 dB) in less memory.
  int64_t bands = 1;
  WrapAxes wrap = {};              // whole, whatever `bands` says: a band does not reach the other border
  const RowSplit* rows = nullptr;  // several ranks decode, each its rows; null: this one decodes all
  friend bool operator==(const VaeShape&, const VaeShape&) = default;
};

class VaeStage final : public Stage {
 public:
  // components and arena must outlive the stage.
  VaeStage(Components& components, Arena& arena, const VaeShape& shape);

  const VaeShape& shape() const { return shape_; }
  DType dtype() const override { return components_.dtype_of(Part::kVae); }
  int64_t bands() const { return bands_; }  // fewer than asked for where there are fewer rows
  std::vector<Program*> programs() override;
  uint64_t buffer_bytes() const override;
  void replan() override;
  // Whether the encoder is among the programs. Loads its weights where it is and they are not there.
  void need_encoder(bool needed);

  // latents [1,h,w,4] f32 as the sampler leaves them (scaled) -> 8-bit RGB. Throws NotFinite. With
  // shape().rows all ranks call it and get the image.
  Image decode(const Tensor& latents, const RunWatch& watch);
  // pixels [H,W,3] in -1..1 -> latents [N,h,w,4] f32 as the sampler wants them: for each image the mean of
  // the posterior, or, with noise [N,h,w,4], a sample of it. An AutoencoderTiny has no posterior. Throws
  // NotFinite.
  Tensor encode(const std::vector<float>& pixels, int64_t images, const std::vector<float>& noise,
                const RunWatch& watch);

 private:
  void decode_forward(Exec& ex);
  void encode_forward(Exec& ex);
  void make_encode();
  // What the ranks have decoded becomes the image, and their counts the image's.
  void gather_rows(Image& image, std::vector<int64_t>& bad) const;
  void upload_centred(const Tensor& latents);
  // A Gaussian of latents, [h,w,4] each, scaled as the sampler wants them.
  struct Posterior {
    std::vector<float> mean, deviation;  // deviation: standard; empty where the VAE gives none
  };
  Posterior posterior(const std::vector<float>& encoded) const;

  Components& components_;
  VaeShape shape_;
  int64_t bands_;
  Tensor latents_, rgb_, nonfinite_, pixels_, encoded_;  // persistent
  bool needs_encoder_ = false;
  std::unique_ptr<Program> decode_, encode_;
};

}  // namespace rocm_sd
