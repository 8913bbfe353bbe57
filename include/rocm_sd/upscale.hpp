// Enlarging pictures, by a network or by a filter.
//
//   auto upscaler = rocm_sd::Upscaler::load({.model = "RealESRGAN_x4plus.pth"});
//   rocm_sd::Image large = upscaler.upscale(rocm_sd::load_image("a.png"), {.factor = 3});
#pragma once

#include <memory>
#include <string>

#include "rocm_sd/image.hpp"
#include "rocm_sd/pipeline.hpp"

namespace rocm_sd {

struct UpscalerOptions {
  // A file with the weights of an RRDBNet (ESRGAN, Real-ESRGAN), SRVGGNetCompact, SPAN or SwinIR,
  // .safetensors or .pth; or a filter: "lanczos", "bicubic", "nearest".
  std::string model;
  std::string device = "auto";  // as LoadOptions::device
  std::string dtype = "auto";   // auto (f16 on GPUs, f32 on the CPU), f16 (GPUs), bf16, f32
};

// How a network works through a picture: in windows, whose memory it takes.
struct UpscaleTiles {
  int size = 512;    // side of a window in pixels, at least 16; 0: the whole picture at once
  int overlap = 64;  // pixels that neighbours share at least, 0..size/2
};

struct UpscaleRequest {
  double factor = 0;          // of both sides, up to 64; 0: the network's own, or a filter's 2
  int width = 0, height = 0;  // the result's size in place of the factor: both, or one and the other follows
  UpscaleTiles tiles = {};
};

struct UpscalerInfo {
  std::string name;  // of the file without its ending, or the filter
  std::string kind;  // "RRDBNet", "SRVGGNetCompact", "SPAN", "SwinIR"; "filter"
  int factor = 1;    // of one pass
  uint64_t parameters = 0;
  std::string device, dtype;  // empty for filters
};

// Not thread-safe. Every function throws Error subclasses only.
class Upscaler {
 public:
  // Throws FileError, FormatError (what the file holds instead), DeviceError.
  static Upscaler load(const UpscalerOptions& options);
  ~Upscaler();
  Upscaler(Upscaler&&) noexcept;
  Upscaler& operator=(Upscaler&&) noexcept;

  const UpscalerInfo& info() const;
  // A network runs as often as it takes to reach the size, at most three times, with 8 bits between; then, or
  // at once where the picture is to become smaller, a Lanczos filter makes the size exact (as in A1111). A
  // transparent picture's alpha is resized by Lanczos. callbacks: progress of stage "upscale", a step for
  // each window, and cancelled. Throws UsageError for sizes, GenerationError for values that are not finite,
  // CancelledError.
  Image upscale(const Image& image, const UpscaleRequest& request = {}, const Callbacks& callbacks = {});

 private:
  struct State;
  explicit Upscaler(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace rocm_sd
