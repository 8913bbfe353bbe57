// Latents to pictures and back, one picture at a time.
#pragma once

#include <memory>
#include <vector>

#include "pipeline/components.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd {

class VaeStage {
 public:
  // height and width of the latents. components and arena must outlive the stage.
  VaeStage(Components& components, Arena& arena, int64_t height, int64_t width);

  int64_t height() const { return height_; }
  int64_t width() const { return width_; }
  size_t plan(bool with_encoder);  // arena bytes
  uint64_t buffer_bytes() const;

  // latents [h,w,4] as the sampler leaves them (scaled) -> pixels 8-bit RGB. Throws GenerationError where a
  // pixel is not finite.
  Image decode(const std::vector<float>& latents, Profiler* profiler, const CancelCheck* cancel);
  // pixels [H,W,3] in -1..1 -> the posterior's mode, [h,w,4], scaled as the sampler wants it.
  std::vector<float> encode(const std::vector<float>& pixels, Profiler* profiler, const CancelCheck* cancel);

 private:
  Components& components_;
  Arena& arena_;
  int64_t height_, width_;
  Tensor latents_, rgb_, nonfinite_, pixels_, encoded_;  // persistent
  std::unique_ptr<Program> decode_, encode_;
};

}  // namespace rocm_sd
