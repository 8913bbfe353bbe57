// TAESD (AutoencoderTiny): a small distilled VAE for previews and fast decoding
// (https://github.com/madebyollin/taesd).
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "models/configs.hpp"
#include "models/parameters.hpp"
#include "models/tap.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd {

// relu(x + three convolutions with ReLU between them).
struct TaesdBlock {
  Conv conv1, conv2, conv3;

  explicit TaesdBlock(int64_t channels);
  void visit(Visitor& v);
  Tensor operator()(Exec& ex, const Tensor& x) const;
};

// A numbered child of the checkpoint's list of layers: a convolution or a block.
struct TaesdLayer {
  int number = 0;  // activations and upsamplers, which have no parameters, count too
  std::optional<Conv> conv;
  std::optional<TaesdBlock> block;
  int stride = 1;         // of the convolution
  bool upsample = false;  // double the map before the convolution
  Activation act = Activation::kNone;

  // x [N,H,W,C] -> [N,H',W',C']
  Tensor operator()(Exec& ex, const Tensor& x) const;
};

class TaesdDecoder {
 public:
  explicit TaesdDecoder(const TaesdConfig& config);
  // Throws what load_parameters throws. The encoder's tensors do not count as unused.
  static TaesdDecoder load(Device& device, const TaesdConfig& config, const ParameterSource& source,
                           DType compute);

  const TaesdConfig& config() const { return config_; }
  DType dtype() const { return dtype_; }
  void visit(Visitor& v);

  // latents [N,h,w,4] as the sampler has them, f32 or the compute dtype -> picture [N,8h,8w,3] about -1..1 in
  // the compute dtype. Taps "decoder.layers.N".
  Tensor operator()(Exec& ex, const Tensor& latents, const Tap* tap = nullptr) const;

 private:
  TaesdConfig config_;
  DType dtype_ = DType::kF32;
  std::vector<TaesdLayer> layers_;
};

class TaesdEncoder {
 public:
  explicit TaesdEncoder(const TaesdConfig& config);
  static TaesdEncoder load(Device& device, const TaesdConfig& config, const ParameterSource& source,
                           DType compute);

  const TaesdConfig& config() const { return config_; }
  DType dtype() const { return dtype_; }
  void visit(Visitor& v);

  // picture [N,H,W,3] in -1..1, f32 or the compute dtype, H and W multiples of config.downscale() -> latents
  // [N,h,w,4] f32 for the sampler. Throws ShapeError for other sizes.
  Tensor operator()(Exec& ex, const Tensor& picture, const Tap* tap = nullptr) const;

 private:
  TaesdConfig config_;
  DType dtype_ = DType::kF32;
  std::vector<TaesdLayer> layers_;
};

}  // namespace rocm_sd
