// AutoencoderKL: pictures to latents and back (Rombach et al., 2022, section 3.1). The halves load apart,
// because text to image needs the decoder only.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "models/configs.hpp"
#include "models/parameters.hpp"
#include "models/tap.hpp"
#include "models/unet_blocks.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd {

// One head as wide as the map, over all pixels.
struct VaeAttention {
  Norm norm;
  StackedLinear qkv;
  Linear out;

  explicit VaeAttention(int64_t channels);
  void visit(Visitor& v);
  // x [N,H,W,C] -> [N,H,W,C]
  Tensor operator()(Exec& ex, const Tensor& x, int64_t groups) const;
};

// ResNet, attention (unless the model has none), ResNet.
struct VaeMidBlock {
  ResBlock first, second;
  std::optional<VaeAttention> attention;

  VaeMidBlock(int64_t channels, bool with_attention);
  void visit(Visitor& v);
  Tensor operator()(Exec& ex, Tensor x, int64_t groups) const;
};

// The residual blocks of one resolution and the convolution that changes it.
struct VaeLevel {
  std::vector<ResBlock> resnets;
  std::optional<Conv> downsampler, upsampler;

  void visit(Visitor& v);
};

class VaeDecoder {
 public:
  explicit VaeDecoder(const VaeConfig& config);
  // Throws what load_parameters throws. The encoder's tensors do not count as unused.
  static VaeDecoder load(const LoadTarget& target, const VaeConfig& config, const ParameterSource& source,
                         DType compute, const WeightFormat& weights = {});

  const VaeConfig& config() const { return config_; }
  DType dtype() const { return loaded_as_; }  // that it was loaded as: of its matrices
  void visit(Visitor& v);
  std::vector<PrecisionRow> precisions() const { return precision_rows(Network::kVae, false); }

  // latents [N,h,w,latent_channels] as the sampler has them (f32 or the compute dtype) -> picture
  // [N,8h,8w,3] about -1..1 in the compute dtype. Taps "conv_in", "mid_block", "up_blocks.0", ...
  Tensor operator()(Exec& ex, const Tensor& latents, const Tap* tap = nullptr) const;

  // The same picture within rounding, in `count` bands of rows: less memory, more launches. latents
  // [1,h,w,latent_channels]. sink(band [1,R,W,3], row) gets the bands from the top; with half_size_finest the
  // whole picture at once.
  using BandSink = std::function<void(const Tensor& band, int64_t row)>;
  void decode_in_bands(Exec& ex, const Tensor& latents, int64_t count, const BandSink& sink) const;

 private:
  // Up to the middle block, and it: [N,h,w,C].
  Tensor first_map(Exec& ex, const Tensor& latents, const Tap* tap) const;
  Tensor middle(Exec& ex, Tensor x, const Tap* tap) const;
  // A picture that was decoded at half size, resized; any other as it is.
  Tensor full_size(Exec& ex, const Tensor& picture) const;
  // Whether the convolution after a level doubles the size before it.
  bool doubles(size_t level) const { return !config_.half_size_finest || level + 2 < levels_.size(); }

  VaeConfig config_;
  DType dtype_ = DType::kF32, loaded_as_ = DType::kF32;  // dtype_: of maps and products (product_dtype)
  std::optional<Conv> post_quant_;
  Conv conv_in_, conv_out_;
  VaeMidBlock mid_;
  std::vector<VaeLevel> levels_;  // in the order of running, coarsest first
  Norm norm_out_;
};

class VaeEncoder {
 public:
  explicit VaeEncoder(const VaeConfig& config);
  static VaeEncoder load(const LoadTarget& target, const VaeConfig& config, const ParameterSource& source,
                         DType compute, const WeightFormat& weights = {});

  const VaeConfig& config() const { return config_; }
  DType dtype() const { return loaded_as_; }  // that it was loaded as: of its matrices
  void visit(Visitor& v);
  std::vector<PrecisionRow> precisions() const { return precision_rows(Network::kVae, false); }

  // picture [N,H,W,3] in -1..1, f32 or the compute dtype, H and W multiples of config.downscale() -> the
  // posterior's moments [N,h,w,2*latent_channels]: means, then log variances, in the compute dtype.
  // Throws ShapeError for other sizes.
  Tensor moments(Exec& ex, const Tensor& picture, const Tap* tap = nullptr) const;
  // Latents for the sampler [N,h,w,latent_channels] f32: (z - shift_factor) * scaling_factor with z = mean +
  // exp(logvar / 2) * noise, or the mean where noise is null. noise [N,h,w,latent_channels] f32.
  Tensor operator()(Exec& ex, const Tensor& picture, const Tensor* noise = nullptr,
                    const Tap* tap = nullptr) const;
  // The same moments within rounding, in `count` bands of rows. picture [1,H,W,3].
  Tensor moments_in_bands(Exec& ex, const Tensor& picture, int64_t count) const;
  // The mode, in `count` bands of rows: the same latents within rounding in less memory. picture [1,H,W,3].
  Tensor encode_in_bands(Exec& ex, const Tensor& picture, int64_t count) const;

 private:
  void check_picture(const Tensor& picture) const;
  // All levels, [1,h,w,C], and what comes after them: [1,h,w,2*latent_channels].
  Tensor levels_in_bands(Exec& ex, const Tensor& picture, int64_t count) const;
  Tensor tail(Exec& ex, Tensor x, const Tap* tap) const;
  Tensor scaled(Exec& ex, const Tensor& z) const;

  VaeConfig config_;
  DType dtype_ = DType::kF32, loaded_as_ = DType::kF32;  // dtype_: of maps and products (product_dtype)
  Conv conv_in_, conv_out_;
  std::vector<VaeLevel> levels_;  // finest first
  VaeMidBlock mid_;
  Norm norm_out_;
  std::optional<Conv> quant_;
};

}  // namespace rocm_sd
