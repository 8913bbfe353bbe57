// T2I-Adapter: a small convolutional model that makes of an image what is added to the blocks of the UNet's
// way down, the same in every step (Mou et al., "T2I-Adapter", 2023).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/configs.hpp"
#include "models/layers.hpp"
#include "models/parameters.hpp"
#include "models/tap.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd {

// kFull: SD 1 and 2, every level half of the one before; kFullXl: SDXL, one halving; kLight: few channels.
enum class T2iKind { kFull, kFullXl, kLight };

struct T2iConfig {
  T2iKind kind = T2iKind::kFull;
  int64_t in_channels = 3;  // of the image: 3, or 1 (grey)
  std::vector<int64_t> channels = {320, 640, 1280, 1280};
  int64_t blocks = 2;     // residual blocks of a level
  int64_t downscale = 8;  // the image's squares of so many pixels a side become channels

  int64_t levels() const { return static_cast<int64_t>(channels.size()) + (kind == T2iKind::kLight ? 1 : 0); }
  int64_t channels_of(int64_t level) const;  // of what a level makes
  bool halves(int64_t level) const;          // whether a level begins by halving the map
};

// From the JSON of Diffusers' T2IAdapter. Throws FormatError.
T2iConfig t2i_config(const nlohmann::json& json, std::string_view what);

// Why an adapter cannot steer a UNet whose VAE makes one latent of downscale x downscale pixels; empty where
// it can.
std::string t2i_refusal(const T2iConfig& adapter, const UNetConfig& unet, int64_t downscale);

class T2iAdapter {
 public:
  explicit T2iAdapter(const T2iConfig& config);
  // Little work, once an image: filters are stored in f32, or f16 on a GPU that computes in it.
  static T2iAdapter load(const LoadTarget& target, const T2iConfig& config, const ParameterSource& source,
                         DType compute);

  const T2iConfig& config() const { return config_; }
  void visit(Visitor& v);
  std::vector<PrecisionRow> precisions() const;

  // What the first level reads of an image [height,width,3] in 0..1: [height/d,width/d,in_channels*d*d] in
  // torch's order of pixel_unshuffle. Sizes are multiples of d; of a grey adapter the luma counts.
  std::vector<float> unshuffled(const std::vector<float>& pixels, int64_t height, int64_t width) const;

  // squares [N,h,w,in_channels*d*d] f32 -> a map of every level, in `maps`.
  std::vector<Tensor> operator()(Exec& ex, const Tensor& squares, DType maps, const Tap* tap = nullptr) const;

 private:
  struct Resnet {
    Conv block1, block2;
    Resnet(int64_t channels, int kernel2);
    void visit(Visitor& v);
  };
  struct Level {
    bool halves = false;
    std::optional<Conv> in_conv, out_conv;
    std::vector<Resnet> resnets;
    void visit(Visitor& v);
  };

  T2iConfig config_;
  std::optional<Conv> conv_in_;
  std::vector<Level> levels_;
};

}  // namespace rocm_sd
