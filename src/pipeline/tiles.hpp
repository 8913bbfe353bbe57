// Tiled diffusion: the UNet runs over overlapping windows of the latents and its predictions are averaged, so
// that a picture may be larger than what the model was trained on and the UNet's memory is that of a window.
// Uniform weights: Bar-Tal et al., "MultiDiffusion", 2023 (2302.08113), equation 5; Gaussian: Jiménez,
// "Mixture of Diffusers", 2023 (2302.02412), section 3.
#pragma once

#include <functional>
#include <vector>

#include "pipeline/tile_grid.hpp"
#include "pipeline/unet_stage.hpp"

namespace rocm_sd {

// What the UNet's stage is to a denoiser, over windows. The stage's batch is images * grid.batch.
class TiledUnet {
 public:
  // stage must outlive it. extra: the UNet's further input channels of the whole images,
  // [conditions*images,height,width,extra], or empty.
  TiledUnet(Exec& ex, UnetStage& stage, const TileGrid& grid, int64_t images, int64_t height, int64_t width,
            const Tensor& extra);

  // scaled_input [K*images,height,width,4] of the UNet's input_dtype() -> its output over the whole, f32,
  // overwritten by the next call.
  Tensor operator()(Exec& ex, const Tensor& scaled_input, double timestep, const RunWatch& watch);
  uint64_t buffer_bytes() const;

 private:
  struct Window {
    int64_t row = 0, col = 0;
    Tensor share;  // [1,height,width,4] f32: of this window in the average of it and those before it
  };
  Tensor cut(const Tensor& whole, int64_t index, const Window& window) const;
  void gather(Exec& ex, const Tensor& scaled_input, int64_t first, const Tensor& input) const;
  void average(Exec& ex, const Tensor& predicted, int64_t first) const;

  UnetStage& stage_;
  TileGrid grid_;
  int64_t images_, conditions_;
  std::vector<Window> windows_;
  Tensor extra_;  // [K*images,height,width,extra] or empty
  Tensor whole_;  // [K*images,height,width,4] f32
};

// Bytes that a TiledUnet will hold.
uint64_t tiled_buffer_bytes(const TileGrid& grid, int64_t rows, int64_t height, int64_t width);

}  // namespace rocm_sd
