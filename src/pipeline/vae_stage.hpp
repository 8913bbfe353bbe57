// Latents to pictures and back, one picture at a time.
#pragma once

#include <memory>
#include <vector>

#include "pipeline/components.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd {

class VaeStage {
 public:
  // height and width of the latents; bands: 1 decodes the picture whole, more in that many bands of rows,
  // with the same result within rounding (pictures differ by about 92 dB) in less memory. components and
  // arena must outlive the stage.
  VaeStage(Components& components, Arena& arena, int64_t height, int64_t width, int64_t bands = 1);

  int64_t height() const { return height_; }
  int64_t width() const { return width_; }
  int64_t bands() const { return bands_; }
  size_t plan(bool with_encoder);  // arena bytes
  void replan();                   // after the VAE's weights have moved
  bool planned(bool with_encoder) const;
  uint64_t buffer_bytes() const;

  struct Decoded {
    Image image;            // 8-bit RGB
    int64_t nonfinite = 0;  // values that were not finite: more than 0 makes the image worthless
  };
  // latents [h,w,4] as the sampler leaves them (scaled).
  Decoded decode(const std::vector<float>& latents, Profiler* profiler, const CancelCheck* cancel);
  // A picture's latents are Gaussian, and both of these scaled as the sampler wants them.
  struct Encoded {
    std::vector<float> mean;       // [h,w,4]
    std::vector<float> deviation;  // [h,w,4], standard; empty where the VAE gives none (AutoencoderTiny)
  };
  // pixels [H,W,3] in -1..1
  Encoded encode(const std::vector<float>& pixels, Profiler* profiler, const CancelCheck* cancel);

 private:
  void decode_forward(Exec& ex);

  Components& components_;
  Arena& arena_;
  int64_t height_, width_, bands_;
  Tensor latents_, rgb_, nonfinite_, pixels_, encoded_;  // persistent
  std::unique_ptr<Program> decode_, encode_;
};

}  // namespace rocm_sd
