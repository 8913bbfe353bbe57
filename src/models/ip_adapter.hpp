// IP-Adapter: an image as a second prompt. Its tokens have keys and values of their own in every cross
// attention of a UNet, whose results are added to the text's (Ye et al., "IP-Adapter", 2023).
#pragma once

#include <string>
#include <vector>

#include "models/image_projection.hpp"
#include "models/unet.hpp"
#include "weights/store.hpp"

namespace rocm_sd {

struct IpAdapterConfig {
  ImageProjectionConfig projection;
  std::vector<int64_t> numbers;  // of the layers in the file: 1, 3, 5, ...
  std::vector<int64_t> widths;   // of the cross attentions with these numbers

  // "FaceID Plus" has two versions with the same tensors: the file's name tells the second ("plusv2").
  void read_name(std::string_view name);
  // Of one image whose encoder gives `states` rows: what the UNet's attention reads.
  int64_t tokens(int64_t states) const;
};

// Told from the shapes of a file's tensors (ip_adapter_weights.hpp). Throws FormatError for a file that holds
// no adapter or one of an unknown kind.
IpAdapterConfig ip_adapter_config(const WeightStore& store);

// Why an adapter cannot steer this UNet; empty where it can.
std::string ip_adapter_refusal(const IpAdapterConfig& adapter, const UNet& unet);

class IpAdapter {
 public:
  // layers: those of the UNet, in the order of running (UNet::image_attentions()).
  IpAdapter(const IpAdapterConfig& config, const std::vector<ImageAttention>& layers);
  // stored: f16 under products in f32, or `compute`.
  void load(Device& device, const ParameterSource& source, DType compute, DType stored);

  const IpAdapterConfig& config() const { return config_; }
  const ImageProjection& projection() const { return projection_; }
  const std::vector<ImageAttention>& layers() const { return layers_; }
  DType dtype() const { return dtype_; }
  void visit(Visitor& v);

  // tokens [N,T,context_width] in dtype() -> keys and values of the layer, [N,T,2C].
  Tensor keys_values(Exec& ex, const Tensor& tokens, size_t layer) const;

 private:
  IpAdapterConfig config_;
  std::vector<ImageAttention> layers_;
  ImageProjection projection_;
  std::vector<StackedLinear> keys_values_;  // of each of layers_
  DType dtype_ = DType::kF32;
};

}  // namespace rocm_sd
