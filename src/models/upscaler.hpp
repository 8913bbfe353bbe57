// Networks that enlarge images: RRDBNet (Wang et al., "ESRGAN", 2018; with pixels taken together at the front
// Wang et al., "Real-ESRGAN", 2021), SRVGGNetCompact (Real-ESRGAN's small network), SPAN (Wan et al.,
// "Swift Parameter-free Attention Network for Efficient Super-Resolution", 2023) and SwinIR (swinir.hpp).
#pragma once

#include <array>
#include <optional>
#include <variant>
#include <vector>

#include "models/layers.hpp"
#include "models/parameters.hpp"
#include "models/swinir.hpp"
#include "runtime/exec.hpp"
#include "weights/store.hpp"

namespace rocm_sd {

enum class UpscalerKind { kRrdb, kCompact, kSpan, kSwin };

struct UpscalerConfig {
  UpscalerKind kind = UpscalerKind::kRrdb;
  int64_t unshuffle = 1;    // a square of so many pixels on a side becomes channels of one: RRDBNet
  int64_t features = 64;    // channels between layers
  int64_t growth = 32;      // that a convolution of a dense block adds: RRDBNet
  int64_t blocks = 23;      // RRDBs; convolutions between the first and the last; attention blocks: SPAN
  int64_t doublings = 2;    // RRDBNet, SwinIR
  int64_t shuffle = 1;      // channels of the result become a square of so many pixels on a side
  bool normalised = false;  // a convolution of one pixel makes what the first one reads: SPAN
  SwinConfig swin = {};

  const char* name() const;
  // Whether the image's own pixels are to be added to each square of the result.
  bool adds_image() const {
    return kind == UpscalerKind::kCompact ||
           (kind == UpscalerKind::kSwin && swin.upsampler == SwinUpsampler::kNone);
  }
  // What the sides of its input are multiples of.
  int64_t multiple() const { return kind == UpscalerKind::kSwin ? swin.window : 1; }
  // How much larger the map that it makes is than its input, along a side; a pixel of it is then a square.
  int64_t growth_of_map() const { return (int64_t{1} << doublings) * swin.tripled; }
  int64_t in_channels() const { return 3 * unshuffle * unshuffle; }
  int64_t out_channels() const { return 3 * shuffle * shuffle; }
  // Pixels that one becomes along a side.
  int64_t factor() const { return growth_of_map() * shuffle / unshuffle; }
  // How far a pixel of the result looks, in pixels of the image.
  int64_t reach() const;
};
// From names and shapes. Throws FormatError where they are those of no such network.
UpscalerConfig upscaler_config(const WeightStore& store);

// Five convolutions, each of which reads what all before it made.
struct DenseBlock {
  std::array<Conv, 5> convs;
  explicit DenseBlock(const UpscalerConfig& config);
  void visit(Visitor& v);
  Tensor operator()(Exec& ex,
                    const Tensor& x) const;  // [N,h,w,features]; the result's factor is in the weights
  // The same of a map [N,h,w,features+4*growth] whose first channels are x: what is made goes behind them.
  // into: [N,h,w,features], the first channels of such a map. slopes: [growth] f32, the rectifiers'.
  Tensor operator()(Exec& ex, const Tensor& map, const Tensor& into, const Tensor& slopes) const;
};

// Residual in residual dense block: x + 0.2 * three dense blocks.
struct Rrdb {
  std::array<DenseBlock, 3> dense;
  explicit Rrdb(const UpscalerConfig& config)
      : dense{DenseBlock(config), DenseBlock(config), DenseBlock(config)} {}
  void visit(Visitor& v);
  Tensor operator()(Exec& ex, const Tensor& x, const Tensor& factor) const;  // factor: [1] f32
  // The same in three maps as dense blocks take them: x is in the first one, the result in the third.
  // factors: [N*h*w] f32; slopes: [growth] f32.
  void operator()(Exec& ex, const std::array<Tensor, 3>& maps, int64_t features, const Tensor& factors,
                  const Tensor& slopes) const;
};

class RrdbNet {
 public:
  explicit RrdbNet(const UpscalerConfig& config);
  void visit(Visitor& v);
  // x [1,h,w,3*unshuffle^2] in the weights' type -> [1,h*2^doublings,w*2^doublings,3]. factors: [h*w] f32, or
  // [1], that hold kFactor; of all pixels on GPUs' way without copies.
  Tensor operator()(Exec& ex, const Tensor& x, const Tensor& factors) const;
  // After loading: for convolutions that rectify themselves.
  void prepare(Device& device);
  static constexpr float kFactor = 0.2f;
  static constexpr float kSlope = 0.2f;  // of the rectifiers

 private:
  bool is_joined_in_place(const Exec& ex, const Tensor& x, const Tensor& factors) const;
  Tensor body(Exec& ex, const Tensor& features, const Tensor& factors) const;
  Tensor rectified_conv(Exec& ex, const Tensor& x, const Conv& conv, bool upsample2x = false) const;

  Conv first_, body_out_, hr_, last_;
  std::vector<Rrdb> body_;
  std::vector<Conv> up_;
  Tensor slopes_;  // kSlope for each of the most channels that are rectified, f32
};

class CompactNet {
 public:
  explicit CompactNet(const UpscalerConfig& config);
  void visit(Visitor& v);
  // x [1,h,w,3] -> [1,h,w,3*shuffle^2]: what is to be added to the image's own pixels, the squares' pixels
  // fastest.
  Tensor operator()(Exec& ex, const Tensor& x) const;
  // After loading: for convolutions that apply the slopes themselves.
  void prepare(Device& device);

 private:
  std::vector<Conv> convs_;
  std::vector<Embedding> slopes_;    // [1,features] each, after every convolution but the last
  std::vector<Tensor> wide_slopes_;  // the same as [features] f32
};

// Three convolutions, whose result and the input's sum is weighted by the result itself.
struct SpanBlock {
  std::array<Conv, 3> convs;
  explicit SpanBlock(const UpscalerConfig& config);
  void visit(Visitor& v);
  // x [N,h,w,features] -> the same shape; inner, where it is given, becomes the first convolution's activated
  // result.
  Tensor operator()(Exec& ex, const Tensor& x, Tensor* inner = nullptr) const;
};

class SpanNet {
 public:
  explicit SpanNet(const UpscalerConfig& config);
  void visit(Visitor& v);
  // x [1,h,w,3] -> [1,h,w,3*shuffle^2], the squares' pixels fastest.
  Tensor operator()(Exec& ex, const Tensor& x) const;

 private:
  std::optional<Conv> input_;
  Conv first_, body_out_, join_, last_;
  std::vector<SpanBlock> blocks_;
};

class UpscalerNet {
 public:
  explicit UpscalerNet(const UpscalerConfig& config);
  const UpscalerConfig& config() const { return config_; }
  DType dtype() const { return dtype_; }
  void visit(Visitor& v);
  // Throws what load_parameters throws. compute: f32, bf16 or f16.
  void load(Device& device, const ParameterSource& source, DType compute);
  // For maps of h*w pixels: without it an RRDBNet joins its maps by copies.
  void prepare(Device& device, int64_t pixels);

  // x [1,h,w,in_channels] in dtype(), h and w multiples of config().multiple() -> [1,h*g,w*g,out_channels]
  // for g = config().growth_of_map().
  Tensor operator()(Exec& ex, const Tensor& x) const;

 private:
  UpscalerConfig config_;
  DType dtype_ = DType::kF32;
  Tensor factors_;  // RRDBNet's
  std::variant<RrdbNet, CompactNet, SpanNet, SwinNet> net_;
};

}  // namespace rocm_sd
