// A network that enlarges images, on a device: one pass over an image in windows.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "models/upscaler.hpp"
#include "pipeline/stage.hpp"
#include "rocm_sd/upscale.hpp"

namespace rocm_sd {

// One axis of an image in windows of the same length: where each begins, and what its values count there. At
// every place the windows' weights add up to 1.
struct WindowAxis {
  int64_t length = 0;                       // of a window
  std::vector<int64_t> begins;              // of the windows
  std::vector<std::vector<float>> weights;  // [windows][length]
};
// Windows of `tile` (0: one for all) that overlap by at least `overlap` over `length` places, each of which
// becomes `scale` of them: lengths, begins and weights of the result are of the latter. Within the first
// quarter of an overlap a window counts nothing, then its weight rises in a line over the next two quarters:
// a network that looks no further than the quarter leaves the values as they are without windows.
WindowAxis window_axis(int64_t length, int64_t tile, int64_t overlap, int64_t scale);

class ImageUpscaler {
 public:
  // Opens and checks the file, and loads it. dtype: f32, bf16 or f16. Throws as Upscaler::load.
  ImageUpscaler(Device& device, const std::filesystem::path& file, DType dtype);

  const UpscalerConfig& config() const { return net_.config(); }
  DType dtype() const { return net_.dtype(); }
  uint64_t parameters() const { return store_.parameters(); }
  const std::string& name() const { return name_; }

  // -> the image's sides times config().factor(); without alpha. step(done, all) after each window; false
  // cancels. In f16, where values overflow, it goes on in f32. Throws UsageError for tiles, CancelledError,
  // GenerationError.
  using OnWindow = std::function<bool(int64_t done, int64_t all)>;
  Image pass(const Image& image, const UpscaleTiles& tiles, const RunWatch& watch, const OnWindow& step);

  // Gives back what a pass takes beside the weights.
  void release_memory();

 private:
  Image attempt(const Image& image, const UpscaleTiles& tiles, const RunWatch& watch, const OnWindow& step);
  void prepare(int64_t height, int64_t width, bool alone);
  void forward(Exec& ex);
  void check_finite();
  void fetch_bytes(Image& image) const;

  Device& device_;
  std::string name_;
  WeightStore store_;
  UpscalerNet net_;
  Arena arena_;
  // Persistent, of a window: f32 [1,h,w,C] -> f32 [1,H,W,3] or, of one that is the whole image, u8.
  Tensor input_, output_, bytes_;
  Tensor nonfinite_;  // [1] i64
  Tensor ones_;       // [shuffle^2] f32
  std::unique_ptr<Program> program_;
};

// auto, f16, bf16, f32: f16 on GPUs, f32 on the host. Throws UsageError.
DType upscaler_dtype(const Device& device, const std::string& name);

}  // namespace rocm_sd
